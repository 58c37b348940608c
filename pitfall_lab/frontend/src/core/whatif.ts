/** What if …: chips that ask Python for a changed run, and both runs side by side from their first difference. */

import type { Scene, Text, Trace } from "./contract";
import { h } from "./dom";
import type { ExplorerModel } from "./model";
import { prose } from "./prose";
import { say } from "./words";

export interface Change {
  id: string;
  title: Text;
}

interface Side {
  steps: { step: number; line: number | null; sentence: Text }[];
  more: number;
  raised: string;
  wrong: boolean;
  stopped?: Text | null;
}

interface Comparison {
  first: number | null;
  same: Text;
  sides: [Side, Side];
  gradients: [name: string, before: string, after: string][];
  peaks: [string, string];
}

/** What came back: the comparison, and the changed program's own trace and scene to be opened. */
export interface Answer {
  compared: Comparison;
  trace: Trace;
  scene: Scene;
}

/** How an Explorer reaches Python, and how it gives its place to the changed program and takes it back. */
export interface Lab {
  ask?(id: string): Promise<Answer>;
  /** Ends all trials. */
  stop?(): void;
  open?(answer: Answer): Promise<void>;
  back?(): void;
}

/** Lives as long as the Explorer, so that an answer survives a redraw. */
export class WhatIf {
  #chosen = "";
  #state: "idle" | "waiting" | "failed" | "done" = "idle";
  #answer: Answer | null = null;
  #failure = "";

  readonly #model: ExplorerModel;
  readonly #lab: Lab;
  readonly #redraw: () => void;

  constructor(model: ExplorerModel, lab: Lab, redraw: () => void) {
    this.#model = model;
    this.#lab = lab;
    this.#redraw = redraw;
  }

  get #changes(): Change[] {
    const offered = this.#model.scene.changes;
    return this.#lab.ask && Array.isArray(offered) ? offered : [];
  }

  /** Where the changed program is shown in the place of the first one: the way back. */
  back(): HTMLElement | null {
    const [model, back] = [this.#model, this.#lab.back];
    if (!back) return null;
    const text = model.t("This is the changed program.", "这是修改后的程序。");
    return h(
      "section",
      { class: "pl-changed", group: text, "data-part": "changed" },
      h("b", {}, text),
      " ",
      h("button", { class: "pl-chip", click: back }, model.t("back to the program as it was", "回到原来的程序")),
    );
  }

  draw(): HTMLElement | null {
    const model = this.#model;
    if (!this.#changes.length) return null;
    const chips = this.#changes.map((change) =>
      h(
        "button",
        {
          class: "pl-chip",
          "data-change": change.id,
          "aria-pressed": String(change.id === this.#chosen),
          click: () => void this.#try(change),
        },
        ...prose(say(change.title, model.language)),
      ),
    );
    const box = h("div", { class: "pl-whatif" }, h("div", { class: "pl-chips" }, ...chips));
    box.append(h("div", { role: "status" }, this.#status()), this.#state === "done" && this.#answer ? this.#compare(this.#answer) : "");
    return box;
  }

  #status(): string {
    if (this.#state === "waiting")
      return this.#model.t("The changed program is being run on both engines …", "正在两个引擎上运行修改后的程序……");
    if (this.#state === "failed") return this.#model.t(`It could not be run: ${this.#failure}`, `无法运行：${this.#failure}`);
    return "";
  }

  async #try(change: Change): Promise<void> {
    if (this.#state === "waiting" || !this.#lab.ask) return;
    this.#chosen = change.id;
    this.#state = "waiting";
    this.#redraw();
    try {
      this.#answer = await this.#lab.ask(change.id);
      this.#state = "done";
    } catch (error) {
      this.#failure = error instanceof Error ? error.message : String(error);
      this.#state = "failed";
    }
    this.#redraw();
  }

  #compare(answer: Answer): HTMLElement {
    const model = this.#model;
    const { compared } = answer;
    const open = h(
      "button",
      { class: "pl-chip", click: () => void this.#lab.open?.(answer) },
      model.t("open the changed program here", "在此打开修改后的程序"),
    );
    if (compared.first === null) return h("p", {}, say(compared.same, model.language), " ", open);
    const titles = [model.t("Before", "修改前"), model.t("After", "修改后")];
    const sides = compared.sides.map((side, index) => this.#side(side, titles[index] as string, index === 0));
    const rows = [
      ...compared.gradients.map(([name, one, other]) => [`${name}.grad`, one, other]),
      [model.t("peak of memory", "内存峰值"), ...compared.peaks],
    ];
    const table = h("table", { class: "pl-pairs" }, h("tr", {}, h("td", {}), ...titles.map((title) => h("th", { scope: "col" }, title))));
    for (const [name, one, other] of rows)
      table.append(
        h(
          "tr",
          { class: one === other ? "" : "pl-differs" },
          h("th", { scope: "row" }, name as string),
          h("td", {}, one as string),
          h("td", {}, other as string),
        ),
      );
    const first = model.t(`The runs differ from step ${compared.first + 1} on.`, `两次运行从第 ${compared.first + 1} 步开始不同。`);
    return h(
      "div",
      { class: "pl-compared" },
      h("p", {}, first, " ", open),
      h("div", { class: "pl-sides" }, ...sides),
      h("div", { class: "pl-scroll", tabindex: "-1", group: model.t("results", "结果") }, table),
    );
  }

  #side(side: Side, title: string, mine: boolean): HTMLElement {
    const model = this.#model;
    const ending = side.stopped
      ? `■ ${say(side.stopped, model.language)}`
      : side.raised
        ? `✕ ${side.raised}`
        : side.wrong
          ? model.t("≠ a gradient is wrong, and no error says so", "≠ 有梯度不对，却没有报错")
          : model.t("✓ finished", "✓ 正常结束");
    const list = h("ol", {});
    for (const one of side.steps) {
      const line = h("span", { class: "pl-no" }, one.line ? `L${one.line}` : "");
      const text = h("span", {}, ...prose(say(one.sentence, model.language)));
      list.append(h("li", {}, mine ? h("button", { click: () => (model.step = one.step) }, line, text) : h("div", {}, line, text)));
    }
    if (side.more) list.append(h("li", { class: "pl-nothing" }, model.t(`and ${side.more} more steps`, `另有 ${side.more} 步`)));
    return h(
      "section",
      { group: title },
      h("h3", {}, title),
      h("p", { class: side.stopped || side.raised || side.wrong ? "pl-bad" : "pl-ok" }, ending),
      list,
    );
  }
}
