/** How the elements of a tensor lie in its memory: the picture has them as the tensor does, and knows each by its place. */

import type { Cell } from "./contract";

/** Where a tensor's elements lie in its memory. */
export interface Layout {
  stride: readonly number[];
  offset: number;
}

export interface Order {
  /** The index of the first element that is read at a place of the memory; null where the tensor reads nothing. */
  indexOf(place: number): number | null;
  /** The place of the element with an index. */
  placeOf(index: number): number;
}

/** The elements of a tensor by their index, as it counts them, and by their places in the memory. */
export function ordered(size: readonly number[], { stride, offset }: Layout): Order {
  const axes = size.map((length, dim) => ({ length, step: stride[dim] ?? 0, unit: product(size.slice(dim + 1)) }));
  const placeOf = (index: number): number =>
    axes.reduce((place, { length, step, unit }) => place + (Math.floor(index / unit) % length) * step, offset);
  const moving = axes.filter(({ length, step }) => length > 1 && step).sort((a, b) => Math.abs(b.step) - Math.abs(a.step));
  // An array that is read backwards has its last element at the lowest place.
  const lowest = moving.reduce((place, { length, step }) => place + Math.min(0, (length - 1) * step), offset);
  const indexOf = (place: number): number | null => {
    let [rest, index] = [place - lowest, 0];
    for (const { length, step, unit } of moving) {
      const count = Math.floor(rest / Math.abs(step));
      if (count < 0 || count >= length) return null;
      rest -= count * Math.abs(step);
      index += (step < 0 ? length - 1 - count : count) * unit;
    }
    return rest ? null : index;
  };
  return { indexOf, placeOf };
}

export function product(numbers: readonly number[]): number {
  return numbers.reduce((all, one) => all * one, 1);
}

/** Whether the elements lie in the memory one after another, row after row. */
export function isInOrder(size: readonly number[], stride: readonly number[]): boolean {
  return size.every((length, dim) => length === 1 || stride[dim] === product(size.slice(dim + 1)));
}

/** A part of a tensor as rows of places in the memory, with null for what is left out; with `more`, the last row stands for rows that are. */
export interface Corner {
  places: (number | null)[][];
  more: boolean;
}

/** Up to so many rows and columns are drawn; of more, so many of the first. */
const SIDE = 4;
const CORNER = 3;

/**
 * The first rows and columns of a tensor whose elements do not lie row after row, as far as they are known; null where that is no table.
 * Of more than two dimensions, the last two of the first entry.
 */
export function firstCorner(all: ReadonlyMap<number, Cell>, size: readonly number[], layout: Layout): Corner | null {
  const { placeOf } = ordered(size, layout);
  const long = size.flatMap((length, dim) => (length > 1 ? [{ length, step: layout.stride[dim] }] : []));
  const [high, wide] = [long.at(-2)?.length ?? 1, long.at(-1)?.length ?? 1];
  if (long.length < 2 && long[0]?.step) return null;
  const few = (length: number): number => (length > SIDE ? CORNER : length);
  const isKnown = (r: number, c: number): boolean => all.has(placeOf(r * wide + c));
  const run = (most: number, isThere: (at: number) => boolean): number => {
    const end = Array.from({ length: most }, (_, at) => at).findIndex((at) => !isThere(at));
    return end < 0 ? most : end;
  };
  const every = (most: number, isThere: (at: number) => boolean): boolean => run(most, isThere) === most;
  const across = run(few(wide), (c) => isKnown(0, c));
  const below = run(few(high), (r) => every(across, (c) => isKnown(r, c)));
  const down = run(few(high), (r) => isKnown(r, 0));
  const beside = run(few(wide), (c) => every(down, (r) => isKnown(r, c)));
  const [rows, columns] = across * below > down * beside ? [below, across] : [down, beside];
  if (!rows || !columns || (rows === 1 && high > 1)) return null;
  const places: (number | null)[][] = Array.from({ length: rows }, (_, r) => [
    ...Array.from({ length: columns }, (_, c) => placeOf(r * wide + c)),
    ...(columns < wide ? [null] : []),
  ]);
  const more = rows < high || long.length > 2;
  const last = placeOf(product(size) - 1);
  if (more) places.push(places[0]?.map((_, at, row) => (at && at === row.length - 1 && all.has(last) ? last : null)) ?? []);
  return { places, more };
}
