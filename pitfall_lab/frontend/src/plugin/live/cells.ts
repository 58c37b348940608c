/** Going from what the panel says to the cell that it speaks of. */

import type { Cell, ICodeCellModel } from "@jupyterlab/cells";
import type { NotebookPanel } from "@jupyterlab/notebook";
import { h } from "../../core/dom";
import type { Say } from "../words";
import type { CellRef, Role } from "./protocol";

/** A cell that was edited since has the same id; one that was deleted is not found. */
export function cellOf(notebook: NotebookPanel, { id, count }: CellRef): Cell | null {
  const { widgets } = notebook.content;
  const counted = (cell: Cell): boolean => cell.model.type === "code" && (cell.model as ICodeCellModel).executionCount === count;
  return (id ? widgets.find((cell) => cell.model.id === id) : widgets.find(counted)) ?? null;
}

export async function goTo(notebook: NotebookPanel, ref: CellRef, line: number | null = null): Promise<void> {
  const cell = cellOf(notebook, ref);
  if (!cell) return;
  const { content } = notebook;
  content.activeCellIndex = content.widgets.indexOf(cell);
  content.deselectAll();
  await content.scrollToItem(content.activeCellIndex, "smart");
  if (line !== null && cell.editor && line >= 1 && line <= cell.editor.lineCount)
    cell.editor.setCursorPosition({ line: line - 1, column: 0 });
  cell.node.classList.remove("pl-live-here");
  void cell.node.offsetWidth; // The mark fades; asked for twice, it starts again.
  cell.node.classList.add("pl-live-here");
  cell.node.addEventListener("animationend", () => cell.node.classList.remove("pl-live-here"), { once: true });
}

export const ROLES: Record<Role, [en: string, zh: string]> = {
  saved: ["saved", "保存"],
  changed: ["changed", "修改"],
  made: ["made", "创建"],
  stale: ["out of date", "已过时"],
};

/** `In [5] saved`, as a button that shows the cell. */
export function cellButton(notebook: NotebookPanel, ref: CellRef & { line?: number | null; role?: Role }, say: Say): HTMLElement {
  const where = `In [${ref.count || " "}]`;
  const gone = !cellOf(notebook, ref);
  const title = gone
    ? say("This cell is no longer in the notebook", "这个单元格已不在 notebook 中")
    : say(`Show the cell${ref.line ? `, line ${ref.line}` : ""}`, `显示单元格${ref.line ? `，第 ${ref.line} 行` : ""}`);
  const button = h(
    "button",
    { class: "pl-live-cell", type: "button", title, click: () => void goTo(notebook, ref, ref.line ?? null) },
    where,
  );
  if (gone) button.disabled = true;
  if (ref.role) button.append(" ", h("span", {}, say(...ROLES[ref.role])));
  return button;
}
