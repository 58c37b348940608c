/** The anywidget module: one Explorer per view of the widget, in step with the widget's state but never waiting for a kernel. */

import type { Language, State } from "./core/contract";
import { createExplorer, showRefusal, type ExplorerHandle } from "./core/explorer";
import { readScene, readTrace } from "./core/load";
import { ExplorerModel } from "./core/model";
import type { Answer, Lab } from "./core/whatif";
import { VIEWS } from "./views";

interface WidgetModel {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  save_changes(): void;
  send?(content: unknown): void;
  on(event: string, fn: (...args: never[]) => void): void;
  off(event: string, fn: (...args: never[]) => void): void;
}

const SHARED = ["step", "focus", "language"] as const;
const QUIET = 150;
/** So long after it was sent, a value that comes back is taken for the kernel's echo of it. */
const ECHO = 5000;

function languageOf(widget: WidgetModel): Language {
  return widget.get("language") === "zh" ? "zh" : "en";
}

/** Mirrors step, focus and language between the Explorer and the widget. Python hears of it when the hand rests. */
function connect(widget: WidgetModel, { model }: ExplorerHandle): () => void {
  let timer = 0;
  let sent: { name: string; value: unknown; at: number }[] = [];
  const save = (): void => {
    const at = Date.now();
    sent = [...sent.filter((one) => at - one.at < ECHO), ...SHARED.map((name) => ({ name, value: model[name], at }))];
    try {
      widget.save_changes();
    } catch {
      // The kernel is gone. Everything here goes on without it.
    }
  };
  const tell = (): void => {
    let changed = false;
    for (const name of SHARED) {
      if (widget.get(name) === model[name]) continue;
      widget.set(name, model[name]);
      changed = true;
    }
    if (!changed) return;
    window.clearTimeout(timer);
    timer = window.setTimeout(save, QUIET);
  };
  /** A slow kernel echoes what was sent when the reader is already further on: that must not take them back. */
  const isEcho = (name: string, value: unknown): boolean => sent.some((one) => one.name === name && one.value === value && Date.now() - one.at < ECHO);
  // Read all three before setting any: setting one tells the widget what the others are here.
  const hear = (): void => {
    const heard = { language: languageOf(widget), step: widget.get("step") as number, focus: String(widget.get("focus") ?? "") };
    const echoed = SHARED.some((name) => heard[name] !== model[name] && isEcho(name, heard[name]));
    if (!isEcho("language", heard.language)) model.language = heard.language;
    if (!isEcho("step", heard.step)) model.step = heard.step;
    if (!isEcho("focus", heard.focus)) model.focus = heard.focus;
    if (echoed) tell();
  };
  hear();
  const stop = model.onChange(tell);
  for (const name of SHARED) widget.on(`change:${name}`, hear);
  return () => {
    window.clearTimeout(timer);
    stop();
    for (const name of SHARED) widget.off(`change:${name}`, hear);
  };
}

/** What Python sent: text, or text that it deflated. */
async function textOf(sent: unknown): Promise<string> {
  if (!(sent instanceof DataView)) return String(sent);
  return new Response(new Blob([sent as DataView<ArrayBuffer>]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
}

const PATIENCE = 90_000;

/** Sends the id of a change to Python and waits for the changed run. */
function ask(widget: WidgetModel, id: string): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const silent = languageOf(widget) === "zh" ? "内核没有应答。" : "the kernel does not answer.";
    const stop = (): void => {
      window.clearTimeout(timer);
      widget.off("msg:custom", hear);
    };
    const timer = window.setTimeout(() => (stop(), reject(new Error(silent))), PATIENCE);
    const hear = (message: { what_if?: string; failed?: string; told?: Answer["told"] }, buffers: DataView[]): void => {
      if (message.what_if !== id) return;
      stop();
      const { told } = message;
      if (!told) return reject(new Error(message.failed));
      Promise.all(buffers.map(textOf)).then(([trace, scene]) => resolve({ told, trace: readTrace(trace ?? ""), scene: readScene(scene ?? "") }), reject);
    };
    widget.on("msg:custom", hear);
    try {
      widget.send?.({ what_if: id });
    } catch {
      stop();
      reject(new Error(silent));
    }
  });
}

function render({ model, el }: { model: WidgetModel; el: HTMLElement }): () => void {
  let handle: ExplorerHandle | null = null;
  let disconnect = (): void => {};
  const clear = (): void => {
    disconnect();
    handle?.destroy();
    handle = null;
  };
  let turn = 0;
  const style = textOf(model.get("_style"));
  /** Shows the changed program in the place of the first one. The widget's step stays the first one's. */
  const open = async (answer: Answer): Promise<void> => {
    const language = handle?.model.language ?? languageOf(model);
    clear();
    disconnect = () => {};
    handle = createExplorer(el, await style, answer.trace, answer.scene, VIEWS, language, { back: () => void draw() });
    handle.model.step = answer.told.first ?? handle.model.last;
  };
  const draw = async (): Promise<void> => {
    clear();
    const mine = (turn += 1);
    try {
      const [trace, scene] = await Promise.all([textOf(model.get("_trace")), textOf(model.get("_scene"))]);
      if (mine !== turn) return;
      const lab: Lab = model.send ? { ask: (id) => ask(model, id), open } : {};
      handle = createExplorer(el, await style, readTrace(trace), readScene(scene), VIEWS, languageOf(model), lab);
      disconnect = connect(model, handle);
    } catch (error) {
      showRefusal(el, await style, error, languageOf(model));
    }
  };
  void draw();
  model.on("change:_trace", draw);
  return () => {
    model.off("change:_trace", draw);
    turn += 1;
    clear();
  };
}

/** The states that one model gives when it is walked through `steps`, for the test that compares them with Python's replay. */
export function walk(json: string, steps: number[]): State[] {
  const model = new ExplorerModel(readTrace(json), {});
  return steps.map((step) => model.stateAt(step));
}

export default { render };
