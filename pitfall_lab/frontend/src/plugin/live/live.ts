/**
 * One notebook's kernel, as the live panel knows it: the kernel is made ready by one constant line, a comm is opened, and what comes
 * is kept. A kernel that has no pitfall_lab is left alone until it is another one.
 */

import type { NotebookPanel } from "@jupyterlab/notebook";
import type { Kernel } from "@jupyterlab/services";
import { Signal } from "@lumino/signaling";
import type { Language, Text } from "../../core/contract";
import { type Ask, type CellRef, type Message, type Row, type Rows, readMessage, TARGET, VERSION, type Warning } from "./protocol";

/** The only code that is ever sent without a click. */
const LOAD = "%load_ext pitfall_lab";

/** `none`: no kernel, or it is starting; `absent`: this kernel cannot say anything to us; `refused`: it speaks another version. */
export type State = "none" | "starting" | "live" | "absent" | "refused";

export interface Wishes {
  visible: boolean;
  stale: boolean;
}

export class Live {
  readonly changed = new Signal<this, Message["kind"] | "state">(this);
  state: State = "none";
  now: Rows | null = null;
  /** The rows after an earlier cell, while the panel shows them. */
  past: Rows | null = null;
  children = new Map<string, Row[]>();
  warned: { cell: CellRef; warnings: Warning[] } = { cell: { count: 0, id: "" }, warnings: [] };
  picture: Extract<Message, { kind: "picture" }> | null = null;
  /** The kernel's sentence about the last question, if that had no answer. */
  refusal: Text | null = null;
  private comm: Kernel.IComm | null = null;
  private attempt = 0;
  private lost = false;
  /** After which cell every row has been asked for. */
  private whole = -1;
  /** The request for every row that is not answered yet. */
  private asking: Kernel.IShellFuture | null = null;
  private wishes: Wishes = { visible: false, stale: true };

  constructor(
    readonly notebook: NotebookPanel,
    private readonly language: Language,
  ) {
    const { sessionContext } = notebook;
    sessionContext.kernelChanged.connect(this.onKernel, this);
    sessionContext.statusChanged.connect(this.onStatus, this);
    sessionContext.connectionStatusChanged.connect(this.onConnection, this);
    this.connect();
  }

  get isDisposed(): boolean {
    return this.attempt < 0;
  }

  dispose(): void {
    if (this.isDisposed) return;
    const { sessionContext } = this.notebook;
    sessionContext.kernelChanged.disconnect(this.onKernel, this);
    sessionContext.statusChanged.disconnect(this.onStatus, this);
    sessionContext.connectionStatusChanged.disconnect(this.onConnection, this);
    this.close();
    this.attempt = -1;
    Signal.clearData(this);
  }

  /** What the kernel should do after each cell. */
  watch(wishes: Wishes): void {
    const same = wishes.visible === this.wishes.visible && wishes.stale === this.wishes.stale;
    this.wishes = wishes;
    if (same) return;
    this.send({ ask: "watch", ...wishes });
    if (wishes.visible) this.send({ ask: "rows" });
  }

  send(ask: Ask): Kernel.IShellFuture | null {
    if (this.state !== "live" || !this.comm || this.comm.isDisposed) return null;
    try {
      return this.comm.send({ version: VERSION, ...ask });
    } catch {
      this.drop(); // The connection ended between two messages; the next kernel begins anew.
      return null;
    }
  }

  /**
   * Every row, to be sorted and searched: once after each cell. While cells run one after the other the kernel answers only behind
   * them, so that no second request is sent before the first is answered.
   */
  every(): void {
    const { now } = this;
    if (!now || now.more === 0 || now.cell.count === this.whole || this.asking) return;
    this.whole = now.cell.count;
    const asking = (this.asking = this.send({ ask: "rows", all: true }));
    const answered = (): void => {
      if (this.asking !== asking) return;
      this.asking = null;
      if (this.now && this.now.cell.count !== this.whole) this.changed.emit("rows");
    };
    asking?.done.then(answered, answered);
  }

  /** Shows the rows as they are again. */
  backToNow(): void {
    if (!this.past) return;
    this.past = null;
    this.changed.emit("rows");
  }

  private onKernel(): void {
    this.drop();
    this.connect();
  }

  private onStatus(_: unknown, status: Kernel.Status): void {
    if (["restarting", "autorestarting", "terminating", "dead"].includes(status)) this.drop();
    else if (status === "idle" && this.state === "none") this.connect();
  }

  /** A connection that was lost and is there again may belong to a kernel that has forgotten our comm. */
  private onConnection(_: unknown, status: Kernel.ConnectionStatus): void {
    if (status !== "connected") this.lost = this.state === "live";
    else if (this.lost) {
      this.lost = false;
      this.drop();
      this.connect();
    }
  }

  private connect(): void {
    const kernel = this.notebook.sessionContext.session?.kernel;
    if (!kernel || kernel.isDisposed || this.state !== "none") return;
    this.become("starting");
    const attempt = (this.attempt += 1);
    const current = (): boolean => attempt === this.attempt && !kernel.isDisposed;
    void this.open(kernel, current).catch(() => {
      // The kernel was restarted or has gone while it was asked: what comes next begins anew.
      if (attempt === this.attempt) this.become("none");
    });
  }

  private async open(kernel: Kernel.IKernelConnection, current: () => boolean): Promise<void> {
    const python = (await kernel.info).language_info.name === "python";
    if (!current()) return;
    if (!python || !kernel.handleComms || !(await loads(kernel))) {
      if (current()) this.become("absent");
      return;
    }
    if (!current()) return;
    const comm = kernel.createComm(TARGET);
    // What the panel asks about is looked at between two cells, in the kernel's main thread, never beside a running one.
    if ("commsOverSubshells" in comm) (comm as { commsOverSubshells: string }).commsOverSubshells = "disabled";
    comm.onMsg = (message) => this.take(comm, message.content.data);
    comm.onClose = () => {
      if (comm === this.comm) this.forget(this.refusal && !this.now ? "refused" : "absent");
    };
    this.comm = comm;
    await comm.open({ version: VERSION, language: this.language }).done;
    if (!current() || this.comm !== comm) return;
    this.become("live");
    this.send({ ask: "watch", ...this.wishes });
    if (this.wishes.visible) this.send({ ask: "rows" });
  }

  private take(comm: Kernel.IComm, data: unknown): void {
    const message = comm === this.comm ? readMessage(data) : null;
    if (!message) return;
    this.refusal = null;
    if (message.kind === "rows") this.takeRows(message);
    else if (message.kind === "children") this.children.set(message.id, message.rows);
    else if (message.kind === "warnings") this.warned = message;
    else if (message.kind === "picture") this.picture = message;
    else this.refusal = message.text;
    this.changed.emit(message.kind);
  }

  private takeRows(message: Rows): void {
    if (message.past) this.past = message;
    else if (message.from > 0 && this.now?.cell.count === message.cell.count) {
      const before = this.now.rows.slice(0, message.from);
      const known = new Set(before.map(({ id }) => id));
      this.now = { ...message, rows: [...before, ...message.rows.filter(({ id }) => !known.has(id))] };
    } else {
      this.now = message;
      this.children.clear();
    }
  }

  /** Ends the conversation in a way that the kernel notices. */
  private close(): void {
    const { comm } = this;
    this.comm = null;
    try {
      if (comm && !comm.isDisposed) comm.close();
    } catch {
      // The connection is gone, and with it the comm.
    }
  }

  /** After this, nothing of the kernel that was there is known any more. */
  private drop(): void {
    this.attempt += 1;
    this.close();
    this.forget("none");
  }

  private forget(state: State): void {
    this.comm = null;
    this.now = this.past = this.picture = null;
    this.children.clear();
    this.whole = -1;
    this.asking = null;
    this.warned = { cell: { count: 0, id: "" }, warnings: [] };
    this.become(state);
    this.changed.emit("warnings");
  }

  private become(state: State): void {
    if (state === this.state) return;
    this.state = state;
    this.changed.emit("state");
  }
}

/** Whether the kernel has pitfall_lab. Silent: nothing is counted, stored or shown, whatever comes of it. */
async function loads(kernel: Kernel.IKernelConnection): Promise<boolean> {
  const future = kernel.requestExecute({ code: LOAD, silent: true, store_history: false, allow_stdin: false, stop_on_error: false });
  return (await future.done).content.status === "ok";
}
