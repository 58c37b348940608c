/**
 * What stands under a cell that failed: the traceback with the libraries' frames folded, and below it what torch's error means with a
 * button that explains it. Text only ever goes in as text; colours are JupyterLab's own.
 */

import { errorRendererFactory, MimeModel } from "@jupyterlab/rendermime";
import type { IRenderMime } from "@jupyterlab/rendermime-interfaces";
import { Panel, Widget } from "@lumino/widgets";
import { h } from "../core/dom";
import { prose } from "../core/prose";
import { HINT, readHint } from "./live/protocol";
import { together } from "./together";
import { languageOf, type Say } from "./words";

const ERROR = "application/vnd.jupyter.error";
const PLAIN = "application/vnd.jupyter.stderr";
const FEW = 1;

class HintLine extends Widget implements IRenderMime.IRenderer {
  constructor(
    private readonly explain: (place: Node, earlier: number[]) => void,
    private readonly say: Say,
  ) {
    super();
    this.addClass("pl-live-hint");
  }

  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    const hint = readHint(model.data[HINT]);
    this.node.replaceChildren();
    if (!hint) return;
    const { say } = this;
    const title = say(
      "Run this cell again, watched, and show what happened to its tensors",
      "在观察下重新运行这个单元格，并显示张量发生了什么",
    );
    const click = (): void => this.explain(this.node, []);
    const rule = hint.rule ? h("span", { class: "pl-live-rule" }, hint.rule) : null;
    const button = h("button", { type: "button", class: "pl-live-explain", title, click }, say("Explain", "解释"));
    this.node.append(h("p", {}, ...prose(hint.text[languageOf(say)]), rule), button);
    const { again } = hint;
    const earlier = again?.cells.map(({ count }) => count) ?? [];
    if (again) this.node.append(together(again, () => this.explain(this.node, earlier), say));
  }
}

export function hintFactory(explain: (place: Node, earlier: number[]) => void, say: Say): IRenderMime.IRendererFactory {
  return { safe: true, mimeTypes: [HINT], createRenderer: () => new HintLine(explain, say) };
}

/** Whether a part of IPython's traceback is a frame of what was installed, by the line that it begins with. */
export function isLibraryFrame(part: string): boolean {
  const [first = ""] = part
    // biome-ignore lint/suspicious/noControlCharactersInRegex: the escape that begins a colour of the terminal
    .replace(/\u001b\[[0-9;]*m/g, "")
    .trimStart()
    .split("\n");
  return /^File .*[\\/](?:site-packages|dist-packages|lib[\\/]python3\.\d+|torch|numpy)[\\/].*?:\d+/.test(first);
}

interface Stretch {
  frames: number;
  text: string;
}

/** The traceback in stretches: of the learner's own frames (and everything that is no frame), and of library frames. */
export function stretches(parts: string[]): Stretch[] {
  const found: { frames: number; parts: string[] }[] = [];
  for (const part of parts) {
    const library = isLibraryFrame(part);
    const last = found.at(-1);
    if (last && library === last.frames > 0) {
      last.parts.push(part);
      last.frames += Number(library);
    } else found.push({ frames: Number(library), parts: [part] });
  }
  return found.map(({ frames, parts: some }) => ({ frames, text: some.join("\n").replace(/\n+$/, "") }));
}

class FoldedError extends Panel implements IRenderMime.IRenderer {
  constructor(
    private readonly options: IRenderMime.IRendererOptions,
    private readonly folds: () => boolean,
    private readonly say: Say,
  ) {
    super();
    this.addClass("pl-folded-error");
  }

  async renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    for (const widget of [...this.widgets]) widget.dispose();
    const { traceback } = (model.data[ERROR] ?? {}) as { traceback?: unknown };
    const parts = Array.isArray(traceback) ? traceback.filter((part): part is string => typeof part === "string") : [];
    const found = this.folds() ? stretches(parts) : [];
    const hidden = found.reduce((sum, { frames }) => sum + frames, 0);
    // One frame is read faster than unfolded; and what is no traceback of IPython's stays as it is.
    if (hidden <= FEW) return this.part(String(model.data[PLAIN] ?? parts.join("\n")));
    for (const { frames, text } of found) await this.part(text, frames);
  }

  private async part(text: string, frames = 0): Promise<void> {
    const renderer = errorRendererFactory.createRenderer({ ...this.options, mimeType: PLAIN });
    if (frames === 0) this.addWidget(renderer);
    else this.addWidget(new Fold(this.say(`… ${frames} library frame${frames > 1 ? "s" : ""}`, `… ${frames} 个库内栈帧`), renderer));
    await renderer.renderModel(new MimeModel({ data: { [PLAIN]: text } }));
  }
}

/** A part of the traceback behind one line. */
class Fold extends Panel {
  constructor(words: string, inner: Widget) {
    super();
    this.addClass("pl-fold");
    const toggle = h("button", { type: "button", class: "pl-fold-line", "aria-expanded": "false" }, words);
    toggle.addEventListener("click", () => {
      inner.setHidden(!inner.isHidden);
      toggle.setAttribute("aria-expanded", String(!inner.isHidden));
    });
    inner.hide();
    this.addWidget(new Widget({ node: h("div", {}, toggle) }));
    this.addWidget(inner);
  }
}

export function errorFactory(folds: () => boolean, say: Say): IRenderMime.IRendererFactory {
  return { safe: true, mimeTypes: [ERROR], createRenderer: (options) => new FoldedError(options, folds, say) };
}
