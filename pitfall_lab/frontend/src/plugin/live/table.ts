/** The list of rows: only those in sight are in the page, so ten thousand cost as much as forty. A tree grid to the keyboard and to assistive tools. */

import { type Child, h } from "../../core/dom";
import { hue, inkOn } from "../../core/palette";
import type { Say } from "../words";
import type { Row } from "./protocol";
import { bytesText, COLUMNS, type Column, gradText, gradWord, type Line, savedText, shapeText, versionText, type Wanted } from "./rows";

const HEIGHT = 26;
const AROUND = 6;

export interface Acts {
  sort: (column: Column) => void;
  fold: (row: Row, open: boolean) => void;
  select: (row: Row) => void;
  /** Asked for by a click or Enter: the row's picture. */
  look: (row: Row) => void;
  /** The last of the lines is in sight. */
  end: () => void;
}

export class Table {
  readonly node: HTMLElement;
  private readonly head = h("div", { class: "pl-live-row pl-live-head", role: "row", "aria-rowindex": 1 });
  private readonly space = h("div", { class: "pl-live-space", role: "rowgroup" });
  private readonly body: HTMLElement;
  private lines: Line[] = [];
  private selected = "";
  private storage: number | null = null;
  private drawn = "";

  constructor(
    private readonly acts: Acts,
    private readonly say: Say,
  ) {
    this.body = h("div", { class: "pl-live-body", scroll: () => this.draw() }, this.space);
    const label = say("Tensors, arrays, modules and optimizers", "张量、数组、模块与优化器");
    const key = (event: KeyboardEvent): void => this.key(event);
    this.node = h(
      "div",
      { class: "pl-live-table", role: "treegrid", tabindex: 0, label, keydown: key },
      h("div", { role: "rowgroup" }, this.head),
      this.body,
    );
    new ResizeObserver(() => this.draw()).observe(this.body);
  }

  /** Shows these lines. The selected row stays selected as long as it is among them. */
  show(lines: Line[], wanted: Wanted): void {
    this.lines = lines;
    this.drawn = "";
    this.node.setAttribute("aria-rowcount", String(lines.length + 1));
    this.space.style.height = `${lines.length * HEIGHT}px`;
    this.storage = lines[this.at()]?.row.storage ?? null;
    this.titles(wanted);
    this.draw();
  }

  /** The row, in sight; nothing when it is filtered away. */
  reveal(id: string): void {
    const index = this.lines.findIndex(({ row }) => row.id === id);
    if (index >= 0) this.select(index);
  }

  private at(): number {
    return this.lines.findIndex(({ row }) => row.id === this.selected);
  }

  private titles(wanted: Wanted): void {
    const { say } = this;
    const words: Record<Column, string> = {
      name: say("Name", "名称"),
      shape: say("Shape", "形状"),
      state: say("State", "状态"),
      dtype: "dtype",
      bytes: say("Size", "大小"),
      device: say("Device", "设备"),
      saved: say("Saved by", "被谁保存"),
    };
    const title = (column: Column): HTMLElement => {
      const sorted = wanted.column === column;
      const arrow = sorted ? h("span", { "aria-hidden": "true" }, wanted.down ? " ↑" : " ↓") : null;
      const button = h(
        "button",
        { type: "button", tabindex: -1, title: say("Sort by this", "按此排序"), click: () => this.acts.sort(column) },
        words[column],
        arrow,
      );
      return h(
        "div",
        { class: `pl-live-${column}`, role: "columnheader", "aria-sort": sorted ? (wanted.down ? "descending" : "ascending") : "none" },
        button,
      );
    };
    this.head.replaceChildren(...COLUMNS.map(title));
  }

  private draw(): void {
    const { scrollTop, clientHeight, offsetWidth, clientWidth } = this.body;
    this.head.style.paddingInlineEnd = `${offsetWidth - clientWidth + 6}px`;
    const first = Math.max(0, Math.floor(scrollTop / HEIGHT) - AROUND);
    const last = Math.min(this.lines.length, Math.ceil((scrollTop + clientHeight) / HEIGHT) + AROUND);
    const key = `${first} ${last} ${this.selected}`;
    if (key === this.drawn) return;
    this.drawn = key;
    if (last === this.lines.length && last > 0 && scrollTop > 0) this.acts.end();
    this.space.replaceChildren(...this.lines.slice(first, last).map((line, index) => this.line(line, first + index)));
    const selected = this.at();
    if (selected >= first && selected < last) this.node.setAttribute("aria-activedescendant", rowId(selected));
    else this.node.removeAttribute("aria-activedescendant");
  }

  private line(line: Line, index: number): HTMLElement {
    const { row } = line;
    const selected = row.id === this.selected;
    const classes = [
      "pl-live-row",
      selected && "pl-live-selected",
      line.level && `pl-live-${line.level}`,
      row.changed && "pl-live-changed",
    ];
    const tied = !selected && this.storage !== null && row.storage === this.storage;
    const attributes = {
      id: rowId(index),
      class: [...classes, tied && "pl-live-tied"].filter(Boolean).join(" "),
      role: "row",
      "aria-rowindex": index + 2,
      "aria-level": line.depth + 1,
      "aria-selected": String(selected),
      "aria-expanded": row.children > 0 && String(line.open),
      "data-row": row.id,
      style: `top:${index * HEIGHT}px`,
      click: () => (this.select(index), this.acts.look(row)),
    };
    return h("div", attributes, ...COLUMNS.map((column) => this.cell(column, line)));
  }

  private cell(column: Column, line: Line): HTMLElement {
    const { row } = line;
    const [content, title] = this.content(column, line);
    const all = [row.name, shapeText(row)].includes(title) ? title : title || null;
    return h("div", { class: `pl-live-${column}`, role: "gridcell", ...(all ? { title: all } : {}) }, ...content);
  }

  /** What stands in a column, and what is said about it where it is pointed at. */
  private content(column: Column, line: Line): [Child[], string] {
    const { row } = line;
    const { say } = this;
    switch (column) {
      case "name":
        return [[this.handle(line), this.swatch(row), ...called(line.name), this.mark(line)], `${row.name} · ${row.type}`];
      case "shape":
        return [[shapeText(row)], shapeText(row)];
      case "state": {
        const moved = row.version && row.version[0] !== row.version[1];
        const version = h("span", { class: moved ? "pl-live-moved" : "" }, versionText(row));
        const said = moved ? say("written by the last cell", "被上一个单元格写入") : "";
        const has = row.has_grad ? h("span", { class: "pl-live-grad pl-live-has" }, ".grad") : null;
        return [
          [version, h("span", { class: "pl-live-grad" }, gradWord(row, say)), has],
          [versionText(row), said, gradText(row, say)].filter(Boolean).join(" · "),
        ];
      }
      case "dtype":
        return [[row.dtype], row.dtype];
      case "bytes":
        return [[bytesText(row.bytes)], row.bytes === null ? "" : `${row.bytes.toLocaleString("en")} B`];
      case "device":
        return [[row.device], row.device];
      default:
        return [[savedText(row)], row.saved_by.map(({ node, version }) => `${node} v${version}`).join(", ")];
    }
  }

  private handle({ row, depth, open }: Line): HTMLElement {
    const style = `margin-inline-start:${depth * 12}px`;
    if (row.children === 0) return h("span", { class: "pl-live-handle", style });
    const click = (event: Event): void => {
      event.stopPropagation();
      this.acts.fold(row, !open);
    };
    return h("span", { class: "pl-live-handle pl-live-folds", style, "aria-hidden": "true", click }, open ? "▾" : "▸");
  }

  /** Rows with the same number look at the same memory. */
  private swatch({ storage }: Row): HTMLElement | null {
    if (storage === null) return null;
    const colour = hue(`S${storage}`);
    const title = this.say("Shares its memory with the other rows of this number", "与其他同号的行共用内存");
    return h("span", { class: "pl-live-swatch", title, style: `background:${colour};color:${inkOn(colour)}` }, String(storage));
  }

  /** What is inside a row is looked at only when it is unfolded: that it is new cannot be said. */
  private mark({ row, depth }: Line): HTMLElement | null {
    const fresh = row.new && depth === 0;
    if (!fresh && !row.changed) return null;
    const title = fresh
      ? this.say("new since the last cell", "上一个单元格新建")
      : this.say("changed by the last cell", "上一个单元格改变");
    return h("span", { class: "pl-live-mark", role: "img", label: title, title });
  }

  private select(index: number): void {
    const line = this.lines[index];
    if (!line) return;
    this.selected = line.row.id;
    this.storage = line.row.storage;
    const top = index * HEIGHT;
    const { scrollTop, clientHeight } = this.body;
    if (top < scrollTop) this.body.scrollTop = top;
    else if (top + HEIGHT > scrollTop + clientHeight) this.body.scrollTop = top + HEIGHT - clientHeight;
    this.draw();
    this.acts.select(line.row);
  }

  private key(event: KeyboardEvent): void {
    if (event.target !== this.node || event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.at();
    const line = this.lines[at];
    const page = Math.max(1, Math.floor(this.body.clientHeight / HEIGHT) - 1);
    const last = this.lines.length - 1;
    const moves: Record<string, number> = {
      ArrowDown: at + 1,
      ArrowUp: at - 1,
      PageDown: at + page,
      PageUp: at - page,
      Home: 0,
      End: last,
    };
    const to = moves[event.key];
    if (to !== undefined) this.select(Math.max(0, Math.min(last, to)));
    else if (!line) return;
    else if (event.key === "Enter" || event.key === " ") this.acts.look(line.row);
    else if (event.key === "ArrowRight" && line.row.children > 0 && !line.open) this.acts.fold(line.row, true);
    else if (event.key === "ArrowLeft" && line.open) this.acts.fold(line.row, false);
    else if (event.key === "ArrowLeft" && line.depth > 0)
      this.select(this.lines.slice(0, at).findLastIndex(({ depth }) => depth < line.depth));
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

/** A long name keeps its end: `blocks.0.att… .weight`. */
function called(name: string): HTMLElement[] {
  const cut = name.length > 12 ? name.lastIndexOf(".") : -1;
  return cut > 0 ? [h("span", {}, name.slice(0, cut)), h("span", { class: "pl-live-end" }, name.slice(cut))] : [h("span", {}, name)];
}

function rowId(index: number): string {
  return `pl-live-row-${index}`;
}
