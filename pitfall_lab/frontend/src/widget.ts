/** The anywidget module: one Explorer per view of the widget, in step with the widget's state but never waiting for a kernel. */

import type { Language, State, Text } from "./core/contract";
import { createExplorer, type ExplorerHandle, showRefusal } from "./core/explorer";
import { readScene, readTrace } from "./core/load";
import { createLook } from "./core/look";
import { ExplorerModel } from "./core/model";
import type { Answer, Lab } from "./core/whatif";
import { say } from "./core/words";
import { VIEWS } from "./views";

interface WidgetModel {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  save_changes(): void;
  send?(content: unknown): void;
  on(event: string, fn: (...args: never[]) => void): void;
  off(event: string, fn: (...args: never[]) => void): void;
}

/** The style sheet; build.mjs puts it in. */
declare const SHEET: string;
const STYLE = SHEET;

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
  const isEcho = (name: string, value: unknown): boolean =>
    sent.some((one) => one.name === name && one.value === value && Date.now() - one.at < ECHO);
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
  if (!(sent instanceof DataView) || !sent.byteLength) return String(sent);
  return new Response(new Blob([sent as DataView<ArrayBuffer>]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
}

/** So many milliseconds a run, and a write, may take; then the reader reads that the kernel does not answer. */
const PATIENCE = { what_if: 90_000, edit: 4000 };

type Reply = { what_if?: string; edit?: true; failed?: Text | string; compared?: Answer["compared"] };

/** Asks Python for something, and waits for the answer of the same name. Only names and numbers are sent. */
function request(widget: WidgetModel, name: keyof typeof PATIENCE, content: unknown): Promise<[Reply, DataView[]]> {
  return new Promise((resolve, reject) => {
    const silent = { en: "the kernel does not answer: it is busy or gone.", zh: "内核没有应答：忙或已停止。" };
    const stop = (): void => {
      window.clearTimeout(timer);
      widget.off("msg:custom", hear);
    };
    const fail = (text: Text | string): void => (stop(), reject(new Error(say(text, languageOf(widget)))));
    const hear = (message: Reply, buffers: DataView[]): void => {
      if (!(name in message) || (name === "what_if" && message.what_if !== content)) return;
      if (message.failed) return fail(message.failed);
      stop();
      resolve([message, buffers]);
    };
    const timer = window.setTimeout(fail, PATIENCE[name], silent);
    widget.on("msg:custom", hear);
    try {
      widget.send?.({ [name]: content });
    } catch {
      fail(silent);
    }
  });
}

async function ask(widget: WidgetModel, id: string): Promise<Answer> {
  const [{ compared }, buffers] = await request(widget, "what_if", id);
  const [trace, scene] = await Promise.all(buffers.map(textOf));
  return { compared: compared as Answer["compared"], trace: readTrace(trace ?? ""), scene: readScene(scene ?? "") };
}

function render({ model, el }: { model: WidgetModel; el: HTMLElement }): () => void {
  let handle: { model: ExplorerModel; amended?(): void; destroy(): void } | null = null;
  let disconnect = (): void => {};
  const clear = (): void => {
    disconnect();
    handle?.destroy();
    handle = null;
  };
  let turn = 0;
  /** Shows the changed program in the place of the first one. The widget's step stays the first one's. */
  const open = async (answer: Answer): Promise<void> => {
    const language = handle?.model.language ?? languageOf(model);
    clear();
    disconnect = () => {};
    handle = createExplorer(el, STYLE, answer.trace, answer.scene, VIEWS, language, { back: () => void draw() });
    handle.model.step = answer.compared.first ?? handle.model.last;
  };
  const cells = (): HTMLElement[] => [...(el.shadowRoot?.querySelectorAll<HTMLElement>("td[tabindex]") ?? [])];
  const draw = async (): Promise<void> => {
    const at = cells().indexOf(el.shadowRoot?.activeElement as HTMLElement);
    clear();
    const mine = (turn += 1);
    try {
      const [trace, scene, rest, tried] = (await Promise.all(
        ["_trace", "_scene", "_rest", "_tried"].map((name) => textOf(model.get(name))),
      )) as [string, string, string, string];
      if (mine !== turn) return;
      const lab: Lab = model.send ? { ask: (id) => ask(model, id), stop: () => model.send?.({ stop: true }), open } : {};
      const view = VIEWS.find(({ id }) => id === model.get("_view"));
      if (view) {
        const edit =
          view.id !== "storage"
            ? undefined
            : async (tensor: string, index: number[], text: string): Promise<void> =>
                void (await request(model, "edit", { tensor, index, text }));
        handle = createLook(el, STYLE, readTrace(trace), readScene(scene), view, languageOf(model), edit);
        if (at >= 0) cells()[at]?.focus();
        return;
      }
      handle = createExplorer(
        el,
        STYLE,
        readTrace(trace),
        { ...readScene(scene), ...readScene(rest), ...readScene(tried) },
        VIEWS,
        languageOf(model),
        lab,
      );
      disconnect = connect(model, handle as ExplorerHandle);
    } catch (error) {
      showRefusal(el, STYLE, error, languageOf(model));
    }
  };
  /** What comes while the picture is already there: the rest of large pictures, and the findings again, with what came of their fixes. */
  const amend = (name: "_rest" | "_tried") => async (): Promise<void> => {
    const scene = readScene(await textOf(model.get(name)));
    if (!handle?.amended || !Object.keys(scene).length) return;
    handle.model.amend(scene);
    handle.amended();
  };
  void draw();
  model.on("change:_trace", draw);
  const [fill, retell] = [amend("_rest"), amend("_tried")];
  model.on("change:_rest", fill);
  model.on("change:_tried", retell);
  return () => {
    model.off("change:_trace", draw);
    model.off("change:_rest", fill);
    model.off("change:_tried", retell);
    turn += 1;
    clear();
  };
}

/** The states that one model gives when it is walked through `steps`, for the test that compares them with Python's replay. */
export function walk(json: string, steps: number[]): State[] {
  const model = new ExplorerModel(readTrace(json), {});
  return steps.map((step) => model.stateAt(step));
}

export { meet } from "./views/broadcast";
export default { render };
