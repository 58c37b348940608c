/** Explaining several cells together: what is offered where a cell failed, and before one does. */

import type { CodeCell } from "@jupyterlab/cells";
import { NotebookActions, type NotebookPanel } from "@jupyterlab/notebook";
import { h } from "../core/dom";
import { prose } from "../core/prose";
import { explainCell } from "./explain";
import { cellOf } from "./live/cells";
import type { Again, Warning } from "./live/protocol";
import { sourceOf } from "./marks/write";
import { languageOf, type Say } from "./words";

/** The button with the cells that it runs, and what that changes besides. */
export function together({ cells, effects }: Again, click: () => void, say: Say, ahead = ""): HTMLElement {
  const names = cells.map(({ count }) => `In [${count}]`).join(", ");
  const words = say(`Explain together with ${names}`, `与 ${names} 一起解释`);
  const title = ahead
    ? say(`Run ${names} and ${ahead} again, recorded as one program`, `运行 ${names} 和 ${ahead}，作为一个程序记录`)
    : say(`Run ${names} and this cell again, recorded as one program`, `重新运行 ${names} 和此单元格，作为一个程序记录`);
  const button = h("button", { type: "button", class: "pl-live-explain", title, click }, words);
  const runs = ahead
    ? say(`Runs them again, and \`${ahead}\`.`, `会重新运行它们，并运行 \`${ahead}\`。`)
    : say("Runs them again.", "会重新运行它们。");
  return h("div", { class: "pl-live-together" }, button, h("span", {}, ...prose(`${runs} ${effects[languageOf(say)]}`)));
}

/** The same under a warning: the backward that is warned of has not been run yet. */
export function togetherAhead(notebook: NotebookPanel, { again, cells }: Warning, say: Say): HTMLElement[] {
  if (!again) return [];
  const code = `${again.root}.backward()`;
  const click = (): void => {
    const places = [...again.cells, ...cells]
      .map((ref) => cellOf(notebook, ref))
      .map((cell) => notebook.content.widgets.indexOf(cell as CodeCell));
    const cell = backwardAfter(notebook, Math.max(...places), again.root) ?? added(notebook, Math.max(...places), code);
    const counts = again.cells.map(({ count }) => count);
    if (cell) void explainCell(notebook, say, cell, counts);
  };
  return [together(again, click, say, code)];
}

/** The cell that the reader would have run next: the first one further down that calls this backward. */
function backwardAfter(notebook: NotebookPanel, at: number, root: string): CodeCell | null {
  const { widgets } = notebook.content;
  const calls = (text: string): boolean =>
    text.split("\n").some((line) => line.split("#")[0]?.replace(/\s/g, "").includes(`${root}.backward(`));
  const place = widgets.findIndex((cell, index) => index > at && cell.model.type === "code" && calls(sourceOf(cell)));
  if (place < 0) return null;
  notebook.content.activeCellIndex = place;
  return widgets[place] as CodeCell;
}

/** A new cell with the backward; it goes again as any edit of the notebook does. */
function added(notebook: NotebookPanel, at: number, code: string): CodeCell | null {
  const { content } = notebook;
  if (at >= 0) content.activeCellIndex = at;
  NotebookActions.insertBelow(content);
  const cell = content.activeCell;
  if (cell?.model.type !== "code") return null;
  cell.model.sharedModel.setSource(code);
  return cell as CodeCell;
}
