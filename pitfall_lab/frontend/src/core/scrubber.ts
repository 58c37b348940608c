/** The scrubber: a native slider over a strip of event ticks, so that it works with mouse, touch and assistive tools. */

import type { Text } from "./contract";
import { h, s } from "./dom";
import { mark } from "./marks";
import type { ExplorerModel } from "./model";
import type { Story } from "./story";
import { say } from "./words";

const HEIGHT = 40;
/** Beyond this many events the ticks touch each other and become a quiet band. */
const DENSE = 200;

/** Tick shapes say what kind of event it is: a call is short, a write is tall and thick, a backward node hangs down. */
function ticks(model: ExplorerModel): SVGElement {
  const paths = { call: "", write: "", node: "", error: "" };
  for (const event of model.trace.events) {
    const at = event.step + 1;
    if (event.error) paths.error += `M${at} ${event.kind === "node" ? 20 : 10}V30`;
    else if (event.writes.length) paths.write += event.kind === "node" ? `M${at} 20V28` : `M${at} 12V20`;
    else if (event.kind === "node") paths.node += `M${at} 20V27`;
    else paths.call += `M${at} 15V20`;
  }
  const gaps = model.trace.reach.gaps.map(({ step }) => `M${step + 0.5} 6V34`).join("");
  const drawn = Object.entries(paths).map(([kind, d]) => s("path", { class: `pl-t-${kind}`, d: d || "M0 0" }));
  const viewBox = `0 0 ${Math.max(1, model.trace.events.length)} ${HEIGHT}`;
  return s(
    "svg",
    { class: model.last > DENSE ? "pl-ticks pl-dense" : "pl-ticks", viewBox, preserveAspectRatio: "none", "aria-hidden": "true" },
    s("path", { class: "pl-axis", d: `M0 20H${Math.max(1, model.trace.events.length)}` }),
    ...drawn,
    s("path", { class: "pl-t-gap", d: gaps || "M0 0" }),
  );
}

/** What the strip shows, for the help: a sign and what it means. */
export function timeSigns(): [Element | string, Text][] {
  const sign = (kind: string): Element => h("i", { class: `pl-key pl-key-${kind}` });
  return [
    [
      "1 / 9",
      { en: "a step of all steps: a call or a node, however long it took", zh: "全部步骤中的一步：一次调用或一个节点，与用时无关" },
    ],
    [sign("call"), { en: "above the line: a call of the program", zh: "线以上：程序中的一次调用" }],
    [sign("node"), { en: "below the line: a node that backward runs", zh: "线以下：反向传播运行的一个节点" }],
    [sign("gap"), { en: "dashes: here rounds that repeat were not recorded", zh: "虚线：这里有重复的轮次没有记录" }],
    [sign("write"), { en: "dark: it writes into memory in place", zh: "深色：原地写入内存" }],
  ];
}

/** The same in one line below the strip. */
function legend(model: ExplorerModel): HTMLElement {
  const dark = h("i", { class: "pl-key pl-key-write" });
  const [above, below] = [
    model.t("1 tick = 1 step · above: calls, ", "一格 = 一步 · 上：调用，"),
    model.t(" in place · below: backward", " 原地写入 · 下：反向传播"),
  ];
  const left = model.trace.reach.gaps.length
    ? [model.t(" · ", " · "), h("i", { class: "pl-key pl-key-gap" }), model.t(" left out", " 省略")]
    : [];
  return h("p", { class: "pl-legend", "aria-hidden": "true" }, above, dark, below, ...left);
}

/** The beats of the story as pins above the strip. */
function pins(model: ExplorerModel, story: Story | undefined): HTMLElement {
  const box = h("div", { class: "pl-pins", "aria-hidden": "true" });
  for (const { role, step } of story?.beats ?? []) {
    if (step === null || role === "other") continue;
    const pin = mark(role);
    pin.style.insetInlineStart = `${((step + 1) / Math.max(1, model.trace.events.length)) * 100}%`;
    box.append(pin);
  }
  return box;
}

export class Scrubber {
  readonly element: HTMLElement;
  readonly input: HTMLInputElement;
  #pins: HTMLElement;

  readonly #model: ExplorerModel;

  constructor(model: ExplorerModel) {
    this.#model = model;
    this.input = h("input", { type: "range", min: -1, max: model.last, step: 1, label: model.t("Step", "步骤") });
    this.input.addEventListener("input", () => (this.#model.step = Number(this.input.value)));
    this.#pins = pins(model, undefined);
    const signs = timeSigns().map(([, text]) => say(text, model.language));
    this.input.title = signs.join(model.t("; ", "；"));
    this.element = h("div", { class: "pl-scrub" }, ticks(model), this.#pins, this.input, legend(model));
  }

  pin(story: Story | undefined): void {
    const next = pins(this.#model, story);
    this.#pins.replaceWith(next);
    this.#pins = next;
  }

  update(): void {
    this.input.value = String(this.#model.step);
    const place = `${this.#model.step + 1} / ${this.#model.trace.events.length}`;
    this.input.setAttribute("aria-valuetext", place);
  }
}
