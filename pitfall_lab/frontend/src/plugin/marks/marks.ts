/** What is marked in the cells of the notebooks: kept per cell and per origin, so that each replaces only what it said itself. */

import type { Text } from "../../core/contract";
import type { Level } from "../live/protocol";

/** An edit that helps. Both sides answer with why it could not be done, or nothing. */
export interface Remedy {
  title: Text;
  /** Whether the edited program was run. */
  tried: boolean;
  apply(): Text | null;
  undo(): Text | null;
}

export interface Mark {
  level: Level;
  /** Lines count from 1. `code` is what stood there: where something else stands now, nothing is marked. */
  line: number;
  code: string;
  title: Text;
  sentence: Text;
  remedies: Remedy[];
}

type Cell = object;

/** The model that a cell's editor shares is the key: editors come and go while one scrolls. */
const kept = new WeakMap<Cell, Map<string, Mark[]>>();
const watching = new WeakMap<Cell, Set<() => void>>();
/** Which cells an origin has marked. */
const origins = new Map<string, Set<Cell>>();

export function marksOf(cell: Cell): Mark[] {
  return [...(kept.get(cell)?.values() ?? [])].flat();
}

/** All that `origin` has to say, cell by cell; what it said before is gone. */
export function setMarks(origin: string, found: ReadonlyMap<Cell, Mark[]>): void {
  const before = origins.get(origin) ?? new Set();
  if (found.size) origins.set(origin, new Set(found.keys()));
  else origins.delete(origin);
  for (const cell of new Set([...before, ...found.keys()])) {
    const marks = found.get(cell);
    const all = kept.get(cell) ?? new Map<string, Mark[]>();
    if (marks?.length) kept.set(cell, all.set(origin, marks));
    else all.delete(origin);
    watching.get(cell)?.forEach((tell) => tell());
  }
}

/** The marked text was edited: whatever is said of it, was said of something else. */
export function forget(cell: Cell, mark: Mark): void {
  const all = kept.get(cell);
  all?.forEach((marks, origin) =>
    all.set(
      origin,
      marks.filter((one) => one !== mark),
    ),
  );
}

export function watch(cell: Cell, tell: () => void): () => void {
  const all = watching.get(cell) ?? new Set();
  watching.set(cell, all.add(tell));
  return () => void all.delete(tell);
}
