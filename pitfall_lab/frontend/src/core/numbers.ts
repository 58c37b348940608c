/** Numbers at a glance: a tensor's memory as cells, in full when small and by its ends when large. */

import type { Cell, Cells } from "./contract";
import { h } from "./dom";

/** Python's tuple: (3,), (2, 3), (). */
export function shape(size: readonly number[]): string {
  return size.length === 1 ? `(${size[0]},)` : `(${size.join(", ")})`;
}

/** A value of at most four significant digits, as the static pictures write it. */
export function value(cell: Cell | null | undefined, dtype = ""): string {
  if (cell === null || cell === undefined) return "·";
  if (typeof cell === "boolean") return cell ? "True" : "False";
  if (typeof cell !== "number") return String(cell);
  if (Number.isInteger(cell)) return Math.abs(cell) < 1e6 ? `${cell}${dtype.includes("float") ? "." : ""}` : cell.toExponential(2);
  const text = cell.toPrecision(4);
  return text.includes("e") || Math.abs(cell) < 1e-4 ? cell.toExponential(2) : text.replace(/(\.\d*?)0+$/, "$1");
}

/** Three digits: for cells that stand beside each other. */
export function brief(cell: Cell, dtype = ""): string {
  return typeof cell === "number" && !Number.isInteger(cell) && Math.abs(cell) < 1000 && Math.abs(cell) >= 0.001
    ? value(Number(cell.toPrecision(3)), dtype)
    : value(cell, dtype);
}

/** The cells that are known, by index; `null` is a gap of which nothing is known. Of more than `most`, the ends and those at `also`. */
export function known(cells: Cells | null, most: number, also: readonly number[] = []): ([index: number, cell: Cell] | null)[] {
  if (!cells) return [];
  const all = listed(cells);
  const count = Array.isArray(cells) ? cells.length : cells.count;
  const ends = all.length > most ? [...all.slice(0, most - 1), ...all.slice(-1)] : all;
  const nan = all.find(([, cell]) => cell === "nan"); // what is no number is what to look at
  const wanted = all.filter((one) => (one === nan || also.includes(one[0])) && !ends.includes(one));
  const chosen = wanted.length ? [...ends, ...wanted].sort((a, b) => a[0] - b[0]) : ends;
  return chosen.flatMap((one, at) => {
    const before = at ? (chosen[at - 1] as [number, Cell])[0] : -1;
    const gap = one[0] !== before + 1 ? [null] : [];
    return at === chosen.length - 1 && one[0] !== count - 1 ? [...gap, one, null] : [...gap, one];
  });
}

function listed(cells: Cells): [number, Cell][] {
  return Array.isArray(cells) ? cells.map((cell, index) => [index, cell]) : (cells.shown ?? []);
}

/** The first places to look at that the ends do not show: where what is written changes from moment to moment, and where NaN is. */
export function telling(moments: readonly (Cells | null)[], beside: readonly (Cells | null)[] = []): number[] {
  const all = moments.map((cells) => new Map(cells ? listed(cells).map(([at, cell]) => [at, brief(cell)]) : []));
  const changes = [...(all[0]?.keys() ?? [])].find((at) => new Set(all.flatMap((one) => one.get(at) ?? [])).size > 1);
  const nans = beside.flatMap((cells) => (cells ? (listed(cells).find(([, cell]) => cell === "nan")?.[0] ?? []) : []));
  return [...new Set([...(changes === undefined ? [] : [changes]), ...nans])];
}

/** Up to four numbers in full, of more their mean and extremes; empty where these are not known or one is no number. */
export function gist(cells: Cells | null | undefined, mean: string, dtype = "float"): string {
  const short = (one: number): string => value(Number(one.toPrecision(2)), dtype);
  const three = (middle: number, low: number, high: number): string => `${mean} ${short(middle)}, ${short(low)} … ${short(high)}`;
  if (!cells) return "";
  if (!Array.isArray(cells)) {
    const { mean: middle, low, high } = cells;
    return middle === undefined || low === undefined || high === undefined ? "" : three(middle, low, high);
  }
  if (!cells.length) return "";
  if (cells.length <= 4) return cells.map((cell) => value(cell, dtype)).join(", ");
  const numbers = cells.filter((cell): cell is number => typeof cell === "number");
  if (numbers.length < cells.length) return "";
  const sum = numbers.reduce((all, one) => all + one, 0);
  return three(sum / numbers.length, Math.min(...numbers), Math.max(...numbers));
}

/** A row of cells, wrapped as the tensor's last dimension is when it is small. */
export function cellRow(
  cells: Cells | null,
  size: number[] | null,
  was: Cells | null = null,
  most = 7,
  also: readonly number[] = [],
): HTMLElement | null {
  const row = known(cells, most, also);
  if (!row.length) return null;
  const old = new Map(known(was, 100, also).flatMap((one) => (one ? [one] : [])));
  const whole = !row.includes(null);
  const columns = whole && size?.length === 2 && (size[0] as number) > 1 && (size[0] as number) <= 4 ? (size[1] as number) : 0;
  const shown = row.map((one) => {
    if (!one) return h("i", { class: "pl-gap" }, "…");
    const changed = old.has(one[0]) && old.get(one[0]) !== one[1];
    return h("b", { class: changed ? "pl-cell pl-fresh" : "pl-cell" }, brief(one[1]));
  });
  if (!columns) return h("span", { class: "pl-cells" }, ...shown);
  // A number for which a narrow card has no room ends with an ellipsis: half a number would be another number.
  return h("span", { class: "pl-cells pl-rows", style: `grid-template-columns:repeat(${columns},minmax(0,max-content))` }, ...shown);
}
