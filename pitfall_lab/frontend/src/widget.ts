/** The anywidget module: one Explorer per view of the widget, in step with the widget's state but never waiting for a kernel. */

import type { Language, State } from "./core/contract";
import { createExplorer, showRefusal, type ExplorerHandle } from "./core/explorer";
import { readScene, readTrace } from "./core/load";
import { ExplorerModel } from "./core/model";
import { VIEWS } from "./views";

interface WidgetModel {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  save_changes(): void;
  on(event: string, fn: () => void): void;
  off(event: string, fn: () => void): void;
}

const SHARED = ["step", "focus", "language"] as const;
const QUIET = 150;

function languageOf(widget: WidgetModel): Language {
  return widget.get("language") === "zh" ? "zh" : "en";
}

/** Mirrors step, focus and language between the Explorer and the widget. Python hears of it when the hand rests. */
function connect(widget: WidgetModel, { model }: ExplorerHandle): () => void {
  let timer = 0;
  const save = (): void => {
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
  // Read all three before setting any: setting one tells the widget what the others are here.
  const hear = (): void => {
    const [language, step, focus] = [languageOf(widget), widget.get("step") as number, String(widget.get("focus") ?? "")];
    model.language = language;
    model.step = step;
    model.focus = focus;
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

function render({ model, el }: { model: WidgetModel; el: HTMLElement }): () => void {
  let handle: ExplorerHandle | null = null;
  let disconnect = (): void => {};
  const clear = (): void => {
    disconnect();
    handle?.destroy();
    handle = null;
  };
  let turn = 0;
  const draw = async (): Promise<void> => {
    clear();
    const mine = (turn += 1);
    try {
      const [trace, scene] = await Promise.all([textOf(model.get("_trace")), textOf(model.get("_scene"))]);
      if (mine !== turn) return;
      handle = createExplorer(el, readTrace(trace), readScene(scene), VIEWS, languageOf(model));
      disconnect = connect(model, handle);
    } catch (error) {
      showRefusal(el, error, languageOf(model));
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
