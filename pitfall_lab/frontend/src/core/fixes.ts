/** What helps: the edits of a finding, each to be applied to the cell, copied, and taken back. */

import type { Part, Text } from "./contract";
import { h } from "./dom";
import type { ExplorerModel } from "./model";
import { prose } from "./prose";
import type { Edit, Fix, Printed, Story } from "./story";
import { say } from "./words";
import { wrapped } from "./wrap";

const MOST = 4;
const ROWS = { " ": "pl-kept", "−": "pl-old", "+": "pl-new" };

/**
 * How the Explorer reaches the cell that its program came from. It asks the page by an event; where JupyterLab's extension is installed it
 * answers, else nothing does, and only copying is offered.
 */
export interface Request {
  /** "can": is there a cell? "apply": write the edits into it. "undo": put back what stood there before. */
  ask: "can" | "apply" | "undo";
  /** The program that was traced: the cell must still say this. */
  text: string;
  edits: Edit[];
  /** Set by whatever answers: it is done, or the sentence that says why not. */
  done?: boolean;
  refused?: Text;
}

/** Two words, where they differ as the pair of what differs: a bracket or a comma that both have around it stays outside. */
function inside(old: string, now: string): (string | [string, string])[] {
  if (old === now) return [old];
  const cut = /^([^\w.+-]*)(.*?)([^\w.]*)$/;
  const [, head = "", was = "", tail = ""] = cut.exec(old) ?? [];
  const [, first, is = "", last] = cut.exec(now) ?? [];
  if (head !== first || tail !== last || !was || !is) return [[old, now]];
  const unit = /^%?/.exec(tail)?.[0] ?? ""; // a number and its unit are one
  return [head, [was + unit, is + unit] as [string, string], tail.slice(unit.length)].filter(Boolean);
}

/** A line as it was and is now: the words in both, and pairs of those that differ (one by one if both lines have as many words). */
function apart(before: string, after: string): (string | [string, string])[] {
  const [was, now] = [before.split(" "), after.split(" ")];
  if (was.length === now.length) return was.flatMap((old, at) => [...(at ? [" "] : []), ...inside(old, now[at] ?? "")]);
  const most = Math.min(was.length, now.length) - 1;
  let head = 0;
  while (head < most && was[head] === now[head]) head++;
  let tail = 0;
  while (tail < most - head && was[was.length - 1 - tail] === now[now.length - 1 - tail]) tail++;
  const middle = (words: string[]): string => words.slice(head, words.length - tail).join(" ");
  const first = was.slice(0, head).join(" ");
  const last = was.slice(was.length - tail).join(" ");
  return [...(first ? [`${first} `] : []), [middle(was), middle(now)], ...(last ? [` ${last}`] : [])];
}

/** Two long decimals, each cut behind the digits that tell them apart: 1.8434330224990845 and 1.836289644241333 are 1.84343… and 1.83628…. */
function short(old: string, now: string): [string, string] {
  const long = /^([+-]?\d+\.)(\d{6,})/;
  if (!long.test(old) || !long.test(now)) return [old, now];
  let same = 0;
  while (same < old.length && old[same] === now[same]) same++;
  const cut = (text: string): string =>
    text.replace(long, (all, whole: string, digits: string) => {
      const most = Math.max(5, same - whole.length + 2);
      return digits.length > most + 1 ? `${whole}${digits.slice(0, most)}…` : all;
    });
  return [cut(old), cut(now)];
}

export const REQUEST = "pitfall-lab-cell";

function ask(from: Element, request: Request): Request {
  from.dispatchEvent(new CustomEvent(REQUEST, { detail: request, bubbles: true, composed: true }));
  return request;
}

/** The program with the edits in it. They come last line first, so each fits. */
export function repaired(text: string, edits: Edit[]): string {
  const ends = text.match(/[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$/g) ?? [];
  for (const { line, end_line, text: instead } of [...edits].sort((a, b) => b.line - a.line))
    ends.splice(line - 1, end_line - line + 1, ...(instead ? [instead] : []));
  return ends.join("");
}

/** Of a program that several cells make, the cell that the edits are in, repaired; where they are in several, all of it. */
function copied({ text, parts }: { text: string; parts: Part[] }, edits: Edit[]): string {
  const of = (line: number): number => parts.findLastIndex((part) => part.line <= line);
  const at = of(edits[0]?.line ?? 1);
  const part = parts[at];
  if (parts.length < 2 || !part || edits.some((edit) => of(edit.line) !== at)) return repaired(text, edits);
  const end = (parts[at + 1]?.line ?? Infinity) - 1;
  const own = text
    .split("\n")
    .slice(part.line - 1, end)
    .join("\n");
  return repaired(
    own,
    edits.map((edit) => ({ ...edit, line: edit.line - part.line + 1, end_line: edit.end_line - part.line + 1 })),
  );
}

/** The fixes of the finding. What was tried and failed is no help; before they were tried all are only ideas. */
export function offered(story: Story): Fix[] {
  const tried = story.fixes.filter((fix) => fix.verified);
  return (tried.length ? tried : story.fixes).slice(0, MOST);
}

/** The fix whose effect on what the program shows is in the headline: the first, if it is verified and leads to the end. */
export function headlined(story: Story | undefined): Fix | null {
  const [first] = story ? offered(story) : [];
  return first?.verified && first.printed && !isStep(first) ? first : null;
}

/** Whether a repair gets further, to another error only: a step and no solution. */
function isStep(fix: Fix): boolean {
  return say(fix.title, "en").endsWith("another follows)");
}

/** What an edit changes in what the program shows: a line that it prints, or the number that a variable has at the end. */
export function printed(model: ExplorerModel, { name, before, after }: Printed): HTMLElement {
  const what = name ? h("code", {}, name) : model.t("prints", "打印");
  const when = model.t("now → with the fix:", "现在 → 修复后：");
  return h(
    "div",
    { class: "pl-printed", title: model.t("both run with the same random numbers", "两次运行使用同样的随机数") },
    h("span", {}, what, name ? model.t(" at the end, ", " 最后的值，") : model.t(", ", "，"), when),
    h(
      "code",
      {},
      ...apart(before, after).flatMap((each) => {
        if (typeof each === "string") return [each.replace(/(\d\.\d{5})\d{3,}/g, "$1…")];
        const [was, now] = short(...each);
        return [h("del", { title: each[0] }, was), " → ", h("ins", { title: each[1] }, now)];
      }),
    ),
  );
}

/** Lives as long as the Explorer: what was applied is known over a redraw. */
export class Fixes {
  #applied: Fix | null = null;
  #said = "";

  readonly #model: ExplorerModel;
  readonly #host: HTMLElement;
  readonly #redraw: () => void;
  readonly #stop: (() => void) | undefined;

  constructor(model: ExplorerModel, host: HTMLElement, redraw: () => void, stop: (() => void) | undefined) {
    this.#model = model;
    this.#host = host;
    this.#stop = stop;
    this.#redraw = redraw;
  }

  /** Edits, and why it is so. */
  draw(story: Story): HTMLElement {
    const model = this.#model;
    const fixes = offered(story);
    const can = !!ask(this.#host, { ask: "can", text: this.#text, edits: [] }).done;
    const box = h("div", { class: "pl-remedies" });
    box.append(this.#trials());
    const [first, ...others] = fixes;
    if (first) box.append(h("ol", { class: "pl-fixes", label: model.t("What helps", "办法") }, this.#fix(first, can, true)));
    else if (!model.scene.trying) box.append(this.#advice(story));
    box.append(h("p", { class: "pl-answer", role: "status" }, this.#said));
    const why = say(story.explanation, model.language);
    if (why) box.append(h("h3", {}, model.t("Why", "原因")), h("p", { class: "pl-why" }, ...prose(why)));
    if (others.length) {
      const also = model.t("Or", "或者");
      box.append(h("h3", {}, also), h("ol", { class: "pl-fixes", label: also }, ...others.map((fix) => this.#fix(fix, can, false))));
    }
    return box;
  }

  /** Where no edit holds: what the rule says, in the program's own names. */
  #advice(story: Story): HTMLElement {
    const model = this.#model;
    const text = say(story.advice, model.language);
    if (!text) {
      const none = model.t(
        "No single edit was found that repairs this. What the picture shows says where to change it.",
        "没有找到一处能修好它的改动；上面的图说明了应在哪里修改。",
      );
      return h("p", { class: "pl-nothing" }, none);
    }
    return h(
      "div",
      { class: "pl-advice" },
      h(
        "h3",
        {},
        model.t("What to do", "怎么办"),
        h("span", { class: "pl-untried" }, model.t("advice, not tried here", "建议，此处未尝试")),
      ),
      h("p", {}, ...prose(text)),
    );
  }

  /** How far Python is with trying the edits, and the button that ends it. */
  #trials(): HTMLElement {
    const model = this.#model;
    const { trying, trials } = model.scene;
    const line = h("p", { class: "pl-trying", role: "status" });
    if (trying) {
      const bar = trials?.total
        ? h("progress", { value: trials.done, max: trials.total, label: model.t("fixes tried", "已尝试的修改") })
        : h("progress", { label: model.t("fixes tried", "已尝试的修改") });
      line.append(bar, model.t("Trying fixes on both engines … ", "正在两个引擎上尝试修改…… "));
      if (this.#stop) line.append(h("button", { "data-do": "stop", click: this.#stop }, model.t("Stop", "停止")));
    } else if (trials?.said) line.append(say(trials.said, model.language));
    else if (trials?.state === "stopped") line.append(model.t("Stopped: not all fixes were tried.", "已停止：并非所有修改都已尝试。"));
    return line;
  }

  get #text(): string {
    return this.#model.trace.sources[0]?.text ?? "";
  }

  #fix(fix: Fix, can: boolean, first: boolean): HTMLElement {
    const model = this.#model;
    const waiting = this.#model.scene.trying ? model.t("being tried …", "正在尝试……") : model.t("not tried here", "此处未验证");
    const further = isStep(fix);
    const { printed: shown } = fix;
    const best = headlined(model.story);
    const differs = !!shown && !!best?.printed && best !== fix && shown.name === best.printed.name && shown.after !== best.printed.after;
    const tried =
      fix.verified && !further
        ? h(
            "span",
            { class: "pl-ok", title: model.t("applied and run again on both engines", "修改后在两个引擎上重新运行") },
            model.t("✓ verified by a run", "✓ 已运行验证"),
          )
        : h("span", { class: "pl-untried" }, further ? model.t("tried: a first step", "已尝试：只是第一步") : waiting);
    const rows = fix.rows.map(([sign, text]) => h("div", { class: ROWS[sign] }, `${sign} `, ...wrapped(text)));
    const applied = this.#applied !== null && say(this.#applied.title, "en") === say(fix.title, "en");
    const buttons = h("span", { class: "pl-do" });
    if (can && !applied)
      buttons.append(
        h("button", { class: first ? "pl-primary" : "", "data-do": "apply", click: () => this.#apply(fix) }, model.t("Apply", "应用")),
      );
    if (can && applied)
      buttons.append(h("button", { class: "pl-primary", "data-do": "undo", click: () => this.#undo(fix) }, model.t("Undo", "撤销")));
    buttons.append(
      h(
        "button",
        { "data-do": "copy", title: model.t("the whole repaired program", "修改后的整个程序"), click: () => void this.#copy(fix) },
        model.t("Copy", "复制"),
      ),
    );
    return h(
      "li",
      { class: "pl-fix" },
      h("p", {}, ...prose(say(fix.title, model.language))),
      ...(shown && best !== fix ? [printed(model, shown)] : []),
      ...(differs ? [h("p", { class: "pl-worse" }, model.t("Not what the first repair gives.", "与第一种修改的结果不同。"))] : []),
      ...(shown?.note ? [h("p", { class: "pl-worse" }, say(shown.note, model.language))] : []),
      h("div", { class: "pl-diff", group: model.t("the edit", "修改内容") }, ...this.#places(fix), ...rows),
      h("div", { class: "pl-act" }, buttons, tried),
    );
  }

  /** The lines that the edit changes; each leads to its line in the code where a call was seen there. */
  #places({ edits }: Fix): HTMLElement[] {
    const model = this.#model;
    const near = model.story?.step ?? model.step;
    const lines = [...new Set(edits.map((edit) => edit.line))].sort((a, b) => a - b);
    const links = lines.map((line) => {
      const seen = model.trace.events.filter(({ kind, span }) => kind !== "node" && span?.source === 0 && span.line === line);
      const [first] = seen.sort((a, b) => Math.abs(a.step - near) - Math.abs(b.step - near));
      if (!first) return h("span", {}, model.place(line));
      return h("button", { "data-line": line, click: () => (model.step = first.step) }, model.place(line));
    });
    return links.length ? [h("span", { class: "pl-places" }, ...links)] : [];
  }

  #apply(fix: Fix): void {
    const answer = ask(this.#host, { ask: "apply", text: this.#text, edits: fix.edits });
    if (answer.done) this.#applied = fix;
    this.#answer(
      answer,
      this.#model.t("The cell has been edited. Run it again to see that it holds.", "单元格已修改；重新运行即可看到效果。"),
    );
  }

  #undo(fix: Fix): void {
    const answer = ask(this.#host, { ask: "undo", text: this.#text, edits: fix.edits });
    if (answer.done) this.#applied = null;
    this.#answer(answer, this.#model.t("The cell is as it was.", "单元格已恢复原样。"));
  }

  #answer({ done, refused }: Request, text: string): void {
    this.#said = done ? text : say(refused, this.#model.language) || this.#model.t("The cell could not be edited.", "无法修改单元格。");
    this.#redraw();
  }

  async #copy(fix: Fix): Promise<void> {
    const model = this.#model;
    try {
      await navigator.clipboard.writeText(copied({ text: this.#text, parts: model.trace.sources[0]?.parts ?? [] }, fix.edits));
      this.#said = model.t("The whole repaired program is in the clipboard.", "修改后的整个程序已在剪贴板中。");
    } catch {
      this.#said = model.t("The browser does not let this page write to the clipboard.", "浏览器不允许此页面写入剪贴板。");
    }
    this.#redraw();
  }
}
