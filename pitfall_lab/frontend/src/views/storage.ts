/** Storages as flat cells, and each tensor or array over them as a row of the cells it reads. */

import type { Model, State, View } from "../core/contract";
import { h } from "../core/dom";
import type { Brush, Slice, Store, Stroke } from "../core/wire";
import { at, frame, leftOut, measure, nothing, part, reveal, sent, shape, swatch, toggle, value } from "./draw";
import { glide } from "./motion";
import { playStrides, reads, type Strided } from "./strides";

type Redraw = (state: State, step: number) => void;

/** A memory of so many cells can still be played with. */
const MOST_CELLS = 36;

export const storage: View = {
  id: "storage",
  title: { en: "Storage", zh: "存储" },
  has: (scene) => sent(scene, "storage", (one) => one.storages.length),
  parts: (scene, story) => sent(scene, "storage", (one) => own(one.storages, story.slice).length % one.storages.length),
  mount(root, model) {
    const scene = part(model, "storage");
    if (!scene?.storages.length) return nothing(root, model.t("No tensor was made.", "没有产生张量。"));
    const box = frame(root, model.t("storages, scrollable", "存储，可滚动"));
    const blocks = new Map<string, Block>();
    const show = (stores: Store[]): void => {
      for (const store of stores) {
        const block = new Block(store, model);
        blocks.set(store.id, block);
        box.append(block.element);
      }
    };
    // What the finding is about stands in its order, from the first memory to the last.
    const wanted = own(scene.storages, model.slice);
    const first = wanted.length ? wanted : scene.storages.filter((store) => store.main);
    show(first);
    const rest = scene.storages.filter((store) => !first.includes(store));
    if (rest.length && !wanted.length)
      box.append(moreButton(model, rest.length, () => (guests.clear(), guest.replaceChildren(), show(rest.slice(0, 200)), update())));
    // What the current step touches and is not drawn above gets the last place: nothing else moves for it.
    const guest = h("div", {});
    box.append(guest);
    const guests = new Map<string, Block>();
    const invite = (state: State): void => {
      const event = model.trace.events[model.step];
      const labels = event ? [...event.results, ...event.operands.map((one) => one.label ?? "")] : [];
      const wanted = new Set([
        ...(event?.writes ?? []),
        ...labels.map((label) => state.tensors[label]?.storage ?? ""),
        model.storageOf(model.focus, state),
      ]);
      for (const [id, block] of guests) if (!wanted.has(id)) block.element.remove(), guests.delete(id);
      for (const store of rest) {
        if (!wanted.has(store.id) || blocks.has(store.id) || guests.has(store.id) || guests.size > 3) continue;
        const block = new Block(store, model);
        guests.set(store.id, block);
        guest.append(block.element);
      }
    };
    if (!wanted.length) leftOut(box, scene.left_out, model);
    const toy = h("div", {});
    const play = (): void => (start.remove(), playStrides(toy, smallView(first, model.step), model));
    const start = h("button", { class: "v-link", click: play }, model.t("play with strides", "试试别的步长"));
    box.append(start, toy);
    let seen = "";
    const all = (): Block[] => [...blocks.values(), ...guests.values()];
    // The room is known once the panel stands in the page; another width may have room for other lines of cells.
    const size = new ResizeObserver(() => {
      const state = model.stateAt(model.step);
      for (const block of all()) if (block.fit(box.clientWidth)) block.update(state, model.step);
    });
    size.observe(box);
    function update(): void {
      const state = model.stateAt(model.step);
      invite(state);
      if (box.clientWidth) for (const block of all()) block.fit(box.clientWidth);
      for (const block of all()) block.update(state, model.step);
      const event = model.trace.events[model.step];
      const wanted = model.storageOf(model.focus, state) || event?.writes[0] || state.tensors[event?.results[0] ?? ""]?.storage || "";
      const key = `${wanted} ${model.step}`;
      const block = blocks.get(wanted) ?? guests.get(wanted);
      if (block && key !== seen && !block.element.matches(":hover")) reveal(box, block.element, true);
      seen = key;
    }
    return { update, destroy: () => (size.disconnect(), root.replaceChildren()) };
  },
};

/** The memories that the finding is about. */
function own(stores: Store[], slice: Slice | null): Store[] {
  return (slice?.storages ?? []).flatMap((id) => stores.filter((store) => store.id === id));
}

/** In px: a letter of a cell, the room beside the letters and the least width, where there is room and where there is little; the room
 * for the names of the rows and around the table; a gap where cells are left out. */
const LETTER = 7.3;
const WIDE = { around: 14, least: 46 };
const TIGHT = { around: 7, least: 30 };
const HEAD = 76;
const HOLE = 20;

/** The last view that is small enough to be played with; a whole memory is none. */
function smallView(stores: Store[], step: number): Strided | null {
  const views = stores.flatMap((store) => store.brushes.slice(1).flatMap((brush) => at(brush.history, step) ?? []));
  const small = views
    .filter(({ shape: size }) => [1, 2].includes(size.length) && size.every((one) => one > 0 && one <= 6))
    .map(({ shape: size, stride, offset }) => ({ size, stride, offset }));
  return small.findLast((view) => view.stride.every((one) => one >= 0) && Math.max(...reads(view)) < MOST_CELLS) ?? null;
}

function moreButton(model: Model, count: number, go: () => void): HTMLElement {
  const button: HTMLElement = h(
    "button",
    { class: "v-link", click: () => (button.remove(), go()) },
    model.t(`show ${count} more storages`, `再显示 ${count} 个存储`),
  );
  return button;
}

/** One storage: a grid whose rows are the cells and, below, each tensor's indices. Cells keep their places at every step. */
class Block {
  readonly element: HTMLElement;
  #cells: HTMLElement[] = [];
  #rows: Redraw[] = [];
  #written = new Set<number>();
  readonly #detail: HTMLElement;
  readonly #title: string;
  #table: HTMLElement;
  /** So many cells are in a line, narrow or not. */
  #lines = "";
  /** The letters that the widest cell of each column holds at any step. */
  readonly #letters: number[];

  readonly #store: Store;
  readonly #model: Model;

  constructor(store: Store, model: Model) {
    this.#store = store;
    this.#model = model;
    const title = `${model.called(store.id)} · ${measure(store, model)}`;
    this.#title = title;
    this.#letters = store.columns.map((_, place) =>
      Math.max(
        ...store.values.map((known) => value(known.cells[place], store.dtype).length),
        ...store.brushes.flatMap((brush) => brush.history.map((stroke) => indices(stroke.cover?.[place]).length)),
      ),
    );
    this.#detail = h("div", { class: "v-detail", role: "status" });
    this.#table = h("div", {});
    const heading = h("div", { class: "v-title", click: () => (model.focus = store.id) }, swatch(store.id, model), title);
    this.element = h("section", { class: "v-block", style: `--v-hue:${model.hue(store.id)}` }, heading, this.#table, this.#detail);
    this.fit(0);
  }

  /** Lays the cells out in a box of that width (0: not known yet): beside one another, else narrower, else in lines. Whether that changed. */
  fit(width: number): boolean {
    const { columns } = this.#store;
    const gaps = columns.filter((column, place) => column !== (place ? (columns[place - 1] as number) + 1 : 0)).length + 1;
    const room = width - HEAD - gaps * HOLE;
    const widths = (look: typeof WIDE): number[] =>
      this.#letters.map((count) => Math.max(look.least, Math.min(count, 24) * LETTER + look.around));
    const sum = (all: number[]): number => all.reduce((one, other) => one + other, 0);
    const tight = width > 0 && sum(widths(WIDE)) > room;
    const wrap = tight && sum(widths(TIGHT)) > room;
    const most = wrap ? this.#perLine(Math.max(2, Math.floor(room / Math.max(...widths(TIGHT))))) : columns.length;
    const lines = `${most} ${tight}`;
    if (lines === this.#lines) return false;
    this.#lines = lines;
    const table = this.#grid(this.#title, most, tight ? TIGHT : WIDE);
    this.#table.replaceWith(table);
    this.#table = table;
    return true;
  }

  /** The rows of a matrix stay whole where they fit into a line. */
  #perLine(most: number): number {
    const row = this.#store.brushes[0]?.history[0]?.shape.at(-1) ?? 1;
    return row > 1 && row <= most ? most - (most % row) : most;
  }

  #grid(title: string, most: number, look: typeof WIDE): HTMLElement {
    const [store, model] = [this.#store, this.#model];
    this.#cells = [];
    this.#rows = [];
    const label = model.t(`${title}: cells, and the tensors that read them`, `${title}：单元，以及读取它们的张量`);
    const table = h("table", {
      class: "v-grid",
      role: "grid",
      label: label,
      keydown: (event: KeyboardEvent) => this.#key(event),
    });
    const places = store.columns.map((_, place) => place);
    for (let from = 0; from < Math.max(1, places.length); from += Math.max(1, most)) {
      const line = places.slice(from, from + most);
      const head = h("tr", {}, h("th", { scope: "col" }, model.t("cell", "单元")));
      const row = h("tr", {}, h("th", { scope: "row" }, model.t("value", "值")));
      this.#eachColumn(
        line,
        (column, place) => {
          head.append(h("th", { scope: "col" }, String(column)));
          const cell = this.#cell(place, "v-cell");
          cell.style.minWidth = `${Math.max(look.least, Math.min(this.#letters[place] ?? 0, 24) * LETTER + look.around) - 2}px`;
          this.#cells[place] = cell;
          row.append(cell);
        },
        () => (head.append(this.#hole("th")), row.append(this.#hole("td"))),
      );
      const read = (brush: Brush): boolean => line.some((place) => brush.history.some((stroke) => stroke.cover?.[place]?.length));
      const brushes = store.brushes.filter((brush) => !from || read(brush)).map((brush) => this.#brush(brush, line, from > 0, row));
      table.append(h(from ? "tbody" : "thead", from ? { class: "v-more" } : {}, head), h("tbody", {}, row), ...brushes);
    }
    toggle(table, "v-tight", look === TIGHT);
    const box = h("div", {}, table);
    leftOut(box, store.left_out, model);
    return box;
  }

  /** One cell that says who reads it; a double click or Enter writes to it. */
  #cell(place: number, kind: string, brush?: Brush): HTMLElement {
    const tell = (): void => this.#tell(place);
    const cell: HTMLElement = h("td", {
      class: kind,
      tabindex: "-1",
      click: tell,
      focus: tell,
      pointerenter: tell,
      dblclick: () => this.#write(cell, place, brush),
    });
    return cell;
  }

  /** The element of a tensor that stands at a cell: the row's own, else the first that reads it. */
  #reader(place: number, brush?: Brush): [Brush, string] | null {
    for (const one of brush ? [brush] : this.#store.brushes) {
      const stroke = at(one.history, this.#model.step);
      const index = stroke?.alive ? stroke.cover[place]?.[0] : undefined;
      if (index !== undefined) return [one, index];
    }
    return null;
  }

  /** Opens a field for a number in the cell. What is written goes to the live tensor; everyone who reads the cell shows it. */
  #write(cell: HTMLElement, place: number, brush?: Brush): void {
    const [model, store] = [this.#model, this.#store];
    const found = this.#reader(place, brush);
    if (!model.edit)
      return this.#say(
        model.t(
          "This is a recording and stays as it was; cells of show_storage(…) can be written to.",
          "这是录制的内容，不能修改；show_storage(…) 的单元可以写入。",
        ),
      );
    if (!found) return this.#say(model.t("No living tensor reads this cell.", "没有存活的张量读取这个单元。"));
    const [reader, index] = found;
    const element = index === "()" ? "[()]" : `[${index}]`;
    const label = `${model.called(reader.tensor)}${element} =`;
    const old = [...cell.childNodes];
    const close = (): void => (cell.replaceChildren(...old), cell.focus());
    const send = async (text: string): Promise<void> => {
      close();
      this.#say(`${label} ${text} …`);
      try {
        await model.edit?.(reader.tensor, index === "()" ? [] : index.split(",").map(Number), text);
      } catch (error) {
        this.#say(`✕ ${(error as Error).message}`);
      }
    };
    const key = (event: KeyboardEvent): void => {
      event.stopPropagation(); // a letter is a letter here
      if (event.key === "Enter") void send(input.value);
      else if (event.key === "Escape") close();
    };
    const now = at(store.values, model.step)?.cells[place];
    const input: HTMLInputElement = h("input", {
      class: "v-write",
      value: now === null || now === undefined ? "" : String(now),
      label: label,
      title: label,
      keydown: key,
      blur: () => input.isConnected && cell.replaceChildren(...old),
    });
    cell.replaceChildren(input);
    input.select();
    input.focus();
    this.#say(`${label} …`);
  }

  #say(text: string): void {
    this.#detail.replaceChildren(text);
  }

  /** The columns of one line, and the gaps between them. */
  #eachColumn(line: readonly number[], cell: (column: number, place: number) => void, gap: () => void): void {
    const { columns, size } = this.#store;
    for (const place of line) {
      const column = columns[place] as number;
      if (column !== (place ? (columns[place - 1] as number) + 1 : 0)) gap();
      cell(column, place);
    }
    const last = line.at(-1);
    if (last !== undefined && last === columns.length - 1 && columns[last] !== size - 1) gap();
  }

  #hole(tag: "th" | "td"): HTMLElement {
    return h(tag, { class: "v-hole", label: this.#model.t("cells left out", "省略的单元") }, "…");
  }

  /** A tensor over a line of cells: what it is called, and below it, in all of the room, its indices. `Double` badge: the same storage
   * under another counter than the first tensor's. In a `further` line its name is enough. */
  #brush(brush: Brush, line: readonly number[], further: boolean, values: HTMLElement): HTMLElement {
    const [model, store] = [this.#model, this.#store];
    const badge = h("span", { class: "v-badge" });
    const called = h("span", { class: "v-name" });
    const form = h("span", { class: "v-dim" });
    const look = (): void => void (model.focus = brush.tensor);
    const note = h("span", { class: "v-dim" });
    const cells = h("tr", {}, h("td", { class: "v-aside" }, note));
    const row = h(
      "tbody",
      {},
      h(
        "tr",
        {},
        h(
          "th",
          { class: "v-own", scope: "rowgroup", colspan: 99, click: look, pointerenter: look },
          h("div", {}, called, ...(further ? [] : [" ", badge, " ", form])),
        ),
      ),
      cells,
    );
    const places: HTMLElement[] = [];
    this.#eachColumn(
      line,
      (_, place) => {
        cells.append((places[place] = this.#cell(place, "", brush)));
      },
      () => cells.append(h("td", { class: "v-hole" }, "")),
    );
    // Beside an array cells count from its start; a tensor's own storage may begin behind it, and its offset counts from there.
    const beside = store.brushes.some((one) => one.kind === "array");
    const begins = (cell: number): string =>
      beside ? model.t(`from cell ${cell}`, `从单元 ${cell} 起`) : `${model.t("offset", "偏移")} ${cell}`;
    let drawn: Stroke | null = null;
    let was = true;
    this.#rows.push((state, step) => {
      const now = at(brush.history, step);
      const there = !!now && !now.gone;
      if (there && !was && now.step === step && brush !== store.brushes[0]) glide(cells, values);
      was = there;
      const stroke = there ? now : (brush.history[0] as Stroke); // not there yet: it already takes its room
      toggle(row, "v-away", !there);
      toggle(row, "v-dead", there && !stroke.alive);
      called.textContent = model.called(brush.tensor);
      const version = stroke.counter ? state.counters[stroke.counter] : undefined;
      badge.textContent = stroke.counter ? `${model.labelled ? `${stroke.counter}·` : ""}v${version ?? "?"}` : "NumPy";
      toggle(badge, "v-array", !stroke.counter);
      toggle(badge, "v-double", !!stroke.counter && stroke.counter !== store.counters[0]);
      form.textContent = `${shape(stroke.shape)} ${model.t("stride", "步长")} ${shape(stroke.stride)}${stroke.offset ? ` ${begins(stroke.offset)}` : ""}${stroke.alive ? "" : model.t(" · gone", " · 已释放")}`;
      note.textContent = unseen(stroke) ? model.t("reads cells that are not drawn here", "读取的单元此处未画出") : "";
      toggle(row, "v-hit", model.focus === brush.tensor);
      places.forEach((cell, place) =>
        toggle(cell, "v-written", this.#written.has(place) && there && stroke.alive && !!stroke.cover[place]?.length),
      );
      if (stroke === drawn) return;
      drawn = stroke;
      paint(places, stroke.cover);
    });
    return row;
  }

  update(state: State, step: number): void {
    const [store, model] = [this.#store, this.#model];
    toggle(this.element, "v-away", step < store.born);
    toggle(this.element, "v-ghosted", store.died !== null && step >= store.died);
    toggle(this.element, "v-focus", model.focus === store.id || model.storageOf(model.focus, state) === store.id);
    const values = at(store.values, step)?.cells ?? [];
    this.#written = new Set(store.writes.find((write) => write.step === step)?.cells);
    this.#cells.forEach((cell, place) => {
      cell.textContent = value(values[place], store.dtype);
      toggle(cell, "v-written", this.#written.has(place));
    });
    for (const redraw of this.#rows) redraw(state, step);
  }

  /** Who reads this cell by which index, and which steps wrote it. */
  #tell(place: number): void {
    const [store, model] = [this.#store, this.#model];
    const readers = store.brushes.flatMap((brush) => {
      const stroke = at(brush.history, model.step);
      const found = stroke && !stroke.gone ? (stroke.cover[place] ?? []) : [];
      const called = model.called(brush.tensor);
      return found.map((index) => (index === "()" ? called : `${called}[${index}]`));
    });
    const steps = store.writes.filter((write) => write.cells.includes(place) && write.step <= model.step).slice(-6);
    const said = readers.length ? readers.slice(0, 10).join(", ") : model.t("no tensor", "没有张量");
    const parts: (Node | string)[] = [
      model.t(`Cell ${store.columns[place]}: read by ${said}. `, `单元 ${store.columns[place]}：读取者 ${said}。`),
    ];
    if (steps.length) parts.push(model.t("Written in ", "写入于 "));
    for (const write of steps) {
      const text = write.line
        ? model.t(`line ${write.line}`, `第 ${write.line} 行`)
        : model.t(`step ${write.step + 1}`, `第 ${write.step + 1} 步`);
      parts.push(h("button", { tabindex: "-1", click: () => (model.step = write.step) }, text), " ");
    }
    this.#detail.replaceChildren(...parts);
    model.focus = store.id;
  }

  /** Arrows walk the grid once a cell has the focus; Escape goes back to the Explorer's own keys. */
  #key(event: KeyboardEvent): void {
    const here = event.target as HTMLElement;
    if (here.tagName === "TD" && (event.key === "Enter" || event.key === "F2")) {
      here.dispatchEvent(new MouseEvent("dblclick"));
      event.preventDefault();
      return event.stopPropagation();
    }
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!move || here.tagName !== "TD") return;
    const rows = [...this.#table.querySelectorAll("tbody:not(.v-away)")].map((row) => [
      ...row.querySelectorAll<HTMLElement>("td[tabindex]"),
    ]);
    const r = rows.findIndex((row) => row.includes(here));
    const next = rows[r + (move[0] as number)]?.[(rows[r]?.indexOf(here) ?? 0) + (move[1] as number)];
    if (!next && move[0]) return; // out of the grid, to the next control
    next?.focus();
    event.preventDefault();
    event.stopPropagation();
  }
}

/** Whether a tensor reads cells, and none of those that are drawn. */
function unseen({ shape: size, cover }: Stroke): boolean {
  return cover.length > 0 && !size.includes(0) && cover.every((names) => !names.length);
}

/** The indices by which a tensor reads a cell: as many as fit into a narrow one, then how many more. */
function indices(names: string[] = []): string {
  const all = names.join(" ");
  return all.length < 8 || !names[1] ? all : `${names[0]} +${names.length - 1}`;
}

/** The indices over the cells a tensor reads, and a dashed line over the gaps between them. */
function paint(places: HTMLElement[], cover: string[][]): void {
  const covered = cover.flatMap((names, place) => (names.length ? [place] : [])); // also those of other lines: a gap may begin there
  const [first, last] = [covered[0] ?? 1, covered[covered.length - 1] ?? 0];
  places.forEach((cell, place) => {
    const text = indices(cover[place]);
    toggle(cell, "v-brush", text !== "");
    toggle(cell, "v-gap", !text && place > first && place < last);
    cell.textContent = text;
  });
}
