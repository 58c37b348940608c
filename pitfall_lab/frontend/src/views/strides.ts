/**
 * Strides to play with: a size and a stride for each dimension, and an offset, over one memory. Each has a slider, each cell a number that
 * can be typed over; the view follows at once, and no kernel is needed.
 */

import type { Model } from "../core/contract";
import { h } from "../core/dom";
import { prose } from "../core/prose";
import { shape, toggle } from "./draw";

export interface Strided {
  size: number[];
  stride: number[];
  offset: number;
}

const CELLS = 12;
const MOST = { size: 4, stride: 6 };

/** The cells that a view reads, row by row. */
export function reads({ size, stride, offset }: Strided): number[] {
  return size.reduce(
    (all, count, dim) => all.flatMap((at) => Array.from({ length: count }, (_, i) => at + i * (stride[dim] ?? 0))),
    [offset],
  );
}

/** Whether `.view(-1)` can be made without a copy: each dimension goes on where the one behind it ends. */
export function isLine({ size, stride }: Strided): boolean {
  const dims = size.map((count, dim) => [count, stride[dim] ?? 0] as const).filter(([count]) => count > 1);
  return dims.every(([count, own], dim) => !dim || dims[dim - 1]?.[1] === count * own);
}

/** What torch says of such a view over `cells` cells. */
function verdict(view: Strided, cells: number, model: Model): [text: string, bad: boolean] {
  const places = reads(view);
  const last = Math.max(...places);
  if (last >= cells)
    return [
      model.t(
        `✕ torch raises: it would read cell ${last}, and the memory has ${cells}.`,
        `✕ torch 会报错：要读取单元 ${last}，而内存只有 ${cells} 个。`,
      ),
      true,
    ];
  const line = isLine(view)
    ? model.t("`view(-1)` makes one row of it without a copy.", "`view(-1)` 不用复制就能变成一行。")
    : model.t("`view(-1)` is refused, `reshape(-1)` copies.", "`view(-1)` 会被拒绝，`reshape(-1)` 会复制。");
  if (new Set(places).size === places.length) return [line, false];
  const stretched = view.size.some((count, dim) => count > 1 && view.stride[dim] === 0);
  const written = stretched
    ? model.t("One cell is several elements: torch refuses `add_` on it. ", "一个单元是多个元素：torch 拒绝对它 `add_`。")
    : model.t(
        "Elements overlap: a write to one changes others, and torch does not refuse it. ",
        "元素相互重叠：写一个会改变别的，而 torch 不会拒绝。",
      );
  return [written + line, false];
}

export function playStrides(box: HTMLElement, first: Strided | null, model: Model): void {
  const start = first ?? { size: [3, 4], stride: [4, 1], offset: 0 };
  const view: Strided = { size: [...start.size], stride: [...start.stride], offset: start.offset };
  const cells = Math.max(CELLS, 1 + Math.max(...reads(view)));
  const values = Array.from({ length: cells }, (_, place) => String(place));
  const said = h("p", { role: "status" });
  const code = h("code", {});
  const element = h("div", { class: "v-mini", "aria-hidden": "true" });
  const memory = values.map((_, place) => field(place));
  function field(place: number): HTMLInputElement {
    const input: HTMLInputElement = h("input", {
      value: values[place] as string,
      label: model.t(`number in cell ${place}`, `单元 ${place} 中的数`),
      input: () => ((values[place] = input.value), draw()),
      keydown: (event: KeyboardEvent) => event.key.length === 1 && event.stopPropagation(), // a letter is a letter here
    });
    return input;
  }
  const draw = (): void => {
    const places = reads(view);
    const [text, bad] = verdict(view, cells, model);
    code.textContent = `memory.as_strided(${shape(view.size)}, ${shape(view.stride)}, ${view.offset})`;
    said.replaceChildren(...prose(text));
    toggle(said, "pl-bad", bad);
    memory.forEach((cell, place) => toggle(cell, "v-hit", places.includes(place)));
    element.style.gridTemplateColumns = `repeat(${view.size.at(-1) ?? 1},auto)`;
    element.replaceChildren(
      ...places.map((place) => h("span", { title: model.t(`cell ${place}`, `单元 ${place}`) }, values[place] ?? "✕")),
    );
  };
  const slider = (label: string, least: number, most: number, now: number, set: (to: number) => void): HTMLElement => {
    const shown = h("span", {}, String(now));
    const slide = (): void => (set(Number(input.value)), (shown.textContent = input.value), draw());
    const input: HTMLInputElement = h("input", {
      type: "range",
      min: least,
      max: Math.max(most, now),
      value: now,
      label: label,
      input: slide,
    });
    input.addEventListener("keydown", (event) => /^(Arrow|Home|End|Page)/.test(event.key) && event.stopPropagation());
    return h("label", {}, `${label} `, input, shown);
  };
  const rows = view.size.map((size, dim) =>
    h(
      "div",
      { class: "v-row" },
      slider(model.t(`size of dim ${dim}`, `第 ${dim} 维的大小`), 1, MOST.size, size, (to) => (view.size[dim] = to)),
      slider(model.t(`stride of dim ${dim}`, `第 ${dim} 维的步长`), 0, MOST.stride, view.stride[dim] ?? 0, (to) => (view.stride[dim] = to)),
    ),
  );
  const offset = h(
    "div",
    { class: "v-row" },
    slider(model.t("offset", "偏移"), 0, cells - 1, view.offset, (to) => (view.offset = to)),
  );
  const room = h("div", { class: "v-mini v-memory-row", group: model.t("memory", "内存") }, ...memory);
  box.replaceChildren(h("div", { class: "v-play" }, ...rows, offset), code, room, h("div", { class: "v-row" }, element), said);
  draw();
}
