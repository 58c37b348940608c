/** Shapes aligned from the right: what stretches (stride 0), the result, and what backward sums again. */

import type { Model, View } from "../core/contract";
import { h } from "../core/dom";
import { brief } from "../core/numbers";
import type { BroadcastCase as Case, Dim, BroadcastOperand as Side } from "../core/wire";
import { cut, frame, leftOut, nothing, part, reveal, sent, shape, swatch, toggle, value } from "./draw";
import { glide } from "./motion";

/** So many rows and columns are drawn; of more, the first ones and the last. */
const GRID = 6;
const FIRST = 2;
const MOST = 4;

export const broadcast: View = {
  id: "broadcast",
  title: { en: "Broadcast", zh: "广播" },
  has: (scene) => sent(scene, "broadcast", (one) => one.cases.length),
  parts: () => false,
  mount(root, model) {
    const scene = part(model, "broadcast");
    if (!scene?.cases.length) return nothing(root, model.t("No operation had operands of different shapes.", "没有形状不同的操作数。"));
    const box = frame(root, model.t("broadcasts, scrollable", "广播，可滚动"));
    const real = scene.cases.filter((one) => !scene.play || one.operands.some((side) => side.storage));
    const redraws = real.map((one) => drawCase(box, one, model));
    leftOut(box, scene.left_out, model);
    const shapes = scene.cases
      .map((one) => one.operands.map((side) => side.shape))
      .find((all) => all.length <= MOST && all.flat().every((size) => size > 0 && size <= 12));
    const toy = h("div", {});
    const start = h(
      "button",
      { class: "v-link", click: () => (start.remove(), play(toy, shapes ?? [[3], [3, 1]], model)) },
      model.t("play with shapes", "试试别的形状"),
    );
    box.append(start, toy);
    if (scene.play) start.click();
    const update = (): void => redraws.forEach((redraw) => redraw(model.step));
    return { update, destroy: () => root.replaceChildren() };
  },
};

function drawCase(box: HTMLElement, one: Case, model: Model): (step: number) => void {
  const go = h(
    "button",
    { class: "v-link", click: () => (model.step = one.step) },
    `${one.line ? `L${one.line} ` : ""}${cut(one.code, 48)}`,
  );
  const element = h("section", { class: "v-case" }, one.play ? "" : go);
  const names: [HTMLElement, string | null][] = [];
  const table = h("table", { class: "v-dims" });
  const notes: [HTMLElement, Side][] = [];
  for (const side of one.operands) table.append(sideRow(side, model, names, notes));
  table.append(resultRow(one, model));
  element.append(h("div", { tabindex: "-1", group: cut(one.code, 48) }, table));
  if (one.crossed && !one.clash.length) element.append(h("p", {}, crossText(one, model)));
  const stretches: Stretch[] = [];
  if (one.result.shape.length <= 2 && !one.clash.length && !one.result.shape.includes(0)) element.append(grids(one, model, stretches));
  box.append(element);
  let was = false;
  return (step) => {
    const here = one.steps.includes(step) || (one.ran !== null && step === one.ran);
    toggle(element, "v-here", here);
    toggle(element, "v-later", step < one.step);
    for (const [span, label] of names) span.textContent = model.called(label);
    for (const [cell, side] of notes) cell.textContent = note(side, one, model, step);
    if (here && !was) {
      reveal(box, element);
      for (const [ghost, behind] of stretches) glide(ghost, behind);
    }
    was = here;
  };
}

function crossText(one: Case, model: Model): string {
  const [rows, columns] = one.result.shape.slice(-2);
  const tail = one.result.reduced ? model.t(" before the loss reduces it", "，然后才由损失函数归约") : "";
  return model.t(
    `Every element of one meets every element of the other: ${rows} × ${columns} values${tail}.`,
    `一方的每个元素与另一方的每个元素相遇：${rows} × ${columns} 个值${tail}。`,
  );
}

function sideRow(side: Side, model: Model, names: [HTMLElement, string | null][], notes: [HTMLElement, Side][]): HTMLElement {
  const called = h("span", {});
  names.push([called, side.label]);
  const noted = h("small", {});
  notes.push([noted, side]);
  const row = h(
    "tr",
    { style: side.storage ? `--v-hue:${model.hue(side.storage)}` : "" },
    h(
      "th",
      { scope: "row", click: () => (model.focus = side.label), pointerenter: () => (model.focus = side.label) },
      side.storage && swatch(side.storage, model),
      " ",
      called,
      ` ${shape(side.shape)}`,
      noted,
    ),
  );
  for (const dim of side.dims) {
    const stretched = dim.kind === "one" || dim.kind === "missing";
    const title = `stride ${dim.stride}`;
    row.append(
      h(
        "td",
        { class: stretched ? "v-stretch" : dim.kind === "clash" ? "v-clash" : "", title },
        dim.size === null ? "·" : String(dim.size),
      ),
    );
  }
  return row;
}

function note(side: Side, one: Case, model: Model, step: number): string {
  const dims = side.dims.flatMap((dim, index) => (dim.kind === "one" || dim.kind === "missing" ? [index] : []));
  if (!dims.length || one.clash.length) return "";
  const list = dims.join(", ");
  if (one.ran !== null && step >= one.ran && side.summed.length)
    return model.t(`↑ backward summed dim ${list} to ${shape(side.shape)}`, `↑ 反向时在第 ${list} 维求和，回到 ${shape(side.shape)}`);
  const forward = model.t(`stride 0 in dim ${list}`, `第 ${list} 维步长为 0`);
  return one.play
    ? forward + model.t(` · ↑ a gradient would be summed to ${shape(side.shape)}`, ` · ↑ 若有梯度，则求和回到 ${shape(side.shape)}`)
    : forward;
}

function resultRow(one: Case, model: Model): HTMLElement {
  const bad = one.clash.length > 0;
  const head = bad
    ? model.t("✕ sizes do not match", "✕ 大小对不上")
    : one.result.reduced
      ? model.t("inside", "内部")
      : model.t("result", "结果");
  const row = h("tr", {}, h("th", { scope: "row", class: bad ? "pl-raised" : "" }, head, bad ? "" : ` ${shape(one.result.shape)}`));
  one.result.shape.forEach((size, index) => {
    const clash = one.clash.includes(index);
    row.append(h("td", { class: clash ? "v-clash" : "" }, clash ? "✕" : String(size)));
  });
  return row;
}

/** A cell that is not there, and the real one behind it. */
type Stretch = [ghost: HTMLElement, behind: HTMLElement];

/** The places along a dimension that are drawn. */
function drawn(size: number): number[] {
  const all = [...Array(Math.min(size, GRID)).keys()];
  return size > GRID ? [...all.slice(0, FIRST), size - 1] : all;
}

/** Small grids: the real cells, their ghosts, the result. Pointing at a result cell shows where it comes from. */
function grids(one: Case, model: Model, stretches: Stretch[]): HTMLElement {
  const full = [1, 1, ...one.result.shape].slice(-2) as [number, number];
  const picked = full.map(drawn) as [number[], number[]];
  const large = full.some((size) => size > GRID);
  const marks: HTMLElement[][] = [];
  const line = h("div", { class: large ? "v-row v-large" : "v-row" });
  one.operands.forEach((side, index) => {
    if (index) line.append(h("span", { "aria-hidden": "true" }, one.sign));
    const [cells, grid] = mini(picked, side, model);
    marks.push(cells);
    cells.forEach((cell, place) => {
      const own = cells[realPlace(side, place, picked[1].length)];
      if (own && own !== cell) stretches.push([cell, own]);
    });
    line.append(grid);
  });
  line.append(h("span", { "aria-hidden": "true" }, "→"));
  const [cells, result] = mini(picked, one.result, model);
  cells.forEach((cell, place) => {
    const light = (on: boolean) => (): void => {
      for (const list of [...marks, cells]) if (list[place]) toggle(list[place], "v-hit", on);
      marks.forEach((list, index) => real(list, one.operands[index] as Side, place, picked[1].length, on));
    };
    cell.addEventListener("pointerenter", light(true));
    cell.addEventListener("pointerleave", light(false));
  });
  line.append(result);
  if (large) {
    const said = full.join(" × ");
    line.append(h("span", { class: "v-dim" }, model.t(`the first and the last of ${said}`, `${said} 中的开头与最后`)));
  }
  return line;
}

/** Lights the one real cell behind a ghost. */
function real(list: HTMLElement[], side: Side, place: number, columns: number, on: boolean): void {
  const cell = list[realPlace(side, place, columns)];
  if (cell) toggle(cell, "v-hit", on);
}

/** Where the real cell behind a place of the grid is drawn: along a dimension of size 1 it is the first. */
function realPlace(side: Side, place: number, columns: number): number {
  const [tall, wide] = [1, 1, ...side.shape].slice(-2) as [number, number];
  return (tall > 1 ? Math.floor(place / columns) : 0) * columns + (wide > 1 ? place % columns : 0);
}

function mini([rows, columns]: [number[], number[]], side: Side | Case["result"], model: Model): [HTMLElement[], HTMLElement] {
  const storage = "dims" in side ? side.storage : null;
  const grid = h("div", {
    class: "v-mini",
    "aria-hidden": "true",
    style: `grid-template-columns:repeat(${columns.length},auto);${storage ? `--v-hue:${model.hue(storage)}` : ""}`,
  });
  const [tall, wide] = [1, 1, ...side.shape].slice(-2) as [number, number];
  const ends = new Map(side.ends ?? []);
  const cells = rows.flatMap((r, y) =>
    columns.map((c, x) => {
      const at = Math.min(r, tall - 1) * wide + Math.min(c, wide - 1);
      const own = side.cells?.[at] ?? ends.get(at);
      const left = [r >= tall || c >= wide ? "v-stretch" : "", r > y ? "v-below" : "", c > x ? "v-behind" : ""];
      return h(
        "span",
        { class: left.filter(Boolean).join(" ") },
        own === undefined || own === null ? "…" : side.cells ? value(own) : brief(own),
      );
    }),
  );
  grid.append(...cells);
  return [cells, grid];
}

/** What torch makes of these shapes: the same as Python's `meet`, so that shapes can be played with where no kernel is. */
export function meet(shapes: number[][]): Case {
  const rank = Math.max(...shapes.map((own) => own.length));
  const full = shapes.map((own) => [...Array<null>(rank - own.length).fill(null), ...own]);
  const sizes = Array.from(
    { length: rank },
    (_, d) => new Set(full.flatMap((own) => (own[d] === null || own[d] === 1 ? [] : [own[d] as number]))),
  );
  const common = sizes.map((all) => Math.max(1, ...all));
  const clash = sizes.flatMap((all, d) => (all.size > 1 ? [d] : []));
  const operands = shapes.map((own, index): Side => {
    const dims = (full[index] as (number | null)[]).map((size, d): Dim => {
      const stretched = size === null || (size === 1 && common[d] !== 1);
      const stride = stretched ? 0 : own.slice(own.length - rank + d + 1).reduce((all, one) => all * one, 1);
      return { size, kind: size === null ? "missing" : stretched ? "one" : clash.includes(d) ? "clash" : "real", stride };
    });
    const count = own.reduce((all, one) => all * one, 1);
    return {
      label: "abcd"[index] as string,
      storage: null,
      shape: own,
      dims,
      summed: [], // shapes alone require no gradient
      cells: Array.from({ length: count }, (_, i) => String(i)),
    };
  });
  const [rows, columns] = [1, 1, ...common].slice(-2) as [number, number];
  const cells = Array.from({ length: rank < 3 ? rows * columns : 0 }, (_, i) =>
    operands.map((side) => behind(side, Math.floor(i / columns), i % columns)).join("·"),
  );
  const crossed = shapes.some((a) =>
    shapes.some((b) => (a.at(-1) ?? 0) > 1 && b.length === a.length + 1 && b.at(-1) === 1 && b.at(-2) === a.at(-1)),
  );
  return {
    step: 0,
    steps: [],
    op: "",
    sign: "∘",
    line: null,
    code: shapes.map(shape).join(" ∘ "),
    result: { label: null, shape: common, reduced: false, cells },
    clash,
    operands,
    node: null,
    ran: null,
    crossed,
    wasteful: false,
    play: true,
  };
}

/** The operand's element that stands behind a cell of the result (of its last two dimensions). */
function behind(side: Side, r: number, c: number): number {
  const [tall, wide] = [1, 1, ...side.shape].slice(-2) as [number, number];
  return Math.min(r, tall - 1) * wide + Math.min(c, wide - 1);
}

/** A slider for each size, two to four operands; the picture follows at once. */
function play(box: HTMLElement, first: number[][], model: Model): void {
  const shapes = first.map((own) => [...own]);
  const controls = h("div", { class: "v-play" });
  const said = h("p", { role: "status" });
  const picture = h("div", {});
  const draw = (): void => {
    const one = meet(shapes);
    const dims = one.clash.map((d) => d - one.result.shape.length).join(", ");
    said.textContent = `${one.code} ${one.clash.length ? model.t(`✕ torch raises: sizes in dim ${dims} are neither equal nor 1`, `✕ torch 会报错：第 ${dims} 维的大小既不相等也不为 1`) : `→ ${shape(one.result.shape)}`}`;
    toggle(said, "pl-bad", one.clash.length > 0);
    picture.replaceChildren();
    drawCase(picture, one, model)(0);
  };
  const button = (sign: string, label: string, act: () => void): HTMLElement =>
    h("button", { class: "v-link", title: label, label: label, click: () => (act(), build(`[aria-label="${label}"]`)) }, sign);
  const build = (focus = ""): void => {
    const rows = shapes.map((own, index) => {
      const called = "abcd"[index] as string;
      const sliders = own.map((size, d) => {
        const shown = h("span", {}, String(size));
        const slide = (): void => {
          own[d] = Number(input.value);
          shown.textContent = input.value;
          draw();
        };
        const input: HTMLInputElement = h("input", {
          type: "range",
          min: 1,
          max: Math.max(6, ...first.flat()),
          value: size,
          label: model.t(`${called}, size of dim ${d}`, `${called} 第 ${d} 维的大小`),
          input: slide,
        });
        input.addEventListener("keydown", (event) => /^(Arrow|Home|End|Page)/.test(event.key) && event.stopPropagation());
        return h("label", {}, input, shown);
      });
      const fewer = own.length > 0 && button("−", model.t(`${called}: one dim less`, `${called}：减一维`), () => own.shift());
      const more = own.length < MOST && button("+", model.t(`${called}: one dim more`, `${called}：加一维`), () => own.unshift(1));
      return h("div", { class: "v-row" }, h("b", {}, called), ...sliders, fewer, more);
    });
    const less =
      shapes.length > 2 && button(model.t("− operand", "− 操作数"), model.t("one operand less", "减一个操作数"), () => shapes.pop());
    const another =
      shapes.length < MOST && button(model.t("+ operand", "+ 操作数"), model.t("one operand more", "加一个操作数"), () => shapes.push([1]));
    const trap = button("(4,) ∘ (4, 1)", model.t("the table that a loss makes by mistake", "损失函数无意中得到的表"), () =>
      shapes.splice(0, 4, [4], [4, 1]),
    );
    controls.replaceChildren(...rows, h("div", { class: "v-row" }, ...[less, another, trap].filter((one) => one !== false)));
    draw();
    if (focus) controls.querySelector<HTMLElement>(focus)?.focus();
  };
  box.replaceChildren(controls, said, picture);
  build();
}
