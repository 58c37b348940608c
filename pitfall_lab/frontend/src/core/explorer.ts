/** The Explorer: what went wrong as one picture, what helps, the code, and everything else on demand. All of it happens in the browser. */

import { take } from "../views/export";
import { CodeView } from "./code";
import type { Language, Scene, Text, Trace, View, Views } from "./contract";
import { h, s } from "./dom";
import { byText, showFacts } from "./facts";
import { others, severity } from "./findings";
import { Fixes, headlined, offered, printed } from "./fixes";
import { tellFound } from "./found";
import { Roving } from "./keys";
import { TraceError } from "./load";
import { dot } from "./marks";
import { ExplorerModel } from "./model";
import { drawPicture, sentence, worthALook, worthTitle } from "./picture";
import { labels, prose } from "./prose";
import { Scrubber, timeSigns } from "./scrubber";
import { stepPicture } from "./step";
import type { Story } from "./story";
import { watchTheme } from "./theme";
import { type Lab, WhatIf } from "./whatif";
import { say } from "./words";

const TEXT_WINDOW = 200;
/** In px: the margins around an Explorer, the least and the most height of its panels, the width below which they are one column, and the
 * height of a window in which room is dear. */
const AROUND = 26;
const LEAST = 240;
const MOST = 720;
const NARROW = 720;
const LOW = 740;
const ENOUGH = 460;
/** The least height of panels that have little in them. */
const SMALL = 170;
const ROOM_BELOW = 6;
/** In px: a letter of code, what stands beside a line of code and of an edit, and the least width of what helps. */
const LETTER = 7.9;
const GUTTER = 96;
const HELP = 400;
/** The width in px of the name of a line beside an edit. */
const PLACE = 58;
/** The part of the width that the code has beside a view, and the most that it gets beside a narrow edit. */
const SHARE = 0.55;
const MOST_SHARE = 0.66;
const BUTTONS = 46;

const ICONS: Record<string, string> = {
  start: "M4 3v10M13 3L7 8l6 5",
  back: "M10.5 3L5 8l5.5 5",
  next: "M5.5 3L11 8l-5.5 5",
  end: "M12 3v10M3 3l6 5-6 5",
  before: "M5 3H3.5v10H5M12 4L7.5 8l4.5 4",
  after: "M11 3h1.5v10H11M4 4l4.5 4L4 12",
  large: "M3 6V3h3M10 3h3v3M13 10v3h-3M6 13H3v-3",
};

type Mounted = { update(): void; destroy(): void };

/** One tab of the panel beside the code: a view of the trace, or what helps. */
interface Tab {
  id: string;
  title: Text;
  mount(body: HTMLElement): Mounted;
  /** Whether it can be seen in part: what belongs to the finding, or all. */
  sliced: boolean;
  picture: boolean;
}

/** What Python wrote for the help. */
interface Help {
  keys: [key: string, text: Text][];
  signs: [sign: string, text: Text][];
  agreement: Text;
}

export interface ExplorerHandle {
  readonly model: ExplorerModel;
  /** Draws what helps again, after the model was amended. */
  amended(): void;
  destroy(): void;
}

/** Draws an Explorer into `host`, inside a shadow root of its own with the style sheet `style`. */
export function createExplorer(
  host: HTMLElement,
  style: string,
  trace: Trace,
  scene: Scene,
  views: View[],
  language: Language,
  lab: Lab,
): ExplorerHandle {
  const model = new ExplorerModel(trace, scene, language);
  const root = openRoot(host, style);
  const explorer = new Explorer(root, host, model, views, lab);
  return { model, amended: () => explorer.redraw(), destroy: () => explorer.destroy() };
}

/** What stands in the Explorer's place when there is nothing that can be shown: one sentence, and the page goes on. */
export function showRefusal(host: HTMLElement, style: string, error: unknown, language: Language): void {
  const unknown = { en: "The Explorer could not be drawn.", zh: "无法绘制浏览器视图。" };
  const text = error instanceof TraceError ? error.text : unknown;
  const root = openRoot(host, style);
  watchTheme(root);
  root.append(h("p", { class: "pl-refused", role: "status" }, text[language]));
}

/** Jupyter looks for the attribute on the host, because events from a shadow root seem to come from there. */
export function openRoot(host: HTMLElement, style: string): HTMLElement {
  host.setAttribute("data-lm-suppress-shortcuts", "true");
  const shadow = host.shadowRoot ?? host.attachShadow({ mode: "open" });
  const root = h("div", { class: "pl-root", role: "group", "data-lm-suppress-shortcuts": "true" });
  shadow.replaceChildren(h("style", {}, style), root);
  return root;
}

/** What both engines agree about, in words for somebody who has never heard of two engines. */
function agreedText({ agreed, checked, mirrored }: Trace["agreement"], model: ExplorerModel): string {
  const calls = agreed === checked ? `${checked}` : model.t(`${agreed} of ${checked}`, `${checked} 次中的 ${agreed}`);
  const unit = checked === 1 ? "call" : "calls";
  const rest = mirrored ? model.t(`, ${mirrored} not modelled`, `，${mirrored} 次未建模`) : "";
  return model.t(`torch and the model agree on ${calls} ${unit}`, `torch 与模型在 ${calls} 次调用上一致`) + rest;
}

/** The height in which an element can be seen: that of the notebook that scrolls, or of the window. */
function windowOf(element: HTMLElement): number {
  return element.closest(".jp-WindowedPanel-outer")?.clientHeight || innerHeight;
}

function notModelled(model: ExplorerModel): string {
  return model.t(
    "Of calls that are not modelled, torch's results are shown unchecked.",
    "对未建模的调用，显示的是 torch 的结果，未经检验。",
  );
}

class Explorer {
  #asText = false;
  #help = false;
  /** The tab that the reader chose last, and before that: a wide screen shows both. */
  #chosen: string[] = [];
  #open: { id: string; view: Mounted }[] = [];
  #code: Mounted | null = null;
  #step: { update(): void } | null = null;
  #drawn: Language | "" = "";
  #scrubber!: Scrubber;
  #sentence!: HTMLElement;
  #count!: HTMLElement;
  #facts!: HTMLElement;
  #side!: HTMLElement;
  #buttons: Record<string, HTMLButtonElement> = {};
  readonly #roving: Roving;
  readonly #stop: (() => void)[] = [];

  readonly #root: HTMLElement;
  readonly #host: HTMLElement;
  readonly #model: ExplorerModel;
  readonly #views: View[];
  readonly #lab: Lab;
  readonly #fixes: Fixes;
  readonly #whatIf: WhatIf;

  constructor(root: HTMLElement, host: HTMLElement, model: ExplorerModel, views: View[], lab: Lab) {
    this.#root = root;
    this.#host = host;
    this.#model = model;
    this.#views = views;
    this.#lab = lab;
    this.#fixes = new Fixes(model, host, () => this.redraw(), lab.stop);
    this.#whatIf = new WhatIf(model, lab, () => this.redraw());
    this.#roving = new Roving(root);
    root.addEventListener("keydown", (event) => this.#key(event));
    root.addEventListener("click", (event) => this.#followLabel(event));
    root.addEventListener("click", () => this.#enter());
    this.#draw();
    this.#stop.push(
      model.onChange(() => this.#update()),
      watchTheme(root),
    );
    const size = new ResizeObserver(() => this.#reopen());
    size.observe(root);
    const fill = (): void => this.#fill();
    document.addEventListener("fullscreenchange", fill);
    this.#stop.push(
      () => size.disconnect(),
      () => document.removeEventListener("fullscreenchange", fill),
    );
  }

  destroy(): void {
    for (const stop of this.#stop) stop();
    this.#close();
    this.#root.replaceChildren();
  }

  #close(): void {
    this.#code?.destroy();
    this.#code = null;
    for (const { view } of this.#open) view.destroy();
    this.#open = [];
  }

  /** Builds everything for the current language and mode. Stepping never comes here. */
  #draw(): void {
    const model = this.#model;
    this.#close();
    this.#drawn = model.language;
    this.#root.lang = model.language === "zh" ? "zh-CN" : "en";
    this.#root.setAttribute("aria-label", model.t("Pitfall Lab Explorer", "Pitfall Lab 浏览器"));
    this.#scrubber = new Scrubber(model);
    this.#scrubber.pin(model.story);
    this.#sentence = h("p", { class: "pl-sentence", role: "status", "aria-live": "polite" });
    this.#count = h("span", { class: "pl-count", "aria-hidden": "true" });
    this.#facts = h("div", { class: "pl-facts", tabindex: "-1", group: model.t("Facts about the focus", "所选对象的信息") });
    // That observation stopped is in the headline; how much was seen is told before the steps, or, where there is a finding, after it.
    const why = model.scene.why ? [h("p", { class: "pl-stopped" }, say(model.scene.why, model.language))] : [];
    const parts = [this.#header(), ...(model.story ? [] : why)];
    if (this.#help) parts.push(this.#helpBox());
    const [picture, transport, panels] = [this.#picture(), this.#transport(), this.#asText ? this.#textBox() : this.#main()];
    // A finding is read: what helps is beside its picture. Without one, steps are taken, and what they do is beside their picture.
    parts.push(picture, ...(model.story ? [panels, transport, ...why] : [transport, panels]), this.#foot());
    const back = this.#whatIf.back();
    if (back) parts.splice(1, 0, back);
    if (model.trace.notes.length || model.trace.disagreements.length) parts.push(this.#notes());
    this.#root.replaceChildren(...parts);
    if (!this.#asText) {
      this.#fit();
      this.#mount();
    }
    this.#updateShell();
    tellFound(model, this.#host);
  }

  /** The story's picture; where there is no story, the picture of the current step. */
  #picture(): HTMLElement {
    this.#step = null;
    const drawn = drawPicture(this.#model, (step) => this.#go(step));
    if (drawn) {
      drawn.dataset.part = "picture";
      return drawn;
    }
    const step = stepPicture(this.#model);
    this.#step = step;
    const worth = worthALook(this.#model, (at) => this.#go(at));
    if (!worth) return step.element;
    worth.dataset.part = "picture";
    return h("div", { class: "pl-both" }, worth, step.element);
  }

  redraw(): void {
    const active = (this.#root.getRootNode() as ShadowRoot).activeElement as HTMLElement | null;
    const { key, change, do: act, tab } = active?.dataset ?? {};
    this.#draw();
    const again = change ? `[data-change="${CSS.escape(change)}"]` : act ? "[data-do]" : tab ? `[data-tab="${tab}"]` : "";
    if (again) this.#root.querySelector<HTMLElement>(again)?.focus();
    else if (active) (key ? this.#buttons[key] : this.#scrubber.input)?.focus();
  }

  #update(): void {
    if (this.#model.language !== this.#drawn) return this.redraw();
    this.#code?.update();
    for (const { view } of this.#open) view.update();
    this.#updateShell();
  }

  #updateShell(): void {
    const model = this.#model;
    const { event, step, last } = model;
    this.#step?.update();
    this.#scrubber.update();
    this.#count.textContent = `${step + 1} / ${last + 1}`;
    const words = h("span", {}, ...sentence(model));
    this.#sentence.replaceChildren(event ? dot(event.by, byText(event.by, model)) : "", words);
    if (!event) words.style.gridColumn = "1/-1";
    for (const [key, stuck] of [
      ["Home", step < 0],
      ["ArrowLeft", step < 0],
      ["ArrowRight", step >= last],
      ["End", step >= last],
    ] as const) {
      this.#buttons[key]?.setAttribute("aria-disabled", String(stuck));
    }
    for (const button of this.#root.querySelectorAll<HTMLElement>("[data-part=picture] button, .pl-textview button")) {
      const here = button.dataset.step === String(step);
      if (here) button.setAttribute("aria-current", "step");
      else button.removeAttribute("aria-current");
    }
    if (this.#asText) this.#followText();
    else showFacts(this.#facts, model);
    this.#roving.sweep();
  }

  // ---------------------------------------------------------------------------------------------------------------- headline

  #header(): HTMLElement {
    const model = this.#model;
    const { story } = model;
    const head = say(model.scene.head, model.language) || model.trace.outcome.kind;
    const worth = worthTitle(model);
    const message = story ? say(story.message, model.language) : worth || head;
    const quoted = !!story && story.rule === "" && typeof story.message === "string";
    const title = h("h2", { class: quoted ? "pl-message pl-quoted" : "pl-message" }, ...(quoted ? [message] : prose(message)));
    return h(
      "div",
      { class: "pl-head", "data-part": "head" },
      h("div", { class: "pl-headline" }, title, ...this.#consequence(story), this.#about(story, head)),
      this.#tools(),
    );
  }

  /** What the mistake did to what the program shows, and what is shown without it: known once a fix was tried. */
  #consequence(story: Story | undefined): HTMLElement[] {
    const fix = headlined(story);
    if (!fix?.printed) return [];
    const line = printed(this.#model, fix.printed);
    line.classList.add("pl-consequence");
    return [line];
  }

  /** The small line under the headline: how bad, how the run ended, which finding of how many. */
  #about(story: Story | undefined, head: string): HTMLElement {
    const model = this.#model;
    const { outcome, agreement, sources } = model.trace;
    const bad = outcome.kind === "raised"; // that observation stopped is nothing that went wrong
    const line = h("p", { class: "pl-about" });
    if (story) line.append(severity(model, story), h("code", {}, [story.rule, story.name].filter(Boolean).join(" ")));
    const fine = !story && !worthTitle(model) && !model.scene.why && head.startsWith("✓");
    const said = fine ? model.t("no rule found a mistake here", "没有规则发现错误") : story ? head.replace(/^✓ /, "") : head;
    line.append(h("span", { class: bad ? "pl-outcome pl-bad" : "pl-outcome" }, said));
    if (agreement.disagreed)
      line.append(h("b", { class: "pl-bad" }, model.t(`≠ ${agreement.disagreed} disagree`, `≠ ${agreement.disagreed} 个不一致`)));
    line.append(h("span", { class: "pl-name" }, sources[0]?.name ?? ""));
    return line;
  }

  /** What the two engines say of each other, in the smallest print: a newcomer needs none of it. */
  #foot(): HTMLElement {
    const model = this.#model;
    const { agreement } = model.trace;
    const line = h("p", { class: "pl-foot" });
    if (model.story?.predicted) {
      const how = model.t(
        "A model of torch computes each call on its own, without torch. It had found this error before torch raised it.",
        "一个独立的 torch 模型不借助 torch 计算每次调用。在 torch 报错之前，它已算出这个错误。",
      );
      line.append(h("span", { title: how }, dot("m", how), model.t("predicted before torch raised", "在 torch 报错前已预测")));
    }
    if (agreement.checked) {
      // The sign has the explanation as its name: a screen reader reads it where a pointer shows it.
      const how = [say(this.#helpTexts.agreement, model.language), agreement.mirrored ? notModelled(model) : ""].filter(Boolean).join(" ");
      line.append(h("span", { class: "pl-agree", title: how }, dot("a", how), agreedText(agreement, model)));
    }
    return line;
  }

  #tools(): HTMLElement {
    const model = this.#model;
    const count = model.stories.length;
    const tools = h("div", { class: "pl-tools" });
    if (count > 1) {
      const at = model.story ? model.stories.indexOf(model.story) : 0;
      const next = (): void => this.#chooseStory(model.stories[(at + 1) % count] as Story);
      tools.append(this.#button("finding", `${at + 1} / ${count} ›`, model.t("the next finding", "下一条发现"), next));
    }
    tools.append(
      this.#button(
        "t",
        model.t("Text (T)", "文字 (T)"),
        model.t("everything as text (T)", "文字视图（T）"),
        () => this.#toggleText(),
        this.#asText,
      ),
      this.#button(
        "large",
        this.#icon("large"),
        model.t("fill the screen", "占满屏幕"),
        () => void (this.#isFull ? document.exitFullscreen() : this.#host.requestFullscreen?.())?.catch(() => {}),
        this.#isFull,
      ),
      this.#button("?", "?", model.t("keys and signs (?)", "按键与符号（?）"), () => this.#toggleHelp(), this.#help),
      this.#button(
        "language",
        model.t("中文", "English"),
        model.t("切换到中文", "switch to English"),
        () => (model.language = model.language === "zh" ? "en" : "zh"),
      ),
    );
    return tools;
  }

  get #helpTexts(): Partial<Help> {
    return (this.#model.scene.help ?? {}) as Partial<Help>;
  }

  #button(key: string, text: string | SVGElement, title: string, click: () => void, pressed?: boolean): HTMLButtonElement {
    const button = h("button", { "data-key": key, title, click }, text);
    if (typeof text !== "string" || text.length < 2) button.setAttribute("aria-label", title);
    if (pressed !== undefined) button.setAttribute("aria-pressed", String(pressed));
    this.#buttons[key] = button;
    return button;
  }

  #icon(name: string): SVGElement {
    return s("svg", { class: "pl-icon", viewBox: "0 0 16 16", "aria-hidden": "true" }, s("path", { d: ICONS[name] ?? "" }));
  }

  // ---------------------------------------------------------------------------------------------------------------- along time

  #transport(): HTMLElement {
    const model = this.#model;
    const icons: [string, string, string][] = [
      ["Home", "start", model.t("to the start (Home)", "到开头（Home）")],
      ["ArrowLeft", "back", model.t("previous step (←)", "上一步（←）")],
      ["ArrowRight", "next", model.t("next step (→)", "下一步（→）")],
      ["End", "end", model.t("to the end (End)", "到结尾（End）")],
      ["[", "before", model.t("previous event of the focused storage ([)", "所选存储的上一个事件（[）")],
      ["]", "after", model.t("next event of the focused storage (])", "所选存储的下一个事件（]）")],
    ];
    const buttons = icons.map(([key, icon, title]) => this.#button(key, this.#icon(icon), title, () => this.#act(key)));
    if (model.story) {
      const cycle = this.#button(
        "e",
        model.t("Story (E)", "经过 (E)"),
        model.t("saved → changed → raised (E)", "保存 → 改写 → 报错（E）"),
        () => this.#act("e"),
      );
      cycle.classList.add("pl-wide");
      buttons.push(cycle);
    } else delete this.#buttons.e;
    this.#scrubber.input.dataset.home = "";
    const said = h("div", { class: "pl-say", tabindex: "-1", group: model.t("This step in words", "这一步的文字说明") }, this.#sentence);
    return h(
      "div",
      { class: "pl-transport", "data-part": "transport" },
      h("div", { class: "pl-buttons" }, ...buttons),
      this.#scrubber.element,
      this.#count,
      said,
    );
  }

  // ---------------------------------------------------------------------------------------------------------------- code and panel

  /** How much of the window is left below what is above the panels: they use it, and end where the window ends. */
  #fit(): void {
    const main = this.#root.querySelector<HTMLElement>(":scope > .pl-main");
    if (!main) return;
    this.#rank(main);
    if (getComputedStyle(this.#host).getPropertyValue("--pitfall-lab-room")) return void this.#root.style.removeProperty("--pl-room");
    const height = windowOf(this.#host);
    this.#root.classList.toggle("pl-low", height < LOW);
    const above = main.getBoundingClientRect().top - this.#root.getBoundingClientRect().top;
    const below = this.#root.querySelector(".pl-main ~ .pl-transport")?.clientHeight ?? 0;
    // Below a finding's panels are the buttons: all of their row where there is room, else its upper part, and words below the edge.
    const left = height - above - (height - above - below > ENOUGH ? below + AROUND : Math.min(below, BUTTONS) || AROUND);
    if (left < LEAST || this.#root.clientWidth < NARROW) this.#root.style.removeProperty("--pl-room");
    else this.#root.style.setProperty("--pl-room", `${Math.min(Math.round(left), MOST)}px`);
  }

  /** In a narrow column not all of a finding is in sight: what helps comes before its picture. */
  #rank(main: HTMLElement): void {
    const picture = this.#root.querySelector(":scope > .pl-picture");
    if (!this.#model.story || !picture) return;
    const first = this.#root.clientWidth < NARROW && this.#root.clientWidth > 0;
    const order = picture.compareDocumentPosition(main) & Node.DOCUMENT_POSITION_PRECEDING ? "main" : "picture";
    if (first && order === "picture") picture.before(main);
    if (!first && order === "main") picture.after(main);
  }

  /** A few lines and a small picture need less than the room there is. What a finding says comes in pieces: it keeps its room. */
  #trim(): void {
    const main = this.#root.querySelector<HTMLElement>(":scope > .pl-main");
    const lines = main?.querySelector<HTMLElement>(".pl-lines");
    if (!main || !lines || this.#model.story || this.#root.clientWidth < NARROW) return;
    const has = main.clientHeight;
    const needs = (box: HTMLElement | null | undefined, end: number): number =>
      box ? has - box.clientHeight + end - box.getBoundingClientRect().top + box.scrollTop + ROOM_BELOW : 0;
    const views = this.#open.map(({ id }) => {
      const body = main.querySelector<HTMLElement>(`.pl-p-${id} > .pl-body`);
      const box = body?.querySelector<HTMLElement>(".plv") ?? body;
      return needs(box, Math.max(0, ...[...(box?.children ?? [])].map((one) => one.getBoundingClientRect().bottom)));
    });
    const code = needs(lines.parentElement, lines.getBoundingClientRect().bottom);
    const wanted = Math.max(SMALL, code, ...views);
    if (wanted < has) this.#root.style.setProperty("--pl-room", `${Math.ceil(wanted)}px`);
  }

  #main(): HTMLElement {
    const code = h(
      "section",
      { class: "pl-panel pl-p-code", group: this.#model.t("Code", "代码"), "data-part": "code" },
      h("div", { class: "pl-body" }),
      this.#facts,
    );
    this.#side = h("div", { class: "pl-side" });
    return h("div", { class: "pl-main" }, code, this.#side);
  }

  /** What there is to open: what helps first, then the views that have something to show. */
  #tabs(): Tab[] {
    const model = this.#model;
    const { story } = model;
    const tabs: Tab[] = [];
    if (story)
      tabs.push({
        id: "fix",
        title: { en: "Fix", zh: "修改" },
        mount: (body) => this.#mountFix(body, story),
        sliced: false,
        picture: false,
      });
    for (const view of this.#views) {
      if (!this.#has(view)) continue;
      tabs.push({
        id: view.id,
        title: view.title,
        mount: (body) => view.mount(body, model),
        sliced: !!story?.slice && (view.parts?.(model.scene, story) ?? true),
        picture: true,
      });
    }
    const chips = this.#whatIf.draw();
    if (chips)
      tabs.push({
        id: "whatif",
        title: { en: "What if", zh: "如果" },
        mount: (body) => (body.append(chips), { update() {}, destroy() {} }),
        sliced: false,
        picture: false,
      });
    return tabs;
  }

  /** A view that stumbles over its data has something to say about it. */
  #has(view: View): boolean {
    try {
      const part = this.#model.scene[view.id as keyof Views];
      return (typeof part === "object" && part !== null && "failed" in part) || view.has(this.#model.scene);
    } catch {
      return true;
    }
  }

  #mountFix(body: HTMLElement, story: Story): Mounted {
    body.append(this.#fixes.draw(story));
    const rest = others(this.#model, story, (one) => this.#chooseStory(one));
    if (rest) body.append(h("h3", {}, this.#model.t("Other findings", "其他发现")), rest);
    return { update() {}, destroy() {} };
  }

  #mount(): void {
    const body = this.#root.querySelector<HTMLElement>(".pl-p-code > .pl-body") as HTMLElement;
    this.#code = this.#guarded("code", this.#model.t("Code", "代码"), body, (place) => new CodeView(place, this.#model));
    this.#mountSide();
    this.#trim();
  }

  get #columns(): number {
    const width = this.#root.clientWidth;
    return width >= 1500 ? 2 : 1;
  }

  #shown = 0;
  /** Another width may have room for another number of panels. */
  #reopen(): void {
    if (this.#asText || !this.#side?.isConnected) return;
    this.#fit();
    if (this.#columns !== this.#shown) {
      this.#mountSide();
      this.#roving.sweep();
    }
    this.#trim();
  }

  get #isFull(): boolean {
    return this.#host.matches(":fullscreen");
  }

  /** On the whole screen a view that the reader chose is alone with the steps; "Code" brings the code and the picture back beside it. */
  #fill(): void {
    const view = this.#views.some(({ id }) => id === this.#chosen[0]);
    this.#root.classList.toggle("pl-alone", this.#isFull && view);
    this.#buttons.large?.setAttribute("aria-pressed", String(this.#isFull));
    this.#reopen();
  }

  #mountSide(): void {
    for (const { view } of this.#open) view.destroy();
    this.#open = [];
    const tabs = this.#tabs();
    this.#shown = this.#columns;
    const ids = tabs.map((tab) => tab.id);
    const wanted = [...this.#chosen, ...this.#fitting(), ...ids].filter((id) => ids.includes(id));
    const shown = [...new Set(wanted)].slice(0, this.#shown);
    this.#root.classList.toggle("pl-code-first", this.#chosen[0] === "code");
    const share = shown.join() === "fix" ? this.#share() : 0;
    if (share > SHARE) this.#root.style.setProperty("--pl-share", `${Math.round(share * 100)}%`);
    else this.#root.style.removeProperty("--pl-share");
    const open = tabs.filter((tab) => shown.includes(tab.id));
    this.#side.replaceChildren(
      this.#bar(tabs, shown),
      h("div", { class: "pl-panels", style: `--pl-n:${Math.max(1, open.length)}` }, ...open.map((tab) => this.#panel(tab))),
    );
    for (const { view } of this.#open) view.update();
    this.#side.hidden = !tabs.length;
  }

  /** How much of the width the code takes: what its longest line needs, as far as the edits beside it leave that. 0 for edits that cannot be read. */
  #share(): number {
    const { story, trace } = this.#model;
    const width = this.#root.clientWidth;
    const longest = (lines: string[]): number => Math.max(0, ...lines.map((line) => line.length)) * LETTER + GUTTER;
    try {
      const code = longest((trace.sources[0]?.text ?? "").split("\n"));
      const fixes = story ? offered(story) : [];
      const places = Math.max(0, ...fixes.map(({ edits }) => new Set(edits.map(({ line }) => line)).size));
      const help = longest(fixes.flatMap((fix) => fix.rows.map(([, text]) => text))) + PLACE * places;
      return Math.min(code / width, 1 - Math.max(HELP, help) / width, MOST_SHARE);
    } catch {
      return 0;
    }
  }

  /** What is open before the reader chose: what helps, then the view that this finding has something in. */
  #fitting(): string[] {
    const { story, scene } = this.#model;
    if (!story) return scene.worth?.length ? ["storage"] : [];
    return ["fix", story.picture?.kind === "table" ? "broadcast" : story.graph ? "graph" : "storage"];
  }

  #bar(tabs: Tab[], shown: string[]): HTMLElement {
    const model = this.#model;
    const list = h("div", { class: "pl-tabs", role: "tablist", "data-part": "tabs" });
    const tab = (id: string, title: Text): HTMLElement => {
      const selected = id === "code" ? this.#chosen[0] === "code" : shown.includes(id) && this.#chosen[0] !== "code";
      const button = h(
        "button",
        {
          role: "tab",
          "data-tab": id,
          "aria-selected": String(selected || (id !== "code" && shown.includes(id))),
          click: () => this.#choose(id),
        },
        say(title, model.language),
      );
      if (selected) button.dataset.home = "";
      return button;
    };
    list.append(tab("code", { en: "Code", zh: "代码" }), ...tabs.map(({ id, title }) => tab(id, title)));
    list.querySelector("[data-tab=code]")?.classList.add("pl-only-narrow");
    const bar = h("div", { class: "pl-bar-tabs" }, list);
    if (tabs.some((one) => one.sliced && shown.includes(one.id))) {
      const press = (): void => {
        model.all = !model.all;
        this.#mountSide();
        this.#roving.sweep();
        this.#root.querySelector<HTMLElement>("[data-key=all]")?.focus();
      };
      bar.append(
        h(
          "span",
          { class: "pl-slice", "data-part": "slice" },
          this.#button(
            "all",
            model.t("all", "全部"),
            model.t("show everything, not only what the finding is about", "显示全部，而不只是与此发现有关的部分"),
            press,
            model.all,
          ),
        ),
      );
    }
    return bar;
  }

  /** A view in its frame. When it fails it is replaced by a text, and the others go on. */
  #panel(tab: Tab): HTMLElement {
    const name = say(tab.title, this.#model.language);
    const body = h("div", { class: "pl-body", tabindex: "-1", group: name });
    const element = h(
      "div",
      {
        class: `pl-panel pl-p-${tab.id}${tab.id === this.#chosen[0] ? " pl-chosen" : ""}`,
        role: "tabpanel",
        label: name,
        "data-part": tab.id,
      },
      body,
      tab.picture ? this.#takers(tab.id, name, body) : null,
    );
    this.#open.push({ id: tab.id, view: this.#guarded(tab.id, name, body, (place) => tab.mount(place)) });
    return element;
  }

  #guarded(_: string, name: string, body: HTMLElement, mount: (body: HTMLElement) => Mounted): Mounted {
    let view: Mounted | null = null;
    const attempt = (work: () => void): void => {
      try {
        work();
      } catch {
        view = null;
        const sorry = this.#model.t(`${name} could not be drawn here; press T for the text.`, `此处无法绘制“${name}”；按 T 查看文字。`);
        body.replaceChildren(h("p", { class: "pl-nothing" }, sorry));
      }
    };
    attempt(() => (view = mount(body)));
    return { update: () => attempt(() => view?.update()), destroy: () => attempt(() => view?.destroy()) };
  }

  #choose(id: string): void {
    this.#chosen = [id, ...this.#chosen.filter((one) => one !== id)].slice(0, 4);
    this.#fit();
    this.#mountSide();
    this.#fill();
    this.#updateShell();
    this.#root.querySelector<HTMLElement>(`[data-tab="${id}"]`)?.focus();
  }

  /** The view as a picture: for slides. */
  #takers(id: string, name: string, body: HTMLElement): HTMLElement {
    const button = (kind: "svg" | "png"): HTMLElement => {
      const label =
        kind === "svg"
          ? this.#model.t(`save ${name} as SVG`, `将“${name}”存为 SVG`)
          : this.#model.t(`copy ${name} as PNG`, `将“${name}”复制为 PNG`);
      const go = (): void => {
        const box = body.querySelector<HTMLElement>(".plv");
        if (box) void take(box, kind, `pitfall-lab-${id}`).catch(() => {});
      };
      return h("button", { title: label, label: label, click: go }, kind.toUpperCase());
    };
    return h("div", { class: "pl-take" }, button("svg"), button("png"));
  }

  // ---------------------------------------------------------------------------------------------------------------- text, help, notes

  #textBox(): HTMLElement {
    const model = this.#model;
    const from = Math.max(0, model.step - TEXT_WINDOW);
    const to = Math.min(model.last, model.step + TEXT_WINDOW);
    const list = h("ol", {});
    const left = model.trace.events.length - (to - from + 1);
    for (let step = from; step <= to; step += 1) {
      const go = (): void => void (model.step = step);
      const number = h("span", { class: "pl-no" }, String(step + 1));
      const state = model.stateAt(step);
      const named = (part: string): Node[] => [
        document.createTextNode(
          labels(part, model, state)
            .map((one) => one.textContent)
            .join(""),
        ),
      ];
      list.append(h("li", {}, h("button", { "data-step": step, click: go }, number, h("span", {}, ...prose(model.sentence(step), named)))));
    }
    const box = h(
      "section",
      {
        class: "pl-textview",
        tabindex: "-1",
        "data-part": "text",
        "data-from": from,
        "data-to": to,
        group: model.t("Everything as text", "文字视图"),
      },
      list,
    );
    if (left > 0)
      box.append(
        h("p", { class: "pl-nothing" }, model.t(`${left} steps further away are left out here.`, `此处省略了较远的 ${left} 步。`)),
      );
    return box;
  }

  /** Keeps the current sentence in sight, and draws another window of the text when the step left it. */
  #followText(): void {
    const box = this.#root.querySelector<HTMLElement>(".pl-textview");
    const { step } = this.#model;
    if (!box || step < 0) return;
    if (step < Number(box.dataset.from) || step > Number(box.dataset.to))
      return void (box.replaceWith(this.#textBox()), this.#updateShell());
    const row = box.querySelector<HTMLElement>("[aria-current]");
    if (!row) return;
    const top = row.offsetTop - box.offsetTop;
    if (top < box.scrollTop || top + row.offsetHeight > box.scrollTop + box.clientHeight)
      box.scrollTop = Math.max(0, top - box.clientHeight / 3);
  }

  #helpBox(): HTMLElement {
    const model = this.#model;
    const { keys = [], signs = [], agreement } = this.#helpTexts;
    const list = (rows: [sign: string | Element, text: Text][]): HTMLElement =>
      h("dl", {}, ...rows.flatMap(([sign, text]) => [h("dt", {}, sign), h("dd", {}, say(text, model.language))]));
    const dots = (["o", "m", "a"] as const).map((by): [Element, Text] => [dot(by, ""), { en: byText(by, model), zh: byText(by, model) }]);
    const press = (): void => {
      model.labelled = !model.labelled;
      this.redraw();
    };
    const shown = this.#button("l", model.t("show labels beside names (L)", "在名称旁显示标签（L）"), "", press, model.labelled);
    return h(
      "section",
      { class: "pl-help", group: model.t("Help", "帮助"), "data-part": "help" },
      h("div", {}, h("h3", {}, model.t("Keys", "按键")), list(keys)),
      h(
        "div",
        {},
        h("h3", {}, model.t("Signs", "符号")),
        list([...dots, ...signs, ...timeSigns()]),
        shown,
        h("p", { class: "pl-nothing" }, say(agreement, model.language)),
      ),
    );
  }

  #notes(): HTMLElement {
    const model = this.#model;
    const rows = model.trace.notes.map((note) => h("p", {}, model.t(note.en, note.zh)));
    for (const { step, path, observed, modelled } of model.trace.disagreements.slice(0, 20)) {
      const [a, b] = [JSON.stringify(observed) ?? "", JSON.stringify(modelled) ?? ""].map((text) => text.slice(0, 120));
      const place = model.t(
        `Step ${step + 1}, ${path}: torch has ${a}, the model has ${b}.`,
        `第 ${step + 1} 步，${path}：torch 是 ${a}，模型是 ${b}。`,
      );
      rows.push(h("p", { class: "pl-wrong" }, `≠ ${place}`));
    }
    return h("section", { class: "pl-notes", group: model.t("Notes", "说明") }, ...rows);
  }

  #toggleText(): void {
    this.#asText = !this.#asText;
    this.redraw();
    this.#root.querySelector(".pl-textview")?.scrollIntoView({ block: "nearest" });
  }

  #toggleHelp(): void {
    this.#help = !this.#help;
    this.redraw();
  }

  // ---------------------------------------------------------------------------------------------------------------- moving

  /** Brings up another finding, at the place that tells most about it. */
  #chooseStory(story: Story): void {
    this.#model.story = story;
    this.#model.all = false;
    this.redraw();
    const beat = story.beats.find((one) => one.role === "changed") ?? story.beats.find((one) => one.step !== null);
    this.#go(beat?.step ?? story.step);
  }

  /** To a step of the story, with the memory that it is about in focus. */
  #go(step: number | null): void {
    const storage = this.#model.story?.slice?.storages[0];
    if (step !== null) this.#model.step = step;
    if (storage) this.#model.focus = storage;
  }

  /** E: the next beat of the story that can be shown, round and round. */
  #cycle(): void {
    const { story } = this.#model;
    const placed = (story?.beats ?? []).filter((beat) => beat.step !== null);
    const named = placed.filter((beat) => beat.role !== "other");
    const all = named.length > 1 ? named : placed;
    const at = all.findIndex((beat) => beat.step === this.#model.step);
    const next = all[(at + 1) % Math.max(1, all.length)];
    if (next) this.#go(next.step);
  }

  #jump(by: 1 | -1): void {
    const steps = this.#model.touching();
    const next = by > 0 ? steps.find((step) => step > this.#model.step) : steps.reverse().find((step) => step < this.#model.step);
    if (next !== undefined) this.#model.step = next;
  }

  /** What a key or its button does; false when it is no key of ours. */
  #act(key: string): boolean {
    const model = this.#model;
    const actions: Record<string, () => void> = {
      ArrowLeft: () => (model.step -= 1),
      ArrowRight: () => (model.step += 1),
      Home: () => (model.step = -1),
      End: () => (model.step = model.last),
      "[": () => this.#jump(-1),
      "]": () => this.#jump(1),
      e: () => this.#cycle(),
      t: () => this.#toggleText(),
      l: () => ((model.labelled = !model.labelled), this.redraw()),
      "?": () => this.#toggleHelp(),
    };
    const action = Object.hasOwn(actions, key) ? actions[key] : undefined;
    action?.();
    return action !== undefined;
  }

  #key(event: KeyboardEvent): void {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const tab = /^[1-9]$/.test(key) && !this.#asText ? this.#tabs()[Number(key) - 1] : undefined;
    if (key === "ArrowUp") this.#roving.move(-1, event.target as Element);
    else if (key === "ArrowDown") this.#roving.move(1, event.target as Element);
    else if (key === "Escape") this.#leave(event.target as HTMLElement);
    else if (tab) this.#choose(tab.id);
    else if (!this.#act(key)) return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Esc ends what is being tried; then it goes from a control to the scrubber, and from there out, to whatever around the Explorer takes the focus. */
  #leave(from: HTMLElement): void {
    if (this.#model.scene.trying) this.#lab.stop?.();
    if (from !== this.#scrubber.input) return this.#scrubber.input.focus();
    from.blur();
    this.#host.parentElement?.closest<HTMLElement>("[tabindex]")?.focus({ preventScroll: true });
  }

  /** A click on anything that takes no focus itself goes to the scrubber, so that the keys work; but not when it ends a selection of text. */
  #enter(): void {
    if (!this.#root.matches(":focus-within") && !String(getSelection())) this.#scrubber.input.focus({ preventScroll: true });
  }

  #followLabel(event: Event): void {
    const label = (event.target as Element | null)?.closest?.<HTMLElement>(".pl-label")?.dataset.label;
    if (label) this.#model.focus = this.#model.focus === label ? "" : label;
  }
}
