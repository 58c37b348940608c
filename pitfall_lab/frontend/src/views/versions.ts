/** One track per version counter: ticks are bumps, pins say "saved at v0", and red runs from a pin to the bump that broke it. */

import type { Model, State, View } from "../core/contract";
import { h, s } from "../core/dom";
import type { Pin, Track } from "../core/wire";
import { cut, frame, leftOut, nothing, part, pressable, sent, toggle } from "./draw";

const LEFT = 176;
const COLUMN = 44;
const ROW = 66;
const PAD = 44;
const TOP = 30;
const LABEL = 15;
const PINS = 12;
/** The width of a letter in px, for labels that must not run into each other. */
const LETTER = 7.3;
const NAME = 17;
type Redraw = (state: State, step: number) => void;

export const versions: View = {
  id: "versions",
  title: { en: "Versions", zh: "版本" },
  has: (scene) => sent(scene, "versions", (one) => one.tracks.length),
  parts: (scene, story) =>
    sent(scene, "versions", ({ tracks, columns }) => {
      const own = tracks.filter((track) => story.slice?.counters.includes(track.counter)).length;
      return own % tracks.length || (own && columns.filter((step) => story.slice?.steps.includes(step)).length % columns.length);
    }),
  mount(root, model) {
    const scene = part(model, "versions");
    if (!scene?.tracks.length) return nothing(root, model.t("There is no version counter.", "没有版本计数器。"));
    const box = frame(root, model.t("version counters, scrollable", "版本计数器，可滚动"));
    const { slice } = model;
    const counters = model.story?.slice?.counters ?? [];
    const own = scene.tracks.filter((track) => counters.includes(track.counter)).sort((a, b) => guilt(b) - guilt(a));
    const first = slice && own.length ? own : [...own, ...scene.tracks.filter((track) => track.main && !own.includes(track))];
    const rest = scene.tracks.filter((track) => !first.includes(track));
    const near = scene.columns.filter((step) => slice?.steps.includes(step));
    let chart = new Chart(box, first, slice && own.length && near.length ? near : scene.columns, model);
    if (rest.length && !(slice && own.length)) {
      const all = (): void => {
        box.replaceChildren();
        chart = new Chart(box, [...first, ...rest].slice(0, 300), scene.columns, model);
        chart.update();
      };
      box.append(
        h("button", { class: "v-link", click: all }, model.t(`show ${rest.length} more counters`, `再显示 ${rest.length} 个版本计数器`)),
      );
    }
    leftOut(box, scene.left_out, model);
    return { update: () => chart.update(), destroy: () => root.replaceChildren() };
  },
};

/** A counter that a finding is about is the guiltier, the more of what was saved under it was broken, or changed at all. */
function guilt({ pins, bumps, silent }: Track): number {
  if (pins.some((pin) => pin.broken !== null || pin.wrong !== null)) return 3;
  return pins.some((pin) => pin.stale !== null) ? 2 : bumps.length + silent.length ? 1 : 0;
}

/** The end of a name tells more than its beginning: `…lstm.weight_ih_l0`; of any other expression, its beginning. */
function tail(text: string, limit: number): string {
  if (!/^[\w.[\]]+$/.test(text)) return cut(text, limit);
  return text.length > limit ? `…${text.slice(1 - limit)}` : text;
}

class Chart {
  readonly #places = new Map<number, number>();
  readonly #levels = new Map<Pin, number>();
  readonly #redraws: Redraw[] = [];
  readonly #cursor: SVGElement;

  readonly #box: HTMLElement;
  readonly #columns: number[];
  readonly #model: Model;

  constructor(box: HTMLElement, tracks: Track[], columns: number[], model: Model) {
    this.#box = box;
    this.#columns = columns;
    this.#model = model;
    columns.forEach((step, index) => this.#places.set(step, PAD + COLUMN * (index + 0.5)));
    const heights = tracks.map((track) => this.#level(track));
    const [width, height] = [PAD + COLUMN * (columns.length + 1), heights.reduce((sum, tall) => sum + tall, 0) + 6];
    const sheet = (w: number, h: number, label: string): SVGElement =>
      s("svg", { width: w, height: h, viewBox: `0 0 ${w} ${h}`, ...(label ? { role: "group", label: label } : { "aria-hidden": "true" }) });
    const head = sheet(width, TOP, "");
    for (const [step, x] of this.#places) {
      const line = model.trace.events[step]?.span?.line;
      head.append(s("text", { x, y: 18, class: "v-mid v-dim" }, line ? `L${line}` : String(step + 1)));
    }
    const side = sheet(LEFT, height, model.t("version counters", "版本计数器"));
    const svg = sheet(width, height, model.t("bumps and saved versions over the steps", "各步的版本变化与保存"));
    this.#cursor = s("line", { class: "v-cursor", y1: 0, y2: height, "aria-hidden": "true" });
    let top = 0;
    tracks.forEach((track, at) => {
      this.#track(track, top, heights[at] as number, width, side, svg);
      top += heights[at] as number;
    });
    svg.append(this.#cursor);
    this.#scrub(svg);
    box.append(h("div", { class: "v-bar" }, sheet(LEFT, TOP, ""), head), h("div", { class: "v-bar" }, side, svg));
  }

  update(): void {
    const model = this.#model;
    const state = model.stateAt(model.step);
    const x = model.step < 0 ? 0 : this.#x(model.step);
    this.#cursor.setAttribute("x1", String(x));
    this.#cursor.setAttribute("x2", String(x));
    const { scrollLeft, clientWidth } = this.#box;
    if (x < scrollLeft || x > scrollLeft + clientWidth - LEFT - COLUMN) this.#box.scrollLeft = Math.max(0, x - (clientWidth - LEFT) / 2);
    for (const redraw of this.#redraws) redraw(state, model.step);
  }

  /** The step's column, or the last one before it. */
  #x(step: number): number {
    const known = this.#places.get(step);
    if (known !== undefined) return known;
    const before = this.#columns.filter((one) => one < step).pop();
    return before === undefined ? 0 : (this.#places.get(before) as number) + (before < step ? COLUMN * 0.35 : 0);
  }

  /** Places each pin's label above those that it would run into, and returns the track's height. */
  #level(track: Track): number {
    const ends: number[] = [];
    for (const pin of track.pins.slice(0, PINS)) {
      const [x, half] = [this.#x(pin.step), (this.#text(pin).length * LETTER) / 2 + 3];
      const free = ends.findIndex((end) => end <= x - half);
      const level = free < 0 ? ends.length : free;
      ends[level] = x + half;
      this.#levels.set(pin, level);
    }
    return ROW + LABEL * Math.max(0, ends.length - 1);
  }

  #text(pin: Pin): string {
    return `${this.#model.labelled ? `${pin.node}.` : ""}${cut(pin.slot, 10)} v${pin.version}`;
  }

  #track(track: Track, top: number, height: number, width: number, side: SVGElement, svg: SVGElement): void {
    const model = this.#model;
    const hue = track.storage ? model.hue(track.storage) : "#8A8A8A";
    const axis = top + height - 26;
    const mid = axis - 8;
    const g = s("g", { class: "v-track" }, s("rect", { class: "v-back-drop", x: 0, y: top, width, height: height - 4 }));
    const label = s("g", {}, s("rect", { x: 8, y: mid - 8, width: 20, height: 20, rx: 3, style: `fill:${hue};stroke:var(--pl-ink)` }));
    if (track.shared.length)
      label.append(s("rect", { x: 4.5, y: mid - 11.5, width: 27, height: 27, rx: 5, style: `fill:none;stroke:${hue};stroke-width:2` }));
    const [counter, names] = [s("text", { x: 40, y: mid - 2, class: "v-b" }), s("text", { x: 40, y: mid + 14, class: "v-sans v-dim" })];
    label.append(counter, names, s("title", {}, model.called(track.counter)));
    const others = track.shared.length ? model.t(", the same memory as another counter", "，与另一个计数器共用内存") : "";
    pressable(label, `${model.called(track.counter)}${others}`, () => (model.focus = track.counter));
    const line = s("line", { x1: this.#x(track.born), x2: width - 8, y1: axis, y2: axis, class: "v-axis", style: `stroke:${hue}` });
    const drop = s("rect", { class: "v-back-drop", x: 0, y: top, width: LEFT, height: height - 4 });
    const labels = s("g", { class: "v-track" }, drop, label);
    side.append(labels);
    svg.append(g);
    g.append(line);
    this.#redraws.push((state, step) => {
      counter.textContent = tail(model.called(track.counter), NAME);
      names.textContent = `v${state.counters[track.counter] ?? "–"}`;
      toggle(g, "v-away", step < track.born);
      toggle(labels, "v-later", step < track.born);
      const focus = model.focus !== "" && [track.counter, track.storage, ...track.tensors].includes(model.focus);
      for (const half of [g, labels]) toggle(half, "v-focus", focus);
    });
    // Lower labels last: each covers the stems that run behind it.
    const pins = track.pins.slice(0, PINS).map((pin) => [this.#levels.get(pin) as number, pin] as const);
    for (const [level, pin] of pins.sort((a, b) => b[0] - a[0])) this.#pin(g, pin, level, axis);
    for (const bump of track.bumps) this.#tick(g, bump, axis);
    for (const step of track.silent) this.#silent(g, step, axis, track);
    if (track.pins.length > PINS) label.append(s("text", { x: 40, y: mid + 28, class: "v-dim" }, `+${track.pins.length - PINS}`));
  }

  #tick(g: Element, bump: { step: number; from: number; to: number }, axis: number): void {
    const x = this.#places.get(bump.step);
    if (x === undefined) return;
    const model = this.#model;
    const tick = s(
      "g",
      {},
      s("rect", { x: x - 12, y: axis - 12, width: 24, height: 34, fill: "transparent" }),
      s("line", { class: "v-tick", x1: x, x2: x, y1: axis - 9, y2: axis + 9 }),
    );
    tick.append(s("text", { x, y: axis + 22, class: "v-mid v-b" }, `v${bump.to}`));
    pressable(
      tick,
      model.t(
        `step ${bump.step + 1}: from version ${bump.from} to ${bump.to}`,
        `第 ${bump.step + 1} 步：版本从 ${bump.from} 变为 ${bump.to}`,
      ),
      () => (model.step = bump.step),
    );
    g.append(tick);
    this.#redraws.push((_, step) => toggle(tick, "v-later", step < bump.step));
  }

  #silent(g: Element, at: number, axis: number, track: Track): void {
    const x = this.#places.get(at);
    if (x === undefined) return;
    const model = this.#model;
    const mark = s(
      "g",
      {},
      s("rect", { x: x - 12, y: axis - 12, width: 24, height: 24, fill: "transparent" }),
      s("rect", { class: "v-silent", x: x - 7, y: axis - 7, width: 14, height: 14 }),
    );
    pressable(
      mark,
      model.t(
        `step ${at + 1}: ${model.called(track.storage)} written, its version did not move`,
        `第 ${at + 1} 步：写入 ${model.called(track.storage)}，版本没有变化`,
      ),
      () => (model.step = at),
    );
    g.append(mark);
    this.#redraws.push((_, step) => toggle(mark, "v-later", step < at));
  }

  #pin(g: Element, pin: Pin, level: number, axis: number): void {
    const model = this.#model;
    const x = this.#x(pin.step);
    const until = pin.stale ?? pin.changed;
    const end = until === null ? null : this.#x(until);
    const foot = axis - 22 - LABEL * level;
    const stretch = end === null ? null : s("line", { class: "v-stalespan", x1: x, x2: end, y1: axis, y2: axis });
    if (stretch) g.append(stretch);
    const mark = s(
      "g",
      {},
      s("rect", { x: x - 12, y: axis - 36, width: 24, height: 30, fill: "transparent" }),
      s("path", { class: "v-pin", d: `M${x - 6} ${axis - 20}h12l-6 14z` }),
      s("line", { class: "v-edge", x1: x, x2: x, y1: axis - 20, y2: foot }),
      s("text", { x, y: foot - 2, class: "v-mid v-halo" }, this.#text(pin)),
    );
    const label = model.t(
      `${pin.title} saved ${pin.slot} at version ${pin.version}`,
      `${pin.title} 在版本 ${pin.version} 保存了 ${pin.slot}`,
    );
    pressable(mark, label, () => {
      model.step = pin.step;
      model.focus = pin.node;
    });
    g.append(mark);
    const ends = (
      [
        ["broken", "✕"],
        ["wrong", "≠"],
      ] as const
    ).flatMap(([key, sign]) => {
      const step = pin[key];
      if (step === null) return [];
      const sign_ = s("text", { x: this.#x(step), y: axis - 8, class: "v-mid v-red" }, sign);
      g.append(sign_);
      return [[step, sign_] as const];
    });
    this.#redraws.push((_, step) => {
      toggle(mark, "v-later", step < pin.step);
      const bad = [pin.broken, pin.wrong].some((one) => one !== null && step >= one);
      stretch?.setAttribute("class", step < (until as number) ? "v-away" : bad ? "v-span" : "v-stalespan");
      for (const [when, sign_] of ends) toggle(sign_, "v-away", step < when);
    });
  }

  /** Dragging over the chart scrubs through the steps. */
  #scrub(svg: SVGElement): void {
    const go = (event: PointerEvent): void => {
      const box = svg.getBoundingClientRect();
      const index = Math.round((event.clientX - box.left - PAD) / COLUMN - 0.5);
      const step = this.#columns[Math.max(0, Math.min(this.#columns.length - 1, index))];
      if (step !== undefined) this.#model.step = step;
    };
    svg.addEventListener("pointerdown", (event) => {
      const target = event.target as Element;
      if (target.closest("[role=button]")) return;
      svg.setPointerCapture(event.pointerId);
      go(event);
    });
    svg.addEventListener("pointermove", (event) => {
      if (svg.hasPointerCapture(event.pointerId)) go(event);
    });
  }
}
