/** Numbers at a glance: a tensor's memory as cells, in full when small and by its ends when large. */

import type { Cell, Cells } from "./contract";
import { h } from "./dom";
import { firstCorner, isInOrder, type Layout, ordered, product } from "./layout";

/** Python's tuple: (3,), (2, 3), (). */
export function shape(size: readonly number[]): string {
  return size.length === 1 ? `(${size[0]},)` : `(${size.join(", ")})`;
}

/** A value of at most four significant digits, as the static pictures write it. */
export function value(cell: Cell | null | undefined, dtype = ""): string {
  if (cell === null || cell === undefined) return "·";
  if (typeof cell === "boolean") return cell ? "True" : "False";
  if (typeof cell !== "number") return complex(cell, (part) => value(part, dtype));
  if (Number.isInteger(cell)) return Math.abs(cell) < 1e6 ? `${cell}${dtype.includes("float") ? "." : ""}` : cell.toExponential(2);
  const text = cell.toPrecision(4);
  return text.includes("e") || Math.abs(cell) < 1e-4 ? cell.toExponential(2) : text.replace(/(\.\d*?)0+$/, "$1");
}

const COMPLEX = /^([+-]?\d[\d.]*(?:e[+-]?\d+)?)([+-]\d[\d.]*(?:e[+-]?\d+)?)j$/;

/** A complex number with each part as `part` writes it; another text (`nan`) as it is. */
function complex(text: string, part: (one: number) => string): string {
  const [, real, imaginary] = COMPLEX.exec(text) ?? [];
  if (real === undefined || imaginary === undefined) return text;
  const second = part(Number(imaginary));
  return `${part(Number(real))}${second.startsWith("-") ? "" : "+"}${second}j`;
}

/** Three digits: for cells that stand beside each other. */
export function brief(cell: Cell, dtype = ""): string {
  if (typeof cell === "string") return complex(cell, (part) => brief(part, dtype));
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

/**
 * The cells of a memory, as the tensor with this size and layout orders them; without a layout they are all of its elements in order, and
 * with null they stand as they lie. In rows where the last dimension is small, or where the elements do not lie row after row.
 */
export function cellRow(
  cells: Cells | null,
  size: readonly number[] | null,
  was: Cells | null = null,
  most = 7,
  also: readonly number[] = [],
  layout?: Layout | null,
): HTMLElement | null {
  if (!cells) return null;
  const [now, old] = [new Map(listed(cells)), new Map(was ? listed(was) : [])];
  const drawn = new Set<number>();
  const box = (place: number, cell = now.get(place) ?? ""): HTMLElement => {
    const changed = old.has(place) && old.get(place) !== cell ? " pl-fresh" : "";
    const again = drawn.has(place) ? " pl-again" : "";
    drawn.add(place);
    return h("b", { class: `pl-cell${changed}${again}` }, brief(cell));
  };
  const corner = size && layout && !isInOrder(size, layout.stride) ? firstCorner(now, size, layout) : null;
  const seen = corner?.places.flat();
  if (corner && also.every((place) => seen?.includes(place) || !now.has(place)))
    return inRows(
      corner.places[0]?.length ?? 1,
      corner.places.flatMap((row, r) => {
        const end = corner.more && r === corner.places.length - 1;
        return row.map((place, c) => (place !== null ? box(place) : dots(!end ? "…" : c ? "" : "⋮")));
      }),
    );
  const order = size && layout ? ordered(size, layout) : null;
  const index = (place: number): number[] => (order ? [order.indexOf(place) ?? []].flat() : [place]);
  const elements = order && size ? { count: product(size), shown: inTurn(cells, index) } : cells;
  const row = known(elements, most, also.flatMap(index));
  if (!row.length) return null;
  const whole = !row.includes(null) && layout !== null;
  const columns = whole && size?.length === 2 && (size[0] as number) > 1 && (size[0] as number) <= 4 ? (size[1] as number) : 0;
  const shown = row.map((one) => (one ? box(order?.placeOf(one[0]) ?? one[0], one[1]) : dots("…")));
  return columns ? inRows(columns, shown) : h("span", { class: "pl-cells" }, ...shown);
}

function dots(sign: string): HTMLElement {
  return h("i", { class: "pl-gap" }, sign);
}

/** A number for which a narrow card has no room ends with an ellipsis: half a number would be another number. */
function inRows(columns: number, shown: HTMLElement[]): HTMLElement {
  return h("span", { class: "pl-cells pl-rows", style: `grid-template-columns:repeat(${columns},minmax(0,max-content))` }, ...shown);
}

/** The known cells by the index of their elements. */
function inTurn(cells: Cells, index: (place: number) => number[]): [number, Cell][] {
  const all = listed(cells).flatMap(([place, cell]) => index(place).map((at): [number, Cell] => [at, cell]));
  return all.sort((a, b) => a[0] - b[0]);
}
