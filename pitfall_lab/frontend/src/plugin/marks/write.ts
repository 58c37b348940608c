/** Edits of a cell as one step of its undo history: what Apply wrote, Ctrl+Z takes back too. */

import type { Cell } from "@jupyterlab/cells";

interface History {
  stopCapturing(): void;
}

export function sourceOf(cell: Cell): string {
  return cell.model.sharedModel.getSource();
}

/** The magic line stands before the program, so its lines count from the one after it. */
export function offset(cell: Cell): number {
  return /^\s*%%pitfall\b/.test(sourceOf(cell)) ? 1 : 0;
}

/** Only what differs is written: marks and the cursor stay where they are. */
export function rewrite(cell: Cell, is: string): void {
  const { sharedModel } = cell.model;
  const was = sharedModel.getSource();
  const most = Math.min(was.length, is.length);
  let [head, tail] = [0, 0];
  while (head < most && was[head] === is[head]) head += 1;
  while (tail < most - head && was[was.length - 1 - tail] === is[is.length - 1 - tail]) tail += 1;
  const history = (sharedModel as unknown as { undoManager?: History | null }).undoManager;
  history?.stopCapturing();
  sharedModel.updateSource(head, was.length - tail, is.slice(head, is.length - tail));
  history?.stopCapturing();
}

/** Takes back what `rewrite` wrote, when the cell still is as that left it. */
export function takeBack(cell: Cell, was: string, is: string): boolean {
  if (sourceOf(cell) !== is) return false;
  cell.model.sharedModel.undo();
  if (sourceOf(cell) !== was) rewrite(cell, was);
  return true;
}
