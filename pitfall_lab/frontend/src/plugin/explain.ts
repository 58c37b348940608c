/** "Explain this cell": run its code again, traced, and show the Explorer in the cell's own output. */

import type { ISessionContext } from "@jupyterlab/apputils";
import { Notification } from "@jupyterlab/apputils";
import type { Cell, CodeCell } from "@jupyterlab/cells";
import { NotebookActions, type NotebookPanel } from "@jupyterlab/notebook";
import { OutputArea } from "@jupyterlab/outputarea";
import type { Kernel } from "@jupyterlab/services";
import { sourceOf } from "./marks/write";
import { drawn } from "./sight";
import { languageOf, type Say } from "./words";

const MAGIC = "%%pitfall";

/** The cell that was run last in each notebook: after Shift+Enter the active cell is the next one. */
const lastRun = new WeakMap<object, Cell>();

export function isRecorded(cell: Cell): boolean {
  return cell.model.type === "code" && sourceOf(cell).trimStart().startsWith(MAGIC);
}

export function rememberRuns(): void {
  NotebookActions.executed.connect((_, { notebook, cell }) => {
    if (cell.model.type === "code") lastRun.set(notebook, cell);
  });
}

/** The active code cell; when that is empty or no code, the cell that was run last, else the one above. */
export function cellToExplain(panel: NotebookPanel): CodeCell | null {
  const { activeCell, activeCellIndex, widgets } = panel.content;
  const usable = (cell: Cell | null | undefined): cell is CodeCell =>
    !!cell && !cell.isDisposed && cell.model.type === "code" && sourceOf(cell).trim() !== "";
  if (usable(activeCell)) return activeCell;
  const last = lastRun.get(panel.content);
  if (usable(last) && widgets.includes(last)) return last;
  const above = widgets.slice(0, Math.max(0, activeCellIndex)).reverse().find(usable);
  return (above as CodeCell | undefined) ?? null;
}

async function pythonKernel(context: ISessionContext, say: Say): Promise<Kernel.IKernelConnection | null> {
  await context.ready;
  const kernel = context.session?.kernel;
  if (!kernel) {
    Notification.warning(say("This notebook has no kernel to run the cell.", "这个 notebook 没有可用的内核。"), { autoClose: 6000 });
    return null;
  }
  if ((await kernel.info).language_info.name !== "python") {
    Notification.warning(say("Only Python cells can be explained.", "只能解释 Python 单元格。"), { autoClose: 6000 });
    return null;
  }
  return kernel;
}

/** Loading an extension twice does nothing, so this may be sent before every run. */
async function loadExtension(kernel: Kernel.IKernelConnection): Promise<boolean> {
  const future = kernel.requestExecute({ code: "%load_ext pitfall_lab", silent: true, store_history: false, allow_stdin: false });
  return (await future.done).content.status === "ok";
}

async function run(cell: CodeCell, code: string, context: ISessionContext): Promise<void> {
  const { model } = cell;
  model.sharedModel.transact(
    () => {
      model.clearExecution();
      cell.outputHidden = false;
    },
    false,
    "silent-change",
  );
  cell.setPrompt("*");
  model.trusted = true;
  try {
    const reply = await OutputArea.execute(code, cell.outputArea, context, { cellId: model.sharedModel.getId() });
    if (!cell.isDisposed) model.executionCount = reply?.content.execution_count ?? null;
  } catch {
    // The run was cancelled: a restart, an interrupt or a closed notebook. There is nothing to add to that.
    if (!cell.isDisposed) cell.setPrompt("");
  }
}

/** A traceback may stand above the Explorer: the reader who wants an explanation need not look for it, nor click before its keys work. */
async function hand(cell: CodeCell, stillWaiting: () => boolean): Promise<void> {
  const explorer = await drawn(cell);
  if (!explorer) return;
  if (stillWaiting()) explorer.shadowRoot?.querySelector<HTMLElement>("[data-home]")?.focus({ preventScroll: true });
  explorer.scrollIntoView({ block: "start" });
}

export async function explainCell(panel: NotebookPanel, say: Say, cell = cellToExplain(panel), earlier: number[] = []): Promise<void> {
  if (!cell) {
    Notification.info(say("There is no code cell to explain yet.", "还没有可以解释的代码单元格。"), { autoClose: 6000 });
    return;
  }
  // A reader who goes to another cell while the kernel works keeps the focus there.
  const asked = panel.content.activeCell;
  const source = sourceOf(cell);
  if (/^\s*%%/.test(source) && !isRecorded(cell)) {
    Notification.info(say("A cell that begins with another %% magic cannot be explained.", "以其他 %% 魔法命令开头的单元格无法解释。"), {
      autoClose: 6000,
    });
    return;
  }
  const kernel = await pythonKernel(panel.sessionContext, say);
  if (!kernel) return;
  if (!(await loadExtension(kernel))) {
    Notification.error(
      say("This kernel has no pitfall_lab: install it in the kernel's environment.", "该内核没有 pitfall_lab：请在内核的环境中安装。"),
      { autoClose: 10000 },
    );
    return;
  }
  const words = [MAGIC, ...(languageOf(say) === "zh" ? ["--language zh"] : []), ...(earlier.length ? [`--with ${earlier.join(",")}`] : [])];
  const has = isRecorded(cell);
  const own = has && earlier.length ? source.trimStart().split("\n").slice(1).join("\n") : source;
  await run(cell, has && !earlier.length ? source.trimStart() : `${words.join(" ")}\n${own}`, panel.sessionContext);
  await hand(cell, () => panel.isVisible && panel.content.activeCell === asked);
}
