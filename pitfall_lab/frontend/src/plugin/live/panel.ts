/** The live panel: what the current notebook's kernel holds, row by row, after every cell. */

import { MainAreaWidget } from "@jupyterlab/apputils";
import { Widget } from "@lumino/widgets";
import { h } from "../../core/dom";
import { prose } from "../../core/prose";
import { liveIcon } from "../icon";
import { languageOf, type Say } from "../words";
import { Details, imageOf, viewName } from "./details";
import type { Live } from "./live";
import type { Notebooks } from "./notebooks";
import { type Message, ROWS, type Row, type View, type Warning } from "./protocol";
import { arrange, levels, type Only, type Wanted } from "./rows";
import { Table } from "./table";
import { Warnings } from "./warnings";

export const LIVE_PANEL = "pitfall-lab-live";

interface Parts {
  says: HTMLElement;
  banner: HTMLElement;
  tools: HTMLElement;
  foot: HTMLElement;
  slider: HTMLInputElement;
  count: HTMLElement;
  next: HTMLButtonElement;
  table: Table;
  details: Details;
  warnings: Warnings;
}

export class LivePanel extends Widget {
  private readonly wanted: Wanted = { column: "name", down: false, only: "all", search: "" };
  /** Rows that are unfolded, by notebook: they stay so from cell to cell. */
  private readonly open = new WeakMap<Live, Set<string>>();
  /** What is in the panel: made when it is shown first, not while JupyterLab starts. */
  private parts: Parts | null = null;
  private selected: string | null = null;
  private detailed = false;
  /** A row to be put in front as soon as it is there: rows come after the panel is shown. */
  private sought: string | null = null;

  constructor(
    private readonly notebooks: Notebooks,
    private readonly addToMain: (widget: Widget) => void,
    private readonly say: Say,
  ) {
    super();
    this.id = LIVE_PANEL;
    this.addClass("pl-live");
    this.title.icon = liveIcon;
    this.title.caption = say("Pitfall Lab: live tensors", "Pitfall Lab：实时张量");
    this.node.setAttribute("role", "region");
    this.node.setAttribute("aria-label", this.title.caption);
    this.node.dataset.lmSuppressShortcuts = "true";
    notebooks.moved.connect(() => this.all());
    notebooks.heard.connect((_, { live, what }) => {
      if (live === notebooks.current) this.hear(what);
    });
  }

  /** The parts, made when they are needed first. */
  private get made(): Parts {
    this.parts ??= this.build();
    return this.parts;
  }

  private build(): Parts {
    const { say } = this;
    const says = h("p", { class: "pl-live-says", role: "status" });
    const banner = h("div", { class: "pl-live-past", role: "status" });
    const foot = h("div", { class: "pl-live-foot" });
    const count = h("span", { class: "pl-live-count" });
    const slider = h("input", {
      type: "range",
      min: 0,
      step: 1,
      label: say("After which cell", "在哪个单元格之后"),
      input: () => this.travel(),
    });
    const tools = this.makeTools();
    const sort = (column: Wanted["column"]): void => {
      this.wanted.down = this.wanted.column === column && !this.wanted.down;
      this.wanted.column = column;
      this.rows();
    };
    const look = (row: Row): void => this.look(row);
    const select = (row: Row): void => this.select(row);
    const end = (): void => this.live?.every();
    const table = new Table({ sort, look, select, end, fold: (row, open) => this.fold(row, open) }, say);
    const details = new Details(
      (row, view) => this.ask(row, view),
      (picture, row) => this.enlarge(picture, row),
      () => this.closeDetails(),
      say,
    );
    const warnings = new Warnings((row) => this.reveal(row), say);
    const more = (): void => void this.live?.send({ ask: "rows", from: this.live.now?.rows.length ?? 0 });
    const next = h("button", { class: "pl-live-cell", type: "button", click: more }, say("List more", "列出更多"));
    foot.append(slider, count, next);
    this.node.append(tools, says, warnings.node, banner, table.node, details.node, foot);
    return { says, banner, tools, foot, slider, count, next, table, details, warnings };
  }

  private get live(): Live | null {
    return this.notebooks.current;
  }

  protected override onAfterShow(): void {
    this.notebooks.show(true);
    this.all();
  }

  protected override onAfterHide(): void {
    this.notebooks.show(false);
  }

  /** Puts the row in front: a warning, or a notice below a cell, speaks of it. */
  reveal(row: string): void {
    this.wanted.only = "all";
    this.wanted.search = "";
    const tools = this.makeTools();
    this.made.tools.replaceWith(tools);
    this.made.tools = tools;
    this.sought = row;
    this.rows();
  }

  private makeTools(): HTMLElement {
    const { say, wanted } = this;
    const kinds: [Only, string][] = [
      ["all", say("All", "全部")],
      ["tensor", say("Tensors", "张量")],
      ["array", say("Arrays", "数组")],
      ["module", say("Modules", "模块")],
      ["optimizer", say("Optimizers", "优化器")],
      ["group", say("Lists", "列表")],
      ["changed", say("Changed", "有变化")],
      ["warned", say("With warnings", "有警告")],
    ];
    const search = h("input", {
      type: "search",
      placeholder: say("Search", "搜索"),
      label: say("Search names, shapes, types", "搜索名称、形状、类型"),
    });
    search.addEventListener("input", () => {
      wanted.search = search.value;
      this.rows();
    });
    const only = h("select", { label: say("Which rows", "哪些行") }, ...kinds.map(([kind, name]) => h("option", { value: kind }, name)));
    only.addEventListener("change", () => {
      wanted.only = only.value as Only;
      this.rows();
    });
    return h("div", { class: "pl-live-tools", role: "search" }, search, only);
  }

  private hear(what: Message["kind"] | "state"): void {
    this.node.dataset.kernel = this.live?.state ?? "";
    if (!this.isVisible) return;
    if (what === "picture" || what === "refused") this.drawDetails();
    else if (what === "children") this.rows();
    else this.all();
  }

  private all(): void {
    this.node.dataset.kernel = this.live?.state ?? "";
    if (!this.isVisible) return;
    const { live } = this;
    this.made.warnings.show(live?.warned.warnings ?? [], live?.notebook ?? null);
    const shown = live?.past ?? live?.now;
    // What was unfolded is asked for again: the kernel's ids stay, what is inside may not.
    if (live && shown && !shown.past) for (const id of this.opened(live)) if (!live.children.has(id)) live.send({ ask: "unfold", id });
    this.rows();
    this.travelled();
  }

  private rows(): void {
    const { live } = this;
    const shown = live?.past ?? live?.now ?? null;
    const said = this.sentence(live);
    this.made.says.hidden = !said;
    this.made.says.replaceChildren(...prose(said));
    for (const part of [this.made.tools, this.made.table.node, this.made.foot])
      part.hidden = !shown || (shown.rows.length === 0 && shown.cells.length < 2);
    const { column, down, only, search } = this.wanted;
    if (column !== "name" || down || only !== "all" || search.trim()) live?.every();
    const inside = shown?.past ? new Map<string, Row[]>() : (live?.children ?? new Map<string, Row[]>());
    const lines = arrange(
      shown?.rows ?? [],
      inside,
      live ? this.opened(live) : new Set(),
      levels(live?.warned.warnings ?? []),
      this.wanted,
    );
    this.made.table.show(lines, this.wanted);
    this.summarise(lines.filter(({ depth }) => depth === 0).length);
    this.drawDetails();
    if (this.sought !== null && lines.some((line) => line.row.id === this.sought)) {
      const { sought } = this;
      this.sought = null;
      this.made.table.reveal(sought);
    }
  }

  /** What there is to say when there are no rows, or not all of them. */
  private sentence(live: Live | null): string {
    const { say } = this;
    if (!this.notebooks.enabled)
      return say("The live panel is switched off in Pitfall Lab's settings.", "实时面板已在 Pitfall Lab 的设置中关闭。");
    if (!live)
      return say(
        "Open a notebook: its tensors are listed here after every cell.",
        "打开一个 notebook：每个单元格运行后，这里列出它的张量。",
      );
    if (live.state === "absent")
      return say(
        "This kernel has no pitfall_lab. Install it in the kernel's environment with `pip install pitfall-lab`, then restart the kernel.",
        "该内核没有 pitfall_lab。请在内核的环境中用 `pip install pitfall-lab` 安装，然后重启内核。",
      );
    if (live.state === "refused")
      return say(
        "This kernel has another version of pitfall_lab than JupyterLab; install the same one in both.",
        "内核与 JupyterLab 中的 pitfall_lab 版本不同；请在两处安装同一版本。",
      );
    if (live.state === "none") return say("There is no running kernel.", "没有正在运行的内核。");
    const shown = live.past ?? live.now;
    if (!shown)
      return say("Waiting for the kernel. While a cell runs, rows come when it has ended.", "正在等待内核。单元格运行期间，结束后才有行。");
    if (shown.rows.length === 0) return say("No tensors yet. Run a cell that makes one.", "还没有张量。运行一个会创建张量的单元格。");
    return shown.note?.[languageOf(say)] ?? "";
  }

  private summarise(shown: number): void {
    const rows = this.live?.past ?? this.live?.now;
    if (!rows) return;
    const all = rows.rows.length + rows.more;
    this.made.next.hidden = rows.past || rows.more === 0 || rows.rows.length >= ROWS;
    this.made.count.textContent =
      shown === all ? this.say(`${all} rows`, `${all} 行`) : this.say(`${shown} of ${all}`, `${shown} / ${all}`);
    this.made.count.title = this.say(`looked at in ${rows.ms.toFixed(1)} ms`, `查看用时 ${rows.ms.toFixed(1)} 毫秒`);
  }

  private opened(live: Live): Set<string> {
    const known = this.open.get(live) ?? new Set<string>();
    this.open.set(live, known);
    return known;
  }

  private fold(row: Row, open: boolean): void {
    const { live } = this;
    if (!live || live.past) return; // What was inside an earlier module is not kept.
    if (open) {
      this.opened(live).add(row.id);
      if (!live.children.has(row.id)) live.send({ ask: "unfold", id: row.id });
    } else this.opened(live).delete(row.id);
    this.rows();
  }

  private select(row: Row): void {
    this.selected = row.id;
    this.rows();
  }

  private look(row: Row): void {
    this.detailed = true;
    this.ask(row, this.made.details.view);
  }

  private ask(row: Row, view: View): void {
    if (!this.live?.past) this.live?.send({ ask: "picture", id: row.id, view });
    this.drawDetails();
  }

  private closeDetails(): void {
    this.detailed = false;
    this.drawDetails();
    this.made.table.node.focus();
  }

  private drawDetails(): void {
    const { live, say } = this;
    const shown = live?.past ?? live?.now;
    const rows = [...(shown?.rows ?? []), ...[...(live?.children.values() ?? [])].flat()];
    const row = this.detailed ? (rows.find(({ id }) => id === this.selected) ?? null) : null;
    const sharing = row?.storage == null ? [] : rows.filter((one) => one.storage === row.storage && one.id !== row.id);
    const said = live?.past ? say("There are no pictures of what was.", "过去的状态没有图。") : (live?.refusal?.[languageOf(say)] ?? "");
    this.made.details.show(row, live?.past ? null : (live?.picture ?? null), said, sharing, shown?.cells ?? [], live?.notebook ?? null);
  }

  private enlarge(picture: Extract<Message, { kind: "picture" }>, row: Row): void {
    const content = new Widget();
    content.addClass("pl-live-large");
    content.node.append(imageOf(picture.svg ?? "", picture.text[languageOf(this.say)]));
    const widget = new MainAreaWidget({ content });
    widget.title.label = `${row.name} · ${viewName(picture.view, this.say)}`;
    widget.title.icon = liveIcon;
    this.addToMain(widget);
  }

  /** The slider's last place is now; the others are the cells before. */
  private travel(): void {
    const { live } = this;
    const cells = live?.now?.cells ?? [];
    const cell = cells[Number(this.made.slider.value)];
    if (!live || !cell || Number(this.made.slider.value) === cells.length - 1) live?.backToNow();
    else live.send({ ask: "past", cell: cell.count });
  }

  private travelled(): void {
    const { live, say } = this;
    const cells = live?.now?.cells ?? [];
    this.made.slider.hidden = cells.length < 2;
    this.made.slider.max = String(Math.max(0, cells.length - 1));
    const past = live?.past ?? null;
    const at = past ? cells.findIndex(({ count }) => count === past.cell.count) : cells.length - 1;
    if (document.activeElement !== this.made.slider || !past) this.made.slider.value = String(at);
    const now = past ?? live?.now;
    this.made.slider.setAttribute("aria-valuetext", past ? `In [${past.cell.count}]` : say("now", "现在"));
    this.made.slider.title = now ? say(`after In [${now.cell.count}]`, `In [${now.cell.count}] 之后`) : "";
    this.made.banner.hidden = !past;
    this.made.banner.replaceChildren();
    if (!past) return;
    const back = h(
      "button",
      { type: "button", click: () => (live?.backToNow(), this.made.slider.focus()) },
      say("Back to now", "回到现在"),
    );
    this.made.banner.append(h("span", {}, say(`As it was after In [${past.cell.count}]`, `In [${past.cell.count}] 之后的样子`)), back);
  }
}

/** What the panel's icon says while it is hidden. */
export function badge(panel: LivePanel, warnings: Warning[], say: Say): void {
  const counted = warnings.filter(({ level }) => level !== "note");
  const failing = counted.some(({ level }) => level === "error");
  panel.title.className = counted.length ? `pl-live-badge ${failing ? "pl-live-failing" : ""}` : "";
  const name = say("Pitfall Lab: live tensors", "Pitfall Lab：实时张量");
  const many = counted.length === 1 ? say("1 warning", "1 条警告") : say(`${counted.length} warnings`, `${counted.length} 条警告`);
  panel.title.caption = counted.length ? `${name} (${many})` : name;
}
