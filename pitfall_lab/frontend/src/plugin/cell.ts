/** Edits of a fix, written into the cells that the program came from: a picture in a cell's output asks by an event, and this answers. */

import type { Cell } from "@jupyterlab/cells";
import type { INotebookTracker, NotebookPanel } from "@jupyterlab/notebook";
import { offset, rewrite, sourceOf, takeBack } from "./marks/write";

const REQUEST = "pitfall-lab-cell";

export interface Edit {
  line: number;
  end_line: number;
  text: string;
  /** Where several cells make the program: the cell's id, and the line in it. */
  cell?: string;
  own?: number;
}

export interface Request {
  ask: "can" | "apply" | "undo";
  text: string;
  edits: Edit[];
  done?: boolean;
  refused?: { en: string; zh: string };
}

const CHANGED = { en: "The cell no longer says what was run; copy the fix instead.", zh: "单元格的内容已与运行时不同；请改用“复制”。" };
const GONE = { en: "A cell of this program is no longer in the notebook.", zh: "这个程序的某个单元格已不在 notebook 中。" };

/** What the cells said before a fix was applied, and after it. */
const before = new WeakMap<Cell, { was: string; is: string }>();

export function answerPictures(tracker: INotebookTracker | null): void {
  document.addEventListener(REQUEST, (event) => {
    const request = (event as CustomEvent<Request>).detail;
    const place = cellAround(event, tracker);
    if (!place) return;
    const { panel, own } = place;
    if (request.ask === "can") request.done = true;
    else if (request.ask === "apply") apply(panel, own, request);
    else undo(panel, own, request);
  });
}

/** The code cell in whose output something has happened. */
export function cellAround(event: Event, tracker: INotebookTracker | null): { panel: NotebookPanel; own: Cell } | null {
  const [place] = event.composedPath();
  if (!(place instanceof Node)) return null;
  const host = rootHost(place);
  const panel = tracker?.find((one) => one.node.contains(host));
  const own = panel?.content.widgets.find((cell) => cell.node.contains(host));
  return panel && own?.model.type === "code" ? { panel, own } : null;
}

/** The element of the page in whose shadow something stands. */
function rootHost(node: Node): Node {
  let here = node;
  for (let root = here.getRootNode(); root instanceof ShadowRoot; root = here.getRootNode()) here = root.host;
  return here;
}

/** Which cell an edit is for, and the lines in it; null when that cell is gone. */
function target(panel: NotebookPanel, own: Cell, edit: Edit): { cell: Cell; from: number; to: number } | null {
  const cell = edit.cell ? panel.content.widgets.find((one) => one.model.id === edit.cell) : own;
  if (!cell) return null;
  const from = (edit.own ?? edit.line) - 1 + offset(cell);
  return { cell, from, to: from + edit.end_line - edit.line };
}

export function apply(panel: NotebookPanel, own: Cell, request: Request): void {
  const program = request.text.split("\n");
  const texts = new Map<Cell, string[]>();
  for (const edit of [...request.edits].sort((a, b) => b.line - a.line)) {
    const place = target(panel, own, edit);
    if (!place) return void (request.refused = GONE);
    const lines = texts.get(place.cell) ?? sourceOf(place.cell).split("\n");
    const now = lines.slice(place.from, place.to + 1).join("\n");
    if (now !== program.slice(edit.line - 1, edit.end_line).join("\n")) return void (request.refused = CHANGED);
    lines.splice(place.from, place.to - place.from + 1, ...(edit.text ? edit.text.replace(/\n$/, "").split("\n") : []));
    texts.set(place.cell, lines);
  }
  for (const [cell, lines] of texts) {
    const [was, is] = [sourceOf(cell), lines.join("\n")];
    before.set(cell, { was, is });
    rewrite(cell, is);
  }
  request.done = true;
}

/** Only what still is as the fix left it is put back: nothing that was typed since is lost. */
export function undo(panel: NotebookPanel, own: Cell, request: Request): void {
  const cells = new Set(request.edits.flatMap((edit) => target(panel, own, edit)?.cell ?? []));
  const kept = [...cells].map((cell) => [cell, before.get(cell)] as const);
  if (!kept.length || kept.some(([cell, known]) => known?.is !== sourceOf(cell))) return void (request.refused = CHANGED);
  for (const [cell, known] of kept) if (known) takeBack(cell, known.was, known.is);
  request.done = true;
}
