/** What the pictures share: their frame, their style, and short texts for values and shapes. */

import type { Model } from "../core/contract";
import { h } from "../core/dom";
import { GREY } from "../core/palette";
import type { FailedScene, Scene, Views } from "../core/wire";

export { shape, value } from "../core/numbers";

/** The view's part of the scene; null when Python left it out. When Python failed on it, the view fails too, and its panel says so. */
export function part<Name extends keyof Views>(model: Model, name: Name): Views[Name] | null {
  const found = model.scene[name] as Views[Name] | FailedScene | undefined | null;
  if (typeof found !== "object" || found === null) return null;
  if ("failed" in found) throw found.failed;
  return found;
}

/** Whether the view's part of the scene is there and holds anything; `count` may meet data of any kind. */
export function sent<Name extends keyof Views>(scene: Scene, name: Name, count: (found: Views[Name]) => number | undefined): boolean {
  const found = scene[name] as Views[Name] | undefined;
  try {
    return !!found && !!count(found);
  } catch {
    return false;
  }
}

/** A box that scrolls by itself and says what it holds. */
export function frame(root: HTMLElement, label: string): HTMLElement {
  const box = h("div", { class: "plv", tabindex: "-1", group: label });
  root.replaceChildren(box);
  return box;
}

export function nothing(root: HTMLElement, text: string): { update(): void; destroy(): void } {
  root.replaceChildren(h("p", { class: "pl-nothing" }, text));
  return { update() {}, destroy: () => root.replaceChildren() };
}

export function cut(text: string, limit: number): string {
  return text.length > limit ? `${text.slice(0, limit - 1)}…` : text;
}

/** The last entry at or before `step`; entries are in order. */
export function at<Entry extends { step: number }>(entries: readonly Entry[], step: number): Entry | undefined {
  let [low, high] = [0, entries.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((entries[middle] as Entry).step <= step) low = middle + 1;
    else high = middle;
  }
  return entries[low - 1];
}

/** Says how many things Python did not even send. */
export function leftOut(box: HTMLElement, count: number | undefined, model: Model): void {
  if (count) box.append(h("p", { class: "v-dim" }, model.t(`${count} more are left out here.`, `此处另有 ${count} 个未列出。`)));
}

/** The hue of a storage; its name stands beside it. */
export function swatch(storage: string | null, model: Model): HTMLElement {
  return h("span", { class: "v-hue", style: `background:${storage ? model.hue(storage) : GREY}`, "aria-hidden": "true" });
}

export function bytes(count: number): string {
  const power = Math.min(3, Math.floor(Math.log2(Math.max(1, count)) / 10));
  return `${Number((count / 1024 ** power).toFixed(1))} ${["B", "KiB", "MiB", "GiB"][power]}`;
}

/** How many elements a memory has, what one of them takes, and all: `4 × float32 (4 B each) · 16 B`. */
export function measure({ size, dtype, nbytes }: { size: number; dtype: string; nbytes: number | null }, model: Model): string {
  if (nbytes === null) return `${size} × ${dtype}`;
  const each = size > 1 && nbytes % size === 0 ? model.t(` (${nbytes / size} B each)`, `（每个 ${nbytes / size} B）`) : "";
  return `${size} × ${dtype}${each} · ${bytes(nbytes)}`;
}

export function toggle(element: Element, name: string, on: boolean): void {
  element.classList.toggle(name, on);
}

/** What is written on an element is its name, and `text` describes it; without anything written, `text` is the name. */
export function describe(element: SVGElement, text: string): void {
  element.setAttribute(element.textContent ? "aria-description" : "aria-label", text);
}

/** Acts on click, Enter and Space, like a button; for SVG elements that are none. */
export function pressable(element: SVGElement, label: string, go: () => void): void {
  element.setAttribute("role", "button");
  element.setAttribute("tabindex", "-1");
  describe(element, label);
  element.addEventListener("click", go);
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    event.stopPropagation();
    go();
  });
}

/** Scrolls `element` into its box's sight when it is out of it, `first` to its upper edge; the page itself stays where it is. */
export function reveal(box: HTMLElement, element: Element, first = false): void {
  const [outer, inner] = [box.getBoundingClientRect(), element.getBoundingClientRect()];
  if (!inner.width && !inner.height) return;
  const out = inner.top < outer.top || inner.bottom > outer.bottom;
  if (out && first) box.scrollTop += inner.top - outer.top;
  else if (out && inner.height < outer.height) box.scrollTop += inner.top - outer.top - (outer.height - inner.height) / 3;
  if (inner.left < outer.left || inner.right > outer.right)
    box.scrollLeft += inner.left - outer.left - Math.max(0, (outer.width - inner.width) / 3);
}
