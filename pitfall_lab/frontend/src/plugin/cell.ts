/** Edits of a fix, written into the cells that the program came from: a picture in a cell's output asks by an event, and this answers. */

import type { Cell } from "@jupyterlab/cells";
import type { INotebookTracker, NotebookPanel } from "@jupyterlab/notebook";

const REQUEST = "pitfall-lab-cell";

interface Edit {
  line: number;
  end_line: number;
  text: string;
  /** Where several cells make the program: the cell's id, and the line in it. */
  cell?: string;
  own?: number;
}

interface Request {
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
    const place = event.composedPath()[0];
    let panel: NotebookPanel | undefined;
    tracker?.forEach((one) => {
      if (place instanceof Node && one.node.contains(rootHost(place))) panel = one;
    });
    const own = panel?.content.widgets.find((cell) => cell.node.contains(rootHost(place as Node)));
    if (!panel || !own || own.model.type !== "code") return;
    if (request.ask === "can") request.done = true;
    else if (request.ask === "apply") apply(panel, own, request);
    else undo(panel, own, request);
  });
}

/** The element of the page in whose shadow something stands. */
function rootHost(node: Node): Node {
  let here = node;
  for (let root = here.getRootNode(); root instanceof ShadowRoot; root = here.getRootNode()) here = root.host;
  return here;
}

function source(cell: Cell): string {
  return cell.model.sharedModel.getSource();
}

/** The magic line stands before the program, so its lines count from the one after it. */
function offset(cell: Cell): number {
  return /^\s*%%pitfall\b/.test(source(cell)) ? 1 : 0;
}

/** Which cell an edit is for, and the lines in it; null when that cell is gone. */
function target(panel: NotebookPanel, own: Cell, edit: Edit): { cell: Cell; from: number; to: number } | null {
  const cell = edit.cell ? panel.content.widgets.find((one) => one.model.id === edit.cell) : own;
  if (!cell) return null;
  const from = (edit.own ?? edit.line) - 1 + offset(cell);
  return { cell, from, to: from + edit.end_line - edit.line };
}

function apply(panel: NotebookPanel, own: Cell, request: Request): void {
  const program = request.text.split("\n");
  const texts = new Map<Cell, string[]>();
  for (const edit of [...request.edits].sort((a, b) => b.line - a.line)) {
    const place = target(panel, own, edit);
    if (!place) return void (request.refused = GONE);
    const lines = texts.get(place.cell) ?? source(place.cell).split("\n");
    const now = lines.slice(place.from, place.to + 1).join("\n");
    if (now !== program.slice(edit.line - 1, edit.end_line).join("\n")) return void (request.refused = CHANGED);
    lines.splice(place.from, place.to - place.from + 1, ...(edit.text ? edit.text.replace(/\n$/, "").split("\n") : []));
    texts.set(place.cell, lines);
  }
  for (const [cell, lines] of texts) {
    const [was, is] = [source(cell), lines.join("\n")];
    before.set(cell, { was, is });
    cell.model.sharedModel.setSource(is);
  }
  request.done = true;
}

/** Only what still is as the fix left it is put back: nothing that was typed since is lost. */
function undo(panel: NotebookPanel, own: Cell, request: Request): void {
  const cells = new Set(request.edits.flatMap((edit) => target(panel, own, edit)?.cell ?? []));
  const kept = [...cells].map((cell) => [cell, before.get(cell)] as const);
  if (!kept.length || kept.some(([cell, known]) => known?.is !== source(cell))) return void (request.refused = CHANGED);
  for (const [cell, known] of kept) cell.model.sharedModel.setSource((known as { was: string }).was);
  request.done = true;
}
