/** Motion that explains: it shows where something comes from, once and short. Readers who want less motion see where it is in the end. */

const MS = 450;

/** From the first frame to where it is drawn. */
function play(element: Element, first: Keyframe, last: Keyframe): void {
  if (!matchMedia("(prefers-reduced-motion: reduce)").matches) element.animate([first, last], { duration: MS, easing: "ease-out" });
}

/** An element comes out of another one: a new view out of the memory that it looks at, a stretched cell out of the one behind it. */
export function glide(element: HTMLElement, from: HTMLElement): void {
  const [here, there] = [element.getBoundingClientRect(), from.getBoundingClientRect()];
  if (!here.width || !there.width) return;
  play(element, { translate: `${there.left - here.left}px ${there.top - here.top}px`, opacity: 0.3 }, { translate: "0 0", opacity: 1 });
}

/** A dashed line runs towards its end. */
export function flow(line: Element): void {
  play(line, { strokeDashoffset: 60, strokeWidth: 3.2 }, { strokeDashoffset: 0 });
}
