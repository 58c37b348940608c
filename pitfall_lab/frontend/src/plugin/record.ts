/**
 * "Record every cell", notebook by notebook: kept in the notebook's metadata, so it is there after a restart and in the next session. The
 * kernel hears it by one constant line, before the first cell that comes after a restart.
 */

import type { JupyterFrontEnd } from "@jupyterlab/application";
import { Notification } from "@jupyterlab/apputils";
import type { INotebookTracker, NotebookPanel } from "@jupyterlab/notebook";
import type { Kernel } from "@jupyterlab/services";
import { recordIcon, recordingIcon } from "./icon";
import { languageOf, type Say } from "./words";

export const RECORD = "pitfall-lab:record-always";
const KEY = "pitfall_lab";

function isRecorded(notebook: NotebookPanel | null): boolean {
  const kept = notebook?.content.model?.getMetadata(KEY) as { record?: unknown } | null | undefined;
  return kept?.record === true;
}

function keep(notebook: NotebookPanel, on: boolean): void {
  const { model } = notebook.content;
  const { record: _, ...others } = (model?.getMetadata(KEY) ?? {}) as Record<string, unknown>;
  const now = on ? { ...others, record: true } : others;
  if (Object.keys(now).length) model?.setMetadata(KEY, now);
  else model?.deleteMetadata(KEY);
}

/** Says to the notebook's kernel what its metadata says. */
class Switch {
  private said: boolean | null = false;

  constructor(
    private readonly notebook: NotebookPanel,
    private readonly say: Say,
  ) {
    const { sessionContext } = notebook;
    sessionContext.kernelChanged.connect(() => this.again());
    sessionContext.statusChanged.connect((_, status) => {
      // What is sent now waits for the new kernel, and comes before the cells that are run there.
      if (status === "restarting" || status === "autorestarting") void Promise.resolve().then(() => this.again());
      else if (status === "idle") void this.tell();
    });
    void this.tell();
  }

  /** Another kernel records nothing. */
  private again(): void {
    this.said = false;
    void this.tell();
  }

  async tell(): Promise<boolean> {
    const kernel = this.notebook.sessionContext.session?.kernel;
    const on = isRecorded(this.notebook);
    if (!kernel || kernel.isDisposed || on === this.said) return true;
    this.said = on;
    const understood = await send(kernel, `%pitfall ${on ? "on" : "off"} --language ${languageOf(this.say)}`).catch(() => null);
    if (!understood && this.said === on) this.said = null;
    return understood !== false;
  }
}

async function send(kernel: Kernel.IKernelConnection, line: string): Promise<boolean> {
  const code = `%load_ext pitfall_lab\n${line}`;
  const future = kernel.requestExecute({ code, silent: true, store_history: false, allow_stdin: false, stop_on_error: false });
  return (await future.done).content.status === "ok";
}

export function addRecording(app: JupyterFrontEnd, tracker: INotebookTracker, say: Say): void {
  const switches = new WeakMap<NotebookPanel, Switch>();
  const follow = (notebook: NotebookPanel): void =>
    void notebook.context.ready.then(() => {
      if (notebook.isDisposed) return;
      switches.set(notebook, new Switch(notebook, say));
      notebook.content.model?.metadataChanged.connect((_, { key }) => key === KEY && changed());
      changed();
    });
  const changed = (): void => app.commands.notifyCommandChanged(RECORD);
  tracker.forEach(follow);
  tracker.widgetAdded.connect((_, notebook) => follow(notebook));
  tracker.currentChanged.connect(changed);
  const on = (): boolean => isRecorded(tracker.currentWidget);
  app.commands.addCommand(RECORD, {
    label: say("Record every cell of this notebook", "记录此 notebook 的每个单元格"),
    caption: () =>
      on()
        ? say("Every cell that uses torch is recorded: click to stop", "正在记录每个使用 torch 的单元格：点击停止")
        : say(
            "Record every cell that uses torch, and show below it what happened",
            "记录每个使用 torch 的单元格，并在其下方显示发生了什么",
          ),
    icon: () => (on() ? recordingIcon : recordIcon),
    describedBy: { args: { type: "object", properties: {} } },
    isEnabled: () => tracker.currentWidget !== null,
    isToggled: on,
    isToggleable: true,
    execute: async () => {
      const notebook = tracker.currentWidget;
      if (!notebook) return;
      keep(notebook, !on());
      if (await switches.get(notebook)?.tell()) return;
      keep(notebook, false);
      Notification.warning(
        say(
          "This kernel cannot record: pitfall_lab is not installed in its environment.",
          "该内核无法记录：其环境中没有安装 pitfall_lab。",
        ),
        { autoClose: 8000 },
      );
    },
  });
}
