/** All notebooks that are open, each with what is known of its kernel; and which of them the panel shows. */

import type { INotebookTracker, NotebookPanel } from "@jupyterlab/notebook";
import { Signal } from "@lumino/signaling";
import type { Language } from "../../core/contract";
import { Live } from "./live";
import type { Message } from "./protocol";

export class Notebooks {
  /** Another notebook came to the front, or the whole was switched on or off. */
  readonly moved = new Signal<this, void>(this);
  /** Something came from a kernel. */
  readonly heard = new Signal<this, { live: Live; what: Message["kind"] | "state" }>(this);
  private readonly all = new Map<NotebookPanel, Live>();
  private on = false;
  private stale = true;
  private shown = false;

  constructor(
    private readonly tracker: INotebookTracker,
    private readonly language: Language,
  ) {
    tracker.widgetAdded.connect((_, notebook) => this.follow(notebook));
    tracker.currentChanged.connect(() => this.look());
    // A page that is left says so: its kernels go on, and should not do work that no page shows.
    window.addEventListener("pagehide", () => this.all.forEach((live) => live.dispose()));
  }

  get enabled(): boolean {
    return this.on;
  }

  get current(): Live | null {
    const notebook = this.tracker.currentWidget;
    return (notebook && this.all.get(notebook)) ?? null;
  }

  /** The settings. */
  configure(on: boolean, stale: boolean): void {
    this.stale = stale;
    if (on !== this.on) {
      this.on = on;
      if (on) this.tracker.forEach((notebook) => this.follow(notebook));
      else for (const notebook of [...this.all.keys()]) this.leave(notebook);
    }
    this.look();
  }

  /** Whether anybody can see the panel: only then the kernel in front makes rows. */
  show(shown: boolean): void {
    this.shown = shown;
    this.look();
  }

  private follow(notebook: NotebookPanel): void {
    if (!this.on || notebook.isDisposed || this.all.has(notebook)) return;
    const live = new Live(notebook, this.language);
    this.all.set(notebook, live);
    live.changed.connect((_, what) => this.heard.emit({ live, what }));
    notebook.disposed.connect(() => this.leave(notebook));
    this.look();
  }

  private leave(notebook: NotebookPanel): void {
    this.all.get(notebook)?.dispose();
    this.all.delete(notebook);
  }

  private look(): void {
    const front = this.current;
    for (const live of this.all.values()) live.watch({ visible: this.shown && live === front, stale: this.stale });
    this.moved.emit();
  }
}
