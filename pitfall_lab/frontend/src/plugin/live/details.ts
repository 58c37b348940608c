/** What is known of the selected row, and its picture. */

import type { NotebookPanel } from "@jupyterlab/notebook";
import { type Child, h } from "../../core/dom";
import { prose } from "../../core/prose";
import { languageOf, type Say } from "../words";
import { cellButton } from "./cells";
import { type CellRef, type Message, type Row, VIEWS, type View } from "./protocol";
import { bytesText, gradText, shapeText, versionText } from "./rows";

type Drawn = Extract<Message, { kind: "picture" }>;

/** Drawn in an <img>, where nothing of it can run or be fetched. */
export function imageOf(svg: string, words: string): HTMLImageElement {
  return h("img", { src: `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`, alt: words });
}

export function viewName(view: View, say: Say): string {
  if (view === "storage") return say("Memory", "内存");
  return view === "graph" ? say("Graph", "计算图") : say("What keeps it", "谁在持有它");
}

export class Details {
  readonly node = h("section", { class: "pl-live-details", tabindex: -1 });
  view: View = "storage";
  private row: Row | null = null;

  constructor(
    private readonly ask: (row: Row, view: View) => void,
    private readonly enlarge: (picture: Drawn, row: Row) => void,
    private readonly close: () => void,
    private readonly say: Say,
  ) {
    this.node.setAttribute("aria-label", say("The selected row", "选中的行"));
    this.node.addEventListener("keydown", (event) => {
      if (event.key === "Escape") close();
    });
  }

  show(row: Row | null, picture: Drawn | null, refusal: string, sharing: Row[], cells: CellRef[], notebook: NotebookPanel | null): void {
    this.row = row;
    this.node.hidden = !row;
    if (!row || !notebook) return this.node.replaceChildren();
    const drawn = picture?.id === row.id && picture.view === this.view ? picture : null;
    this.node.replaceChildren(this.head(row), this.facts(row, sharing, cells, notebook), this.views(), this.picture(drawn, refusal));
  }

  private head(row: Row): HTMLElement {
    const { say } = this;
    const away = h(
      "button",
      { class: "pl-live-close", type: "button", label: say("Close", "关闭"), title: say("Close", "关闭"), click: () => this.close() },
      "×",
    );
    return h("div", { class: "pl-live-about" }, h("h3", { title: row.name }, row.name), h("span", {}, row.type), away);
  }

  private facts(row: Row, sharing: Row[], cells: CellRef[], notebook: NotebookPanel): HTMLElement {
    const { say } = this;
    const list = h("dl");
    const add = (name: string, ...values: Child[]): void => {
      if (values.some(Boolean)) list.append(h("dt", {}, name), h("dd", {}, ...values));
    };
    if (row.shape) add(say("Shape", "形状"), [shapeText(row), row.dtype, row.device].filter(Boolean).join(" "));
    add(say("Size", "大小"), bytesText(row.bytes));
    add(say("Version", "版本"), versionText(row));
    add(say("Gradient", "梯度"), gradText(row, say));
    if (row.detail) this.parameter(row.detail, add);
    add(
      say("Shares with", "共用内存"),
      sharing
        .map(({ name }) => name)
        .slice(0, 8)
        .join(", "),
    );
    for (const { node, version, cell, line } of row.saved_by.slice(0, 6)) {
      const ref = cell === null ? null : (cells.find(({ count }) => count === cell) ?? { count: cell, id: "" });
      add(say("Saved by", "被谁保存"), `${node} ${say("at", "于")} v${version} `, ref && cellButton(notebook, { ...ref, line }, say));
    }
    return list;
  }

  private parameter(detail: NonNullable<Row["detail"]>, add: (name: string, ...values: Child[]) => void): void {
    const { say } = this;
    const few = (value: number | null): string => (value === null ? "" : String(Number(value.toPrecision(3))));
    add(say("Norm", "范数"), few(detail.norm));
    add(say("Norm of .grad", ".grad 的范数"), few(detail.grad_norm));
    add(say("Update ratio", "更新比"), few(detail.ratio));
    add(say("Optimizer", "优化器"), detail.optimizer ?? say("none holds it", "没有优化器持有它"));
  }

  private views(): HTMLElement {
    const button = (view: View): HTMLElement => {
      const click = (): void => {
        this.view = view;
        if (this.row) this.ask(this.row, view);
      };
      return h(
        "button",
        { type: "button", "aria-pressed": String(view === this.view), "data-view": view, click },
        viewName(view, this.say),
      );
    };
    return h("div", { class: "pl-live-views", role: "group", label: this.say("Picture", "图") }, ...VIEWS.map(button));
  }

  private picture(drawn: Drawn | null, refusal: string): HTMLElement {
    const { row } = this;
    const words = drawn?.text[languageOf(this.say)] ?? refusal;
    const shown = h("div", { class: "pl-live-picture" });
    if (drawn?.svg && row) {
      const open = h(
        "button",
        { class: "pl-live-cell", type: "button", click: () => this.enlarge(drawn, row) },
        this.say("Open in a tab", "在标签页中打开"),
      );
      shown.append(
        h("div", { class: "pl-live-sheet", tabindex: 0, group: viewName(drawn.view, this.say) }, imageOf(drawn.svg, words)),
        open,
      );
    }
    if (words)
      shown.append(
        drawn?.svg
          ? h("details", {}, h("summary", {}, this.say("The same in words", "文字版")), h("p", {}, words))
          : h("p", {}, ...prose(words)),
      );
    return shown;
  }
}
