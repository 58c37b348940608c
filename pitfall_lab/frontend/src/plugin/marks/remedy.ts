/** What the live panel can do about a warning: an edit of the cell that caused it. */

import type { Cell } from "@jupyterlab/cells";
import { NotebookActions, type NotebookPanel } from "@jupyterlab/notebook";
import type { Text } from "../../core/contract";
import { cellOf } from "../live/cells";
import type { Warning } from "../live/protocol";
import type { Remedy } from "./marks";
import { offset, rewrite, sourceOf, takeBack } from "./write";

/** What each cell said when it was run last: the kernel's lines are lines of that. */
const ran = new WeakMap<object, string>();

export function rememberTexts(): void {
  NotebookActions.executionScheduled.connect((_, { cell }) => void ran.set(cell.model.sharedModel, sourceOf(cell)));
}

export function textAt(cell: Cell, line: number): string {
  return (ran.get(cell.model.sharedModel) ?? sourceOf(cell)).split("\n")[line - 1] ?? "";
}

const CHANGED: Text = { en: "The cell no longer says what was run.", zh: "单元格的内容已与运行时不同。" };

/** `h = h.clone()` before the line that changes `h`: then the graph keeps what it saved. */
export function remedies(notebook: NotebookPanel, { copy }: Warning): Remedy[] {
  const cell = copy && cellOf(notebook, { id: copy.cell, count: -1 });
  if (!copy || !cell) return [];
  const { name } = copy;
  const at = copy.line + offset(cell) - 1;
  const code = textAt(cell, at + 1);
  const added = `${name} = ${name}.clone()`;
  let known: [was: string, is: string] | null = null;
  const title = {
    en: `\`${added}\` before \`${code.trim()}\`: the graph keeps what it saved. Then run the cells again from the one that saved it.`,
    zh: `在 \`${code.trim()}\` 之前加 \`${added}\`：计算图保留它保存的内容。然后从保存它的单元格起重新运行。`,
  };
  const apply = (): Text | null => {
    const was = sourceOf(cell);
    const lines = was.split("\n");
    if (lines[at] !== code) return CHANGED;
    lines.splice(at, 0, (/^\s*/.exec(code)?.[0] ?? "") + added);
    known = [was, lines.join("\n")];
    rewrite(cell, known[1]);
    return null;
  };
  const undo = (): Text | null => (known && takeBack(cell, ...known) ? null : CHANGED);
  return [{ title, tried: false, apply, undo }];
}
