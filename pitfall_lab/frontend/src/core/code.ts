/**
 * The Code view: the program with the exact expression of the current operation, the diagnosis in its lines, what each line
 * made beside it, and every expression and name connected to its tensor.
 *
 * Each line is cut once, at the borders of all its expressions and tokens. A step then only changes classes on the
 * few pieces that it concerns. Columns are UTF-16 units throughout, so Chinese text and emoji shift nothing.
 */

import type { Span, TraceEvent } from "./contract";
import { h } from "./dom";
import { offered } from "./fixes";
import { mark } from "./marks";
import type { ExplorerModel } from "./model";
import { brief, known, shape } from "./numbers";
import { numberOf } from "./picture";
import { prose } from "./prose";
import { type Token, tokens } from "./python";
import type { Role } from "./story";
import { ends } from "./turns";
import type { TensorState } from "./wire";
import { say } from "./words";
import { isWhole } from "./wrap";

interface Piece {
  start: number;
  end: number;
  name: string;
  element: HTMLElement;
}

interface Line {
  row: HTMLElement;
  /** What the line made, as it is now. */
  hint: HTMLElement;
  said: string;
  pieces: Piece[];
  events: TraceEvent[];
  /** Those of them whose results the line has. */
  made: TraceEvent[];
  marks: { role: Role; step: number | null; element: SVGElement }[];
  /** The function that the line is in, as a scope of the trace names it; empty outside of all. */
  within: string;
}

/** Lines between two lines of the diagnosis that are out of sight until the reader opens them. */
interface Fold {
  /** Positions of the first and the last of them. */
  from: number;
  to: number;
  row: HTMLElement;
  /** The code of the current step's line, if it is one of them. */
  now: HTMLElement;
}

/** The height of the row that stands for folded lines, in px. */
const FOLD = 28;
const LINE_LIMIT = 3000;
/** The letters of a number as `brief` writes it. */
const NUMBER = 8;
/** The letters that two different shapes beside a line may take. */
const SHAPES = 28;

/** For each line the function around it: `GPT.forward`. A definition's own line is outside. */
function functions(texts: string[]): string[] {
  const open: { deep: number; name: string; kind: string }[] = [];
  return texts.map((text) => {
    const deep = /^\s*/.exec(text)?.[0].length ?? 0;
    if (/^\s*[^\s#)\]}]/.test(text)) while (open.length && deep <= (open.at(-1)?.deep ?? 0)) open.pop();
    const within = open.at(-1)?.kind === "class" ? "" : open.map((one) => one.name).join(".");
    const [, kind, name] = /^\s*(?:async\s+)?(def|class)\s+(\w+)/.exec(text) ?? [];
    if (kind && name) open.push({ deep, name, kind });
    return within;
  });
}

/** How many letters the value beside a line needs at any step: its shapes, or one number. The code leaves them free, so nothing moves. */
function room(events: TraceEvent[], shapes: Map<string, number[]>): number {
  const made = events.map(({ results }) => results.flatMap((label) => [shapes.get(label) ?? []]));
  return Math.max(0, ...made.map((all) => shapesText(all).length || (all.length ? NUMBER : 0)));
}

/** The shapes of what a call returned: `(3,)`, `4 × (6,)`, `(1, 10, 12), 2 × (1, 1, 12)`; empty for a single number. */
function shapesText(all: readonly (readonly number[])[]): string {
  if (all.length === 1) return all[0]?.length ? shape(all[0]) : "";
  const runs: [times: number, text: string][] = [];
  for (const one of all) {
    const text = shape(one);
    const last = runs.at(-1);
    if (last?.[1] === text) last[0] += 1;
    else runs.push([1, text]);
  }
  const said = runs.map(([times, text]) => (times > 1 ? `${times} × ${text}` : text));
  const [first, second] = [said[0] ?? "", said.slice(0, 2).join(", ")];
  return runs.length < 2 ? first : runs.length === 2 && second.length <= SHAPES ? second : `${first}, …`;
}

/** Whether the event happened inside of a call that makes no tensor of it: the line throws its value away, as `optimizer.step()`, or it is a
 * dictionary of tensors, as `model.state_dict()`. */
function discarded(event: TraceEvent, line: string): boolean {
  const { span, op } = event;
  if (span && /\bstate_dict\([^()]*\)$/.test(line.slice(...span.utf16))) return true;
  if (!span || span.end_line !== span.line || line.trim() !== line.slice(...span.utf16)) return false;
  const plain = (name: string): string => name.replace(/^_+|_+$/g, "").toLowerCase();
  const called = /^[\w.[\]]*?(\w+)\(/.exec(line.trim())?.[1];
  return called !== undefined && plain(called) !== plain(op.split(".").pop() ?? "");
}

/** Less what a module's constructor made: what `layer = nn.Linear(3, 2)` names is no tensor, and neither its weight nor its bias. */
function withoutModules(events: TraceEvent[], line: string): TraceEvent[] {
  if (line.includes("init.")) return events;
  return events.slice(events.findLastIndex(({ op }) => op.startsWith("torch.nn.init.")) + 1);
}

/** Whether an expression is a part of another one. */
function isPart(one: Span | null, other: Span | null): boolean {
  if (!one || !other || ends(one) === ends(other)) return false;
  const begins = other.line < one.line || (other.line === one.line && other.utf16[0] <= one.utf16[0]);
  return begins && (other.end_line > one.end_line || (other.end_line === one.end_line && other.utf16[1] >= one.utf16[1]));
}

/** The shape that each tensor began with; what is written in place keeps it. */
function shapesOf(events: TraceEvent[]): Map<string, number[]> {
  const found = new Map<string, number[]>();
  for (const { effects } of events)
    for (const [path, value] of effects) {
      const size = path.startsWith("tensors.") && (value as TensorState | null)?.shape;
      if (size && !found.has(path.slice(8))) found.set(path.slice(8), size);
    }
  return found;
}

/** The last of the events of a line, in order, that had happened after `step` and made something. */
function lastBefore(events: TraceEvent[], step: number): TraceEvent | undefined {
  return events.findLast((event) => event.step <= step && event.results.length > 0 && !event.error);
}

export class CodeView {
  #source = -1;
  #lines: Line[] = [];
  #lit: HTMLElement[] = [];
  #folds: Fold[] = [];
  #pinned = "";
  #revealed = false;
  #opened = false;
  /** The step and the size of the view when it opened; in another size it is opened anew until the reader has done anything. */
  readonly #begun: number;
  #size = "";
  readonly #resized = new ResizeObserver(() => this.#resize());
  readonly #crumbs = h("div", { class: "pl-crumbs" });
  readonly #box = h("div", { class: "pl-code", role: "group", tabindex: "-1" });

  readonly #root: HTMLElement;
  readonly #model: ExplorerModel;
  readonly #shapes: Map<string, number[]>;

  constructor(root: HTMLElement, model: ExplorerModel) {
    this.#root = root;
    this.#model = model;
    this.#begun = model.step;
    this.#shapes = shapesOf(model.trace.events);
    root.append(this.#crumbs, this.#box);
    this.#box.setAttribute("aria-label", model.t("Source code", "源代码"));
    this.#box.addEventListener("pointerenter", () => (this.#pinned = model.focus));
    this.#box.addEventListener("pointermove", (event) => this.#hover(event));
    this.#box.addEventListener("pointerleave", () => this.#leave());
    this.#box.addEventListener("click", (event) => this.#click(event));
    for (const kind of ["pointerdown", "wheel", "keydown"])
      this.#box.addEventListener(kind, () => this.#resized.disconnect(), { passive: true });
    this.update();
    this.#resized.observe(this.#box);
  }

  /** The page gives the view its size only after it was drawn, and once more when the fixes come in. */
  #resize(): void {
    if (this.#model.step !== this.#begun) return this.#resized.disconnect();
    if (!this.#box.clientHeight || this.#measured === this.#size) return;
    for (const fold of this.#folds) this.#unfold(fold);
    this.#revealed = this.#opened = false;
    this.update();
  }

  get #measured(): string {
    return `${this.#box.clientWidth} × ${this.#box.clientHeight}`;
  }

  destroy(): void {
    this.#resized.disconnect();
    this.#root.replaceChildren();
  }

  update(): void {
    const event = this.#model.event;
    const wanted = this.#spanOf(event)?.source ?? Math.max(0, this.#source);
    if (wanted !== this.#source) this.#open(wanted);
    for (const element of this.#lit) element.classList.remove("pl-now", "pl-now-row", "pl-origin", "pl-same");
    this.#lit = [];
    for (const { now } of this.#folds) now.textContent = "";
    this.#lightFocus();
    if (event?.kind === "node") this.#light(this.#bornSpan(event), "pl-origin");
    const ofStory = this.#rowOfStory(event);
    if (ofStory) this.#add(ofStory, "pl-now-row");
    const row = ofStory ?? this.#light(this.#spanOf(event), "pl-now");
    this.#updateMarks();
    this.#updateHints();
    this.#updateCrumbs(event);
    const noted = this.#opened ? null : this.#box.querySelector<HTMLElement>(".pl-line:has(.pl-note)");
    const place = row ?? noted;
    if (place) this.#reveal(place);
  }

  /**
   * The line that the story names at this step, where the step's call is on another one: `scheduler.step()` calls nothing of
   * torch, so the story goes to a call near it.
   */
  #rowOfStory(event: TraceEvent | null): HTMLElement | null {
    const span = this.#spanOf(event);
    const beat = this.#model.story?.beats.find(
      ({ step, line, source }) => step === this.#model.step && line !== null && (source ?? span?.source ?? 0) === this.#source,
    );
    if (!beat?.line || (span && span.line <= beat.line && beat.line <= span.end_line)) return null;
    return this.#lines[beat.line - 1]?.row ?? null;
  }

  /** Which file, inside which calls, and for the how manyth time: a line of a loop runs often. */
  #updateCrumbs(event: TraceEvent | null): void {
    const { sources } = this.#model.trace;
    const name = sources.length > 1 || !event ? (sources[this.#source]?.name ?? "") : "";
    const calls = (event?.scope ?? []).filter((one) => !one.includes("<"));
    const crumbs = [name, ...calls].filter(Boolean).map((one) => h("span", {}, one));
    const turn = event && !this.#rowOfStory(event) ? this.#model.turns.say(event) : "";
    this.#crumbs.replaceChildren(...crumbs, turn && h("span", { class: "pl-turn" }, turn));
  }

  /** Beside each line what it made last, as it is now: its shape, and its numbers when they are few. */
  #updateHints(): void {
    const { step } = this.#model;
    const state = this.#model.stateAt(step);
    for (const line of this.#lines) {
      const made = lastBefore(line.made, step);
      const all = (made?.results ?? []).flatMap((label) => state.tensors[label] ?? []);
      const tensor = all.length === 1 ? all[0] : undefined;
      const cells = tensor?.storage ? state.storages[tensor.storage]?.cells : undefined;
      const size = (tensor?.shape ?? []).reduce((all, one) => all * one, 1);
      const numbers =
        tensor && cells && Array.isArray(cells) && size <= 4 && cells.length === size
          ? known(cells, 4)
              .map((one) => (one ? brief(one[1], tensor.dtype) : "…"))
              .join(", ")
          : "";
      const size_ = shapesText(all.map((one) => one.shape));
      const listed = size_ && numbers ? `[${numbers}]` : numbers;
      const first = numbers && made && tensor?.storage ? this.#model.stateAt(made.step).storages[tensor.storage]?.cells : cells;
      // What the line made had other numbers if another line has written into it since.
      const values = JSON.stringify(first) === JSON.stringify(cells) ? listed : `${this.#model.t("now", "现为")} ${listed}`;
      const said = `${size_} ${values}`;
      if (said === line.said) continue;
      line.said = said;
      // Where both do not fit, the second one wraps out of sight: neither is ever cut.
      line.hint.replaceChildren(...[size_, values].filter(Boolean).map((text) => h("span", {}, text)));
    }
  }

  /** A part of a composite may have no place of its own: then its parent's is shown. */
  #spanOf(event: TraceEvent | null): Span | null {
    let one = event;
    for (let depth = 0; one && !one.span && one.parent !== null && depth < 50; depth += 1)
      one = this.#model.trace.events[one.parent] ?? null;
    return one?.span ?? null;
  }

  /** Where the forward operation stands that made the node which runs now. */
  #bornSpan(event: TraceEvent): Span | null {
    const path = event.effects.find(([one]) => one.startsWith("nodes."))?.[0] ?? "";
    const node = this.#model.stateAt(this.#model.step).nodes[path.split(".")[1] ?? ""];
    return node ? this.#spanOf(this.#model.trace.events[node.born] ?? null) : null;
  }

  #open(source: number): void {
    this.#source = source;
    const { sources, events } = this.#model.trace;
    const all = (sources[source]?.text ?? "").split(/\r\n|\r|\n/);
    if (all[all.length - 1] === "") all.pop();
    const shown = all.slice(0, LINE_LIMIT);
    const coloured = tokens(shown);
    const spans: TraceEvent[][] = shown.map(() => []);
    for (const event of events) {
      if (event.span?.source !== source || event.kind === "node") continue;
      // What a loop's head calls to get the next item is placed at the whole statement; it is no part of the body's lines.
      const head = /^(async\s+)?for\b/.test((shown[event.span.line - 1] ?? "").slice(event.span.utf16[0]));
      const end = head ? event.span.line : event.span.end_line;
      for (let line = event.span.line; line <= end && line <= shown.length; line += 1) spans[line - 1]?.push(event);
    }
    const around = functions(shown);
    this.#folds = [];
    this.#revealed = false;
    this.#lines = shown.map((text, index) => ({
      ...this.#line(text, index + 1, coloured[index] ?? [], spans[index] ?? []),
      within: around[index] ?? "",
    }));
    this.#box.style.setProperty("--pl-digits", String(String(shown.length).length));
    const parts = sources[source]?.parts ?? [];
    const rows = this.#lines.flatMap((line, index) => {
      const part = parts.length > 1 ? parts.find((one) => one.line === index + 1) : undefined;
      return part ? [h("div", { class: "pl-cell-name" }, part.name), line.row] : [line.row];
    });
    this.#box.replaceChildren(h("div", { class: "pl-lines" }, ...rows));
    if (all.length > shown.length)
      this.#box.append(
        h(
          "p",
          { class: "pl-nothing" },
          this.#model.t(`The first ${LINE_LIMIT} of ${all.length} lines.`, `共 ${all.length} 行，显示前 ${LINE_LIMIT} 行。`),
        ),
      );
    this.#addMarks();
  }

  #line(text: string, number: number, coloured: Token[], events: TraceEvent[]): Omit<Line, "within"> {
    const cuts = new Set([0, text.length]);
    for (const { start, end } of coloured) cuts.add(start).add(end);
    for (const { span } of events) {
      if (!span) continue;
      cuts.add(span.line === number ? Math.min(span.utf16[0], text.length) : 0);
      cuts.add(span.end_line === number ? Math.min(span.utf16[1], text.length) : text.length);
    }
    const borders = [...cuts].sort((a, b) => a - b);
    const pieces: Piece[] = [];
    const code = h("code", { class: "pl-text" });
    for (let i = 0; i + 1 < borders.length; i += 1) {
      const [start, end] = [borders[i] as number, borders[i + 1] as number];
      const token = coloured.find((one) => one.start <= start && end <= one.end);
      const element = h("span", { class: token ? `pl-${token.kind}` : "" }, text.slice(start, end));
      pieces.push({ start, end, name: token?.kind === "name" ? text.slice(token.start, token.end) : "", element });
      // A long line is broken where Python's syntax lets one: behind a comma or an opening bracket, before an operator or a dot.
      const before = i > 0 && /^[.+*/@|&-]/.test(text.slice(start)) && text[start - 1] !== text[start];
      if (before && !isWhole(text, start)) code.append(h("wbr", {}));
      code.append(element);
      if (/[,([{]$/.test(text.slice(start, end))) code.append(h("wbr", {}));
    }
    if (!text) code.append("\u200b");
    code.style.setProperty("--pl-in", String(/^\s*/.exec(text)?.[0].length ?? 0));
    const hint = h("span", { class: "pl-hint-value", "aria-hidden": "true" });
    const made = this.#results(withoutModules(events, text)).filter((event) => !discarded(event, text));
    const said = h("span", { class: "pl-said" }, code, hint);
    said.style.setProperty("--pl-hint", String(room(made, this.#shapes)));
    const row = h("div", { class: "pl-line", "data-line": number }, h("span", { class: "pl-marks" }), this.#number(number, events), said);
    return { row, hint, said: "", pieces, events, made, marks: [] };
  }

  /** The calls of a line that make what it says, not a part of that: beside the line, a part's shape would be taken for its result's. */
  #results(events: TraceEvent[]): TraceEvent[] {
    const made = events.filter(({ results, error }) => results.length > 0 && !error);
    const spans = new Map(made.map(({ span }) => [ends(span), span]));
    return made.filter((event) => {
      const next = this.#model.trace.events[event.step + 1];
      const goesOn = next?.kind === event.kind && next.op !== event.op && ends(next.span) === ends(event.span);
      return !goesOn && ![...spans.values()].some((other) => isPart(event.span, other));
    });
  }

  /** A line where something happened is a button, so that the keyboard gets to it. */
  #number(number: number, events: TraceEvent[]): HTMLElement {
    const label = this.#model.place(number, this.#source);
    const parts = this.#model.trace.sources[this.#source]?.parts ?? [];
    const part = parts.length > 1 ? parts.findLast((one) => one.line <= number) : undefined;
    const own = String(part ? number - part.line + part.own : number);
    return events.length ? h("button", { class: "pl-no", tabindex: "-1", label: label }, own) : h("span", { class: "pl-no" }, own);
  }

  /** The diagnosis stands in the program: a mark in the gutter, and below the line what happens there. What is still to come is faint. */
  #addMarks(): void {
    for (const beat of this.#model.story?.beats ?? []) {
      const { role, step, line } = beat;
      const span = step === null ? null : this.#spanOf(this.#model.trace.events[step] ?? null);
      const place = this.#lines[(line ?? 0) - 1];
      if (!place || (beat.source ?? span?.source ?? 0) !== this.#source) continue;
      if (role !== "other" && !place.marks.some((one) => one.role === role)) {
        const element = mark(role);
        place.row.firstElementChild?.append(element);
        place.marks.push({ role, step, element });
        this.#underline(span, role);
      }
      const text = say(beat.text, this.#model.language);
      if (!text) continue; // the headline names the line, and it is marked
      const leads = beat.was === "forward" ? " pl-n-leads" : "";
      const number = numberOf(beat, this.#model.story?.picture ?? null);
      const note = h(
        "div",
        { class: `pl-note pl-n-${role}${leads}` },
        number ? h("span", {}, String(number)) : null,
        mark(role),
        h("span", {}, ...prose(text)),
      );
      note.style.setProperty("--pl-in", String(/^\s*/.exec(this.#textOf(place))?.[0].length ?? 0));
      if (leads)
        place.hint.before(note); // beside the call: a row of its own would fold more of the program
      else place.row.append(note);
    }
    for (const { line, text } of this.#repairs()) {
      const place = this.#lines[line - 1];
      if (!place || place.row.querySelector(".pl-note")) continue; // its story is there, and the fix names the line
      const note = h("div", { class: "pl-note pl-ok" }, mark("changed"), h("span", {}, text));
      note.style.setProperty("--pl-in", String(/^\s*/.exec(this.#textOf(place))?.[0].length ?? 0));
      place.row.append(note);
    }
  }

  /** The lines at which the first fix, if it was tried and holds, changes the program. */
  #repairs(): { line: number; text: string }[] {
    const { story } = this.#model;
    const [first] = story && !this.#source ? offered(story) : [];
    if (!first?.verified) return [];
    return first.edits.map((edit) => {
      const old = this.#lines.slice(edit.line - 1, edit.end_line).map((line) => this.#textOf(line).trim());
      const now = edit.text.split(/\r\n|\r|\n/).map((line) => line.trim());
      const same = old.findIndex((line, at) => line !== now[at]);
      const line = same < 0 ? edit.end_line : edit.line + same;
      const added = now.length > old.length && old.every((line, at) => line === now.filter((one) => one).slice(-old.length)[at]);
      const text = added
        ? this.#model.t("the fix adds lines above", "修复在上面加行")
        : same < 0
          ? this.#model.t("the fix adds lines below", "修复在下面加行")
          : this.#model.t("the fix changes this line", "修复改动这一行");
      return { line: added ? edit.line : line, text };
    });
  }

  #textOf(line: Line): string {
    return line.pieces.map((piece) => piece.element.textContent).join("");
  }

  #underline(span: Span | null, role: Role): void {
    for (const piece of span ? this.#within(span) : []) piece.element.classList.add(`pl-u-${role}`);
  }

  #updateMarks(): void {
    for (const line of this.#lines) {
      for (const { step, element } of line.marks) element.classList.toggle("pl-ahead", step !== null && step > this.#model.step);
    }
  }

  #within(span: Span): Piece[] {
    const found: Piece[] = [];
    for (let number = span.line; number <= span.end_line; number += 1) {
      for (const piece of this.#lines[number - 1]?.pieces ?? []) {
        const after = number > span.line || piece.start >= span.utf16[0];
        const before = number < span.end_line || piece.end <= span.utf16[1];
        if (after && before && piece.end > piece.start) found.push(piece);
      }
    }
    return found;
  }

  #light(span: Span | null, kind: "pl-now" | "pl-origin"): HTMLElement | null {
    if (!span || span.source !== this.#source) return null;
    for (const piece of this.#within(span)) this.#add(piece.element, kind);
    const row = this.#lines[span.line - 1]?.row ?? null;
    if (row && kind === "pl-now") this.#add(row, "pl-now-row");
    return row;
  }

  #add(element: HTMLElement, kind: string): void {
    element.classList.add(kind);
    this.#lit.push(element);
  }

  /** Every name of the focused tensor, or of any tensor in the focused storage, is underlined in the storage's hue, in the functions that use it. */
  #lightFocus(): void {
    const { focus } = this.#model;
    if (!focus) return;
    const state = this.#model.stateAt(this.#model.step);
    const storage = this.#model.storageOf(focus, state);
    const labels = focus.startsWith("t") ? [focus] : Object.keys(state.tensors).filter((one) => state.tensors[one]?.storage === storage);
    const names = new Set(labels.flatMap((one) => state.tensors[one]?.names ?? []));
    this.#box.style.setProperty("--pl-hue", this.#model.hue(storage));
    if (!names.size) return;
    const users = this.#model.trace.events.filter(
      (event) => event.results.some((one) => labels.includes(one)) || event.operands.some((one) => one.label && labels.includes(one.label)),
    );
    const within = new Set(users.map((event) => event.scope.findLast((one) => !one.includes("<")) ?? ""));
    for (const line of this.#lines) {
      if (within.has(line.within)) for (const piece of line.pieces) if (names.has(piece.name)) this.#add(piece.element, "pl-same");
    }
  }

  /** Scrolls inside the view only: the page never moves under the reader. It opens, at once, on as much of the diagnosis as there is room for. */
  #reveal(row: HTMLElement): void {
    const box = this.#box;
    if (!this.#revealed) {
      if (!box.clientHeight) return;
      this.#revealed = true;
      this.#size = this.#measured;
      this.#fold(row);
    }
    const top = this.#seen(row).offsetTop - box.offsetTop;
    if (!this.#opened) {
      this.#opened = true;
      const own = this.#seen(row);
      let [from, to] = [top, top + own.offsetHeight];
      const noted = this.#lines.map((line) => line.row).filter((one) => one.querySelector(".pl-note"));
      const edited = this.#edited().flatMap((at) => (this.#lines[at]?.row.offsetHeight ? (this.#lines[at]?.row ?? []) : []));
      const far = ({ offsetTop }: HTMLElement): number => Math.abs(offsetTop - row.offsetTop);
      const nearest = (a: HTMLElement, b: HTMLElement): number => far(a) - far(b);
      const makers = this.#makers().flatMap((at) => this.#lines[at]?.row ?? []);
      for (const one of [...noted.sort(nearest), ...makers.sort(nearest), ...edited.sort(nearest)]) {
        const [first, last] = [
          Math.min(from, one.offsetTop - box.offsetTop),
          Math.max(to, one.offsetTop - box.offsetTop + one.offsetHeight),
        ];
        if (last - first <= box.clientHeight) [from, to] = [first, last];
      }
      const middle = Math.max(0, (from + to - box.clientHeight) / 2);
      const open = this.#lines.filter(({ row }) => !row.classList.contains("pl-folded"));
      const tops = open.map((line) => line.row.offsetTop - box.offsetTop);
      // A whole line at the top; the diagnosis stays in sight.
      const most = Math.min(from, box.scrollHeight - box.clientHeight);
      const begin = tops.find((one) => one >= middle && one <= most) ?? tops.findLast((one) => one <= Math.min(middle, most)) ?? 0;
      box.scrollTo({ top: begin, behavior: "instant" });
      // What is laid out after this may leave less to scroll: then the cut line at the top comes down whole.
      requestAnimationFrame(() => {
        const above = tops.findLast((one) => one <= box.scrollTop) ?? 0;
        if (above + 1 < box.scrollTop && to - box.clientHeight <= above) box.scrollTop = above;
      });
      return;
    }
    const bottom = top + this.#seen(row).offsetHeight;
    if (top < box.scrollTop) box.scrollTop = Math.max(0, top - 40);
    else if (bottom > box.scrollTop + box.clientHeight) box.scrollTop = bottom - box.clientHeight + 40;
  }

  /**
   * Where the lines of the diagnosis do not fit into the view together, those between them fold into one row. As long as there is room,
   * the calls that lead to a line of the diagnosis stay open like its own, then the lines that make the values of the finding, those
   * that the repairs change, other notes, the heads of functions and the neighbours of each. A fold stays closed while the reader steps through its lines: it shows the current one.
   */
  #fold(now: HTMLElement): void {
    const box = this.#box;
    const noted = this.#lines.flatMap(({ row }, at) => (row.querySelector(".pl-note") ? [at] : []));
    const own = this.#lines.findIndex(({ row }) => row === now);
    // Callers are the small print of a failure: they go before one of its own lines does.
    const firm = noted.filter((at) => this.#lines[at]?.row.querySelector(".pl-note:not(.pl-n-other)"));
    const shown = new Set([own, ...(firm.length > 1 ? firm : noted)].filter((at) => at >= 0));
    const sorted = (lines: Iterable<number>): number[] => [...lines].filter((at) => at >= 0).sort((a, b) => a - b);
    const leading = noted.filter((at) => this.#lines[at]?.row.querySelector(".pl-n-leads"));
    for (const at of [...leading, ...this.#makers()]) {
      const [more, among] = [new Set([...shown, at]), sorted([...shown, ...noted, at])];
      if (this.#height(more, among[0] ?? 0, among.at(-1) ?? 0) <= box.clientHeight) shown.add(at);
    }
    const all = sorted(new Set([...shown, ...noted]));
    const [begin, end] = [all[0] ?? 0, all.at(-1) ?? 0];
    const [first, last] = [this.#lines[begin]?.row, this.#lines[end]?.row];
    if (begin === end || !first || !last || last.offsetTop + last.offsetHeight - first.offsetTop <= box.clientHeight) return;
    const heads = all.flatMap((at) => {
      const within = this.#lines[at]?.within;
      const head = within ? this.#lines.findIndex((line) => line.within === within) : 0;
      return head > 0 ? [head - 1] : [];
    });
    for (const at of [...this.#edited(), ...noted, ...heads, ...all.flatMap((at) => [at + 1, at - 1])])
      if (at > begin && at < end && !shown.has(at) && this.#height(new Set([...shown, at]), begin, end) <= box.clientHeight) shown.add(at);
    let from = begin + 1;
    for (let at = from; at <= end; at += 1) {
      if (!shown.has(at) && at < end) continue;
      if (at - from > 1) this.#close(from, at - 1);
      from = at + 1;
    }
  }

  /** How high the lines from `begin` to `end` are, with all folded that are not in `shown`; a single line is never folded. */
  #height(shown: ReadonlySet<number>, begin: number, end: number): number {
    const high = (at: number): number => this.#lines[at]?.row.offsetHeight ?? 0;
    let [sum, from] = [0, begin];
    for (let at = begin; at <= end; at += 1) {
      if (!shown.has(at) && at !== begin && at < end) continue;
      sum += high(at) + (at - from > 1 ? FOLD : at - from === 1 ? high(from) : 0);
      from = at + 1;
    }
    return sum;
  }

  /** Where the lines are that make the values of the finding. */
  #makers(): number[] {
    const made = this.#model.story?.makers ?? [];
    return made.flatMap(([source, line]) => (source === this.#source && this.#lines[line - 1] ? [line - 1] : []));
  }

  /** Where the lines are that the offered repairs change. */
  #edited(): number[] {
    const { story } = this.#model;
    if (!story || this.#source) return [];
    return offered(story).flatMap(({ edits }) => edits.map(({ line }) => line - 1));
  }

  #close(from: number, to: number): void {
    const [first, last] = [from, to].map((at) => this.#lines[at]?.row.querySelector(".pl-no")?.textContent ?? "");
    const said = this.#model.t(`lines ${first} to ${last}`, `第 ${first} 至 ${last} 行`);
    const label = this.#model.t(`Show ${said}`, `显示${said}`);
    const now = h("code", { class: "pl-fold-now", "aria-hidden": "true" });
    const row = h("button", { class: "pl-fold", tabindex: "-1", label }, h("span", { class: "pl-fold-said" }, "⋯ ", said), now);
    const fold = { from, to, row, now };
    row.addEventListener("click", () => this.#unfold(fold));
    this.#lines[from]?.row.before(row);
    for (const { row: each } of this.#lines.slice(from, to + 1)) each.classList.add("pl-folded");
    this.#folds.push(fold);
  }

  #unfold(fold: Fold): void {
    fold.row.remove();
    this.#folds = this.#folds.filter((one) => one !== fold);
    for (const { row } of this.#lines.slice(fold.from, fold.to + 1)) row.classList.remove("pl-folded");
  }

  /** The line's own row, or that of the fold it is in. */
  #seen(row: HTMLElement): HTMLElement {
    const at = this.#lines.findIndex((line) => line.row === row);
    const fold = this.#folds.find((one) => one.from <= at && at <= one.to);
    if (!fold) return row;
    fold.now.textContent = this.#textOf(this.#lines[at] as Line).trim();
    this.#add(fold.row, "pl-now-row");
    return fold.row;
  }

  #at(target: EventTarget | null): { line: Line; piece: Piece | null } | null {
    const row = (target as Element | null)?.closest?.(".pl-line");
    const line = this.#lines.find((one) => one.row === row);
    return line ? { line, piece: line.pieces.find((one) => one.element === target) ?? null } : null;
  }

  /** The smallest expression around a piece; of several (a loop), the one nearest to the current step. */
  #eventAt(line: Line, piece: Piece): TraceEvent | null {
    const number = Number(line.row.dataset.line);
    const size = ({ span }: TraceEvent): number => (span ? (span.end_line - span.line) * 10000 + span.utf16[1] - span.utf16[0] : Infinity);
    const far = (event: TraceEvent): number => Math.abs(event.step - this.#model.step);
    const around = line.events.filter(({ span }) => {
      if (!span) return false;
      const after = number > span.line || piece.start >= span.utf16[0];
      return after && (number < span.end_line || piece.end <= span.utf16[1]);
    });
    return around.sort((a, b) => size(a) - size(b) || far(a) - far(b))[0] ?? null;
  }

  #labelAt(line: Line, piece: Piece): string {
    for (const step of piece.name ? [this.#model.step, this.#model.last] : []) {
      const named = Object.entries(this.#model.stateAt(step).tensors).filter(([, one]) => one?.alive && one.names?.includes(piece.name));
      if (named.length) return (named[named.length - 1] as [string, unknown])[0];
    }
    const event = this.#eventAt(line, piece);
    return event?.results[0] ?? event?.operands.find((operand) => operand.label)?.label ?? "";
  }

  #hover(event: Event): void {
    const place = this.#at(event.target);
    const label = place?.piece ? this.#labelAt(place.line, place.piece) : "";
    if (label) this.#model.focus = label;
  }

  #leave(): void {
    this.#model.focus = this.#pinned;
  }

  /** A click goes to the operation and keeps its tensor in focus. A click beside the code takes the line's first one. */
  #click(event: Event): void {
    const place = this.#at(event.target);
    if (!place) return;
    const found = place.piece && /\S/.test(place.piece.element.textContent ?? "") ? this.#eventAt(place.line, place.piece) : null;
    const target = found ?? place.line.events[0];
    if (!target) return;
    this.#pinned = place.piece ? this.#labelAt(place.line, place.piece) : (target.results[0] ?? "");
    this.#model.step = target.step;
    this.#model.focus = this.#pinned;
  }
}
