/** What an Explorer found, as marks in the cells that its program came from. It says so by an event, each time that it is drawn. */

import type { Cell } from "@jupyterlab/cells";
import { type INotebookTracker, NotebookActions, type NotebookPanel } from "@jupyterlab/notebook";
import type { Text } from "../../core/contract";
import { apply, cellAround, type Edit, undo } from "../cell";
import type { Level } from "../live/protocol";
import { type Mark, type Remedy, setMarks } from "./marks";
import { offset } from "./write";

const FOUND = "pitfall-lab-found";
const LEVELS: Record<string, Level> = { error: "error", warning: "silent" };
const NOT_DONE: Text = { en: "The cell could not be edited.", zh: "无法修改单元格。" };

/** As `core/found.ts` sends it. */
interface Found {
  text: string;
  parts: { line: number; own: number; cell: string }[];
  findings: { severity: string; title: Text; message: Text; line: number; fixes: { title: Text; verified: boolean; edits: Edit[] }[] }[];
}

const originOf = (cell: Cell): string => `explorer ${cell.model.id}`;

export function markFindings(tracker: INotebookTracker | null): void {
  document.addEventListener(FOUND, (event) => {
    const place = cellAround(event, tracker);
    if (place) mark(place.panel, place.own, (event as CustomEvent<Found>).detail);
  });
  // What the Explorer below a cell said, was said of its last run.
  NotebookActions.executionScheduled.connect((_, { cell }) => setMarks(originOf(cell), new Map()));
}

function mark(panel: NotebookPanel, own: Cell, { text, parts, findings }: Found): void {
  const found = new Map<object, Mark[]>();
  const lines = text.split("\n");
  for (const { severity, title, message, line, fixes } of findings) {
    const part = parts.findLast((one) => one.line <= line);
    const cell = part?.cell ? panel.content.widgets.find((one) => one.model.id === part.cell) : own;
    if (!cell) continue;
    const remedies = fixes.map((fix): Remedy => {
      const ask = (what: "apply" | "undo", act: typeof apply) => (): Text | null => {
        const request = { ask: what, text, edits: fix.edits } as Parameters<typeof apply>[2];
        act(panel, own, request);
        return request.done ? null : (request.refused ?? NOT_DONE);
      };
      return { title: fix.title, tried: fix.verified, apply: ask("apply", apply), undo: ask("undo", undo) };
    });
    const at = line - (part ? part.line - part.own : 0) + offset(cell);
    const { sharedModel } = cell.model;
    const one = { level: LEVELS[severity] ?? "note", line: at, code: lines[line - 1] ?? "", title, sentence: message, remedies };
    found.set(sharedModel, [...(found.get(sharedModel) ?? []), one]);
  }
  setMarks(originOf(own), found);
}
