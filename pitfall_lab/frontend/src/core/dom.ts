/** Making elements. Text goes in as text, never as markup: names and messages come from the learner's program. */

const SVG = "http://www.w3.org/2000/svg";

export type Child = Node | string | null | undefined | false;
type Attributes = Record<string, string | number | boolean | ((event: never) => void)>;

function fill<E extends Element>(element: E, attributes: Attributes, children: Child[]): E {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "group") element.setAttribute("role", name);
    if (name === "group" || name === "label") element.setAttribute("aria-label", String(value));
    else if (typeof value === "function") element.addEventListener(name, value as unknown as EventListener);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false) element.setAttribute(name, String(value));
  }
  for (const child of children) if (child) element.append(child);
  return element;
}

/**
 * `h("button", {class: "pl-b", click: go}, "Go")`: functions are listeners, everything else is an attribute; `label` is what
 * assistive tools call the element, `group` the same for one that groups others.
 */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  return fill(document.createElement(tag), attributes, children);
}

export function s(tag: string, attributes: Attributes = {}, ...children: Child[]): SVGElement {
  return fill(document.createElementNS(SVG, tag) as SVGElement, attributes, children);
}
