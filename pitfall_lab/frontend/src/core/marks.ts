/** Small drawings with a fixed meaning: provenance dots, and the marks saved / written / raised. Patterns, not colours. */

import type { By } from "./contract";
import { s } from "./dom";
import type { Role } from "./story";

/** Filled: observed. Ring: modelled. Dot in a ring: both agree. */
export function dot(by: By | "observed" | "modelled" | "agreed", title: string): SVGElement {
  const kind = by[0];
  const mark = s("svg", { class: "pl-dot", viewBox: "0 0 12 12", role: "img", label: title }, s("title", {}, title));
  if (kind !== "o") mark.append(s("circle", { cx: 6, cy: 6, r: 4.6, fill: "none", stroke: "currentColor", "stroke-width": 1.4 }));
  if (kind !== "m") mark.append(s("circle", { cx: 6, cy: 6, r: kind === "o" ? 4.2 : 2.2, fill: "currentColor" }));
  return mark;
}

const SHAPES: Record<Role, Record<string, string | number>> = {
  // A notch, as on the node in the graph: something is kept in here.
  saved: { d: "M2 2.5h8v7H8.2V6.6a2.2 2.2 0 0 0-4.4 0v2.9H2z", fill: "currentColor" },
  changed: { d: "M2 10l.6-2.6L8.3 1.7l2 2-5.7 5.7zM2 10", fill: "currentColor" },
  raised: { d: "M2.5 2.5l7 7m0-7l-7 7", stroke: "currentColor", "stroke-width": 2, fill: "none" },
  wrong: { d: "M2 4.4h8M2 7.6h8M8 2L4 10", stroke: "currentColor", "stroke-width": 1.6, fill: "none" },
  other: { d: "M6 3.4a2.6 2.6 0 1 0 .01 0z", fill: "currentColor" },
};

/** The mark of a role; `role` in the class lets the style make raised and wrong red, and nothing else. */
export function mark(role: Role): SVGElement {
  return s("svg", { class: `pl-mark pl-${role}`, viewBox: "0 0 12 12", "aria-hidden": "true" }, s("path", SHAPES[role]));
}
