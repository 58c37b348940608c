/**
 * After a run the first screen of its Explorer is brought into sight: the sentence and the picture. It is not, when the reader has done
 * anything in the notebook since, runs several cells, or sees both already; so nothing is taken from under the pointer.
 */

import type { Cell, CodeCell, ICodeCellModel } from "@jupyterlab/cells";
import { type Notebook, NotebookActions } from "@jupyterlab/notebook";

/** What scrolls in a notebook. */
const FRAME = ".jp-WindowedPanel-outer";
const ACTS = ["wheel", "touchmove", "pointerdown", "keydown"];
/** So many looks, one in each tenth of a second, until what was sent is drawn. */
const LOOKS = 80;

/** The last run of one notebook, and when its reader last did something in it. */
class Reader {
  readonly #notebook: Notebook;
  #together = false;
  #since = 0;
  #acted = 0;

  constructor(notebook: Notebook) {
    this.#notebook = notebook;
    const act = (event: Event): void => void (this.#acted = event.timeStamp);
    for (const kind of ACTS) notebook.node.addEventListener(kind, act, { capture: true, passive: true });
  }

  begins(cell: Cell): void {
    const others = [...(this.#notebook.model?.cells ?? [])].filter((one) => one !== cell.model);
    this.#together = others.some((one) => (one as ICodeCellModel).executionState === "running");
    this.#since = performance.now();
  }

  /** What to ask later: whether the reader still only waits for this one run. */
  waiting(): () => boolean {
    const [since, together] = [this.#since, this.#together];
    return () => !together && since === this.#since && this.#acted < since && this.#notebook.isVisible;
  }
}

/** Follows the runs of all notebooks; `isRecorded` says whether an Explorer comes of a cell. */
export function followRuns(isRecorded: (cell: Cell) => boolean): void {
  const readers = new WeakMap<Notebook, Reader>();
  NotebookActions.executionScheduled.connect((_, { notebook, cell }) => {
    const reader = readers.get(notebook) ?? new Reader(notebook);
    readers.set(notebook, reader);
    reader.begins(cell);
  });
  NotebookActions.executed.connect((_, { notebook, cell }) => {
    const waiting = readers.get(notebook)?.waiting();
    if (waiting && isRecorded(cell)) void showFirstScreen(cell as CodeCell, waiting);
  });
}

async function showFirstScreen(cell: CodeCell, waiting: () => boolean): Promise<void> {
  const explorer = await drawn(cell);
  if (explorer && waiting() && !isSeen(explorer)) bringIntoSight(explorer);
}

/** The Explorer in a cell's output, once its picture is there. */
export async function drawn(cell: CodeCell): Promise<HTMLElement | null> {
  for (let look = 0; look < LOOKS && !cell.isDisposed; look += 1) {
    const host = cell.outputArea.node.querySelector<HTMLElement>("[data-lm-suppress-shortcuts]");
    if (host && pictureOf(host)) return host;
    await new Promise((resolve) => window.setTimeout(resolve, 100));
  }
  return null;
}

function pictureOf(explorer: HTMLElement): Element | null {
  return explorer.shadowRoot?.querySelector("[data-part=picture], [data-part=step], .pl-refused") ?? null;
}

function isSeen(explorer: HTMLElement): boolean {
  const frame = explorer.closest(FRAME)?.getBoundingClientRect();
  const picture = pictureOf(explorer)?.getBoundingClientRect();
  return !frame || !picture || (explorer.getBoundingClientRect().top >= frame.top - 1 && picture.bottom <= frame.bottom + 1);
}

/** All of it where there is room, as little moved as can be; else from its top on. */
export function bringIntoSight(explorer: HTMLElement): void {
  const room = explorer.closest(FRAME)?.clientHeight ?? window.innerHeight;
  explorer.scrollIntoView({ block: explorer.offsetHeight <= room ? "nearest" : "start" });
}
