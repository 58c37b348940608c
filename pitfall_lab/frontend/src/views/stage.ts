/** A large drawing in a small room: zoom, pan, fit, search, and an overview of where one is. */

import type { Model } from "../core/contract";
import { h, s } from "../core/dom";
import { reveal, toggle } from "./draw";

export interface Place {
  x: number;
  y: number;
  w: number;
  h: number;
  /** What a search looks through. */
  text: string;
  element: SVGElement;
  go(): void;
}

const FURTHEST = 0.1;
/** The least zoom at which a card can be read. */
const READABLE = 0.6;
/** Down to this zoom, what belongs together is kept in sight together. */
const TOGETHER = 0.4;
const NEAREST = 3;
/** The largest zoom that is chosen without being asked for, on a canvas of its own. */
const FILLS = 1.6;
/** A canvas this wide, in px, has the screen. */
const WIDE = 1000;
/** So many px more or fewer are another room: everything is fitted into it again. */
const OTHER = 60;
const MAP = 120;
/** Width and height in px of a drawing that needs no tools: it is seen whole. */
const SMALL = [480, 260] as const;

/** Puts tools over `box` and makes `svg` in it zoom and pan. Nothing in the drawing moves against the rest of it. */
export function stage(
  box: HTMLElement,
  svg: SVGElement,
  size: { width: number; height: number },
  places: Place[],
  model: Model,
): { open(chosen: Place[]): void } {
  let zoom = 1;
  const map = overview(box, size, places, model);
  const most = (): number => (box.clientWidth < WIDE ? 1 : FILLS);
  const fitting = (): number => Math.min(most(), box.clientWidth / size.width, box.clientHeight / size.height);
  const scale = (to: number, x = box.clientWidth / 2, y = box.clientHeight / 2): void => {
    const next = Math.min(NEAREST, Math.max(Math.min(FURTHEST, fitting()), to)); // fit fits, however large the drawing
    const [left, top] = [box.scrollLeft + x, box.scrollTop + y].map((at) => (at * next) / zoom) as [number, number];
    zoom = next;
    svg.setAttribute("width", String(size.width * zoom));
    svg.setAttribute("height", String(size.height * zoom));
    box.scrollTo(left - x, top - y);
    map?.update(zoom);
  };
  const fit = (): void => scale(fitting());
  const button = (text: string, label: string, click: () => void): HTMLElement =>
    h("button", { class: "v-link", title: label, label: `${text} ${label}`, click }, text);
  const zooms = [
    button("−", model.t("smaller", "缩小"), () => scale(zoom / 1.25)),
    button("+", model.t("larger", "放大"), () => scale(zoom * 1.25)),
    button("1:1", model.t("full size", "原始大小"), () => scale(1)),
    button(model.t("fit", "适应"), model.t("the whole graph", "显示全图"), fit),
  ];
  const side = h("div", { class: "v-side" });
  const small = size.width <= SMALL[0] && size.height <= SMALL[1] ? " v-small" : "";
  box.before(h("div", { class: `v-tools${small}` }, ...zooms, search(box, places, model)), side);
  side.append(box, map?.element ?? "");
  box.addEventListener("scroll", () => map?.update(zoom));
  box.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // a plain wheel scrolls
      event.preventDefault();
      const edge = box.getBoundingClientRect();
      scale(zoom * Math.exp(-event.deltaY / 300), event.clientX - edge.left, event.clientY - edge.top);
    },
    { passive: false },
  );
  pan(box, svg);
  /** Everything where it can be read so; else the chosen places, as many of them as can be read. They come with what matters most first. */
  const open = (chosen: Place[]): void => {
    const first = chosen[0];
    if (fitting() >= READABLE || !first) return fit();
    const edges = (some: Place[]): [x: number, y: number, w: number, h: number] => {
      const [x, y] = [Math.min(...some.map((one) => one.x)), Math.min(...some.map((one) => one.y))];
      return [x, y, Math.max(...some.map((one) => one.x + one.w)) - x, Math.max(...some.map((one) => one.y + one.h)) - y];
    };
    const room = ([, , w, tall]: number[]): number =>
      Math.min(most(), box.clientWidth / ((w ?? 1) + 40), box.clientHeight / ((tall ?? 1) + 40));
    // As many as there is room for, from the first on; two are kept together where reading them takes a step closer.
    let count = chosen.length;
    while (count > 1 && room(edges(chosen.slice(0, count))) < (count > 2 ? READABLE : TOGETHER)) count -= 1;
    const [x, y, w, tall] = edges(chosen.slice(0, count));
    const to = Math.max(count > 1 ? TOGETHER : READABLE, room([x, y, w, tall]));
    scale(to);
    const before = (at: number, long: number, wide: number): number => Math.min((at + long / 2) * to - wide / 2, at * to - 12);
    box.scrollTo(before(x, w, box.clientWidth), before(y, tall, box.clientHeight));
    map?.update(zoom);
  };
  let [wide, high] = [0, 0];
  let first: Place[] = [];
  /** In the room that there is now, and again in each other room: behind another tab there was none, and on the whole screen there is more. */
  const watch = new ResizeObserver(() => {
    const [width, height] = [side.clientWidth, side.clientHeight];
    if (Math.abs(width - wide) < OTHER && Math.abs(height - high) < OTHER) return;
    [wide, high] = [width, height];
    if (box.clientWidth) open(first);
  });
  return {
    open: (chosen) => {
      first = chosen;
      watch.observe(side);
    },
  };
}

/** Dragging what is no card moves the drawing under the hand. */
function pan(box: HTMLElement, svg: SVGElement): void {
  svg.addEventListener("pointerdown", (event) => {
    if (event.button || (event.target as Element).closest("[role=button]")) return;
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointermove", (event) => {
    if (svg.hasPointerCapture(event.pointerId)) box.scrollBy(-event.movementX, -event.movementY);
  });
}

/** Marks what holds the text; Enter goes from one to the next. */
function search(box: HTMLElement, places: Place[], model: Model): HTMLElement {
  const label = model.t("find a node or tensor", "查找节点或张量");
  const count = h("span", { role: "status" });
  let found: Place[] = [];
  let at = -1;
  const look = (): void => {
    const text = input.value.trim().toLowerCase();
    found = text ? places.filter((place) => place.text.toLowerCase().includes(text)) : [];
    at = -1;
    for (const place of places) toggle(place.element, "v-found", found.includes(place));
    count.textContent = text ? String(found.length) : "";
    if (found[0]) reveal(box, found[0].element);
  };
  const key = (event: KeyboardEvent): void => {
    if (event.key === "Escape" || event.key === "ArrowUp" || event.key === "ArrowDown") return;
    event.stopPropagation(); // a letter is a letter here, no key of the Explorer's
    if (event.key !== "Enter" || !found.length) return;
    at = (at + 1) % found.length;
    found[at]?.go();
    reveal(box, (found[at] as Place).element);
    count.textContent = `${at + 1} / ${found.length}`;
  };
  const input: HTMLInputElement = h("input", {
    class: "v-search",
    type: "search",
    placeholder: label,
    label: label,
    input: look,
    keydown: key,
  });
  return h("span", { class: "v-find" }, input, count);
}

/** The whole drawing, small, with the part in sight, beside it; only where the room does not hold it all and is no narrow column. */
function overview(
  box: HTMLElement,
  size: { width: number; height: number },
  places: Place[],
  model: Model,
): { element: HTMLElement; update(zoom: number): void } | null {
  if (size.width < 900 && size.height < 900) return null;
  const scale = MAP / Math.max(size.width, size.height);
  const view = s("rect", { class: "v-view" });
  const svg = s("svg", { width: size.width * scale, height: size.height * scale, viewBox: `0 0 ${size.width} ${size.height}` });
  for (const { x, y, w, h: tall } of places) svg.append(s("rect", { x, y, width: w, height: tall, class: "v-dot" }));
  svg.append(view);
  const element = h("div", { class: "v-map", "aria-hidden": "true", title: model.t("overview", "总览") }, svg);
  let now = 1;
  const update = (zoom: number): void => {
    now = zoom;
    const room = element.parentElement?.clientWidth ?? 0; // the overview's own room counts: what it hides must not bring it back
    element.hidden = room < 420 || (size.width * zoom < room && size.height * zoom < box.clientHeight + 2);
    for (const [name, value] of [
      ["x", box.scrollLeft],
      ["y", box.scrollTop],
      ["width", box.clientWidth],
      ["height", box.clientHeight],
    ] as const)
      view.setAttribute(name, String(value / zoom));
  };
  const go = (event: PointerEvent): void => {
    if (!event.buttons) return;
    const edge = svg.getBoundingClientRect();
    box.scrollTo(
      ((event.clientX - edge.left) / scale) * now - box.clientWidth / 2,
      ((event.clientY - edge.top) / scale) * now - box.clientHeight / 2,
    );
  };
  svg.addEventListener("pointerdown", go);
  svg.addEventListener("pointermove", go);
  requestAnimationFrame(() => update(now));
  return { element, update };
}
