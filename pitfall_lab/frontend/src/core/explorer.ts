/** The Explorer: one trace, its views, and the controls that walk through it. Everything happens in the browser. */

import { CodeView } from "./code";
import type { Language, Scene, Text, Trace, View } from "./contract";
import { h, s } from "./dom";
import { byText, showFacts } from "./facts";
import { findings, remedies } from "./findings";
import { Roving } from "./keys";
import { TraceError } from "./load";
import { dot } from "./marks";
import { ExplorerModel } from "./model";
import { labels, prose } from "./prose";
import { Scrubber } from "./scrubber";
import { stories, type Beat, type Story } from "./story";
import { watchTheme } from "./theme";
import { WhatIf, type Lab } from "./whatif";
import { say } from "./words";
import { take } from "../views/export";

const TEXT_WINDOW = 200;

const ICONS: Record<string, string> = {
  start: "M4 3v10M13 3L7 8l6 5",
  back: "M10.5 3L5 8l5.5 5",
  next: "M5.5 3L11 8l-5.5 5",
  end: "M12 3v10M3 3l6 5-6 5",
  before: "M5 3H3.5v10H5M12 4L7.5 8l4.5 4",
  after: "M11 3h1.5v10H11M4 4l4.5 4L4 12",
};

interface Panel {
  id: string;
  element: HTMLElement;
  update(): void;
  destroy(): void;
}

/** What Python wrote for the help. */
interface Help {
  keys: [key: string, text: Text][];
  signs: [sign: string, text: Text][];
  agreement: Text;
}

export interface ExplorerHandle {
  readonly model: ExplorerModel;
  destroy(): void;
}

/** Draws an Explorer into `host`, inside a shadow root of its own with the style sheet `style`. */
export function createExplorer(host: HTMLElement, style: string, trace: Trace, scene: Scene, views: View[], language: Language, lab: Lab): ExplorerHandle {
  const model = new ExplorerModel(trace, scene, language);
  const root = openRoot(host, style);
  const explorer = new Explorer(root, host, model, views, lab);
  return { model, destroy: () => explorer.destroy() };
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

class Explorer {
  #panels: Panel[] = [];
  #stories: Story[] = [];
  #story: Story | undefined;
  #asText = false;
  #help = false;
  #chosen = "code";
  #drawn: Language | "" = "";
  #scrubber!: Scrubber;
  #sentence!: HTMLElement;
  #count!: HTMLElement;
  #facts!: HTMLElement;
  #buttons: Record<string, HTMLButtonElement> = {};
  readonly #roving: Roving;
  readonly #stop: (() => void)[] = [];

  readonly #root: HTMLElement;
  readonly #host: HTMLElement;
  readonly #model: ExplorerModel;
  readonly #views: View[];
  readonly #whatIf: WhatIf;

  constructor(root: HTMLElement, host: HTMLElement, model: ExplorerModel, views: View[], lab: Lab) {
    this.#root = root;
    this.#host = host;
    this.#model = model;
    this.#views = views;
    this.#whatIf = new WhatIf(model, lab, () => this.#redraw());
    this.#roving = new Roving(root, () => this.#scrubber.input);
    root.addEventListener("keydown", (event) => this.#key(event));
    root.addEventListener("click", (event) => this.#followLabel(event));
    root.addEventListener("click", () => this.#enter());
    this.#draw();
    this.#stop.push(model.onChange(() => this.#update()), watchTheme(root));
  }

  destroy(): void {
    for (const stop of this.#stop) stop();
    for (const panel of this.#panels) panel.destroy();
    this.#root.replaceChildren();
  }

  /** Builds everything for the current language and mode. Stepping never comes here. */
  #draw(): void {
    const model = this.#model;
    for (const panel of this.#panels) panel.destroy();
    this.#panels = [];
    this.#drawn = model.language;
    if (!this.#stories.length) this.#stories = stories(model);
    this.#story ??= this.#stories[0];
    this.#root.lang = model.language === "zh" ? "zh-CN" : "en";
    this.#root.setAttribute("aria-label", model.t("Pitfall Lab Explorer", "Pitfall Lab 浏览器"));
    this.#scrubber = new Scrubber(model);
    this.#scrubber.tell(this.#story);
    this.#sentence = h("p", { class: "pl-sentence", role: "status", "aria-live": "polite" });
    this.#count = h("span", { class: "pl-count", "aria-hidden": "true" });
    this.#facts = h("div", { class: "pl-facts", group: model.t("Facts about the focus", "所选对象的信息") });
    // Whatever stands below is about a part of the program when observation stopped before the program did.
    const why = model.scene.why ? [h("p", { class: "pl-stopped" }, say(model.scene.why, model.language))] : [];
    const parts = [this.#header(), ...why, this.#transport(), h("div", { class: "pl-say" }, this.#sentence)];
    if (this.#help) parts.push(this.#helpBox());
    if (this.#stories.length) parts.push(this.#findings());
    if (this.#asText) parts.push(this.#textBox());
    else parts.push(this.#facts, ...this.#grid());
    const help = remedies(model, this.#story);
    if (help) parts.push(help);
    const whatIf = this.#whatIf.draw();
    if (whatIf) parts.push(whatIf);
    if (model.trace.notes.length || model.trace.disagreements.length) parts.push(this.#notes());
    this.#root.replaceChildren(...parts);
    for (const panel of this.#panels) panel.update();
    this.#updateShell();
  }

  #findings(): HTMLElement {
    return findings(this.#model, this.#stories, this.#story, { choose: (story) => this.#chooseStory(story), go: (beat) => this.#go(beat) });
  }

  /** Brings up another finding, at the place that tells most about it. */
  #chooseStory(story: Story): void {
    this.#story = story;
    this.#redraw();
    const beat = story.beats.find((one) => one.role === "changed") ?? story.beats.find((one) => one.step !== null);
    if (beat) this.#go(beat);
  }

  #redraw(): void {
    const active = (this.#root.getRootNode() as ShadowRoot).activeElement as HTMLElement | null;
    const { key, change } = active?.dataset ?? {};
    this.#draw();
    if (change) this.#root.querySelector<HTMLElement>(`[data-change="${CSS.escape(change)}"]`)?.focus();
    else if (active) (key ? this.#buttons[key] : this.#scrubber.input)?.focus();
  }

  #update(): void {
    if (this.#model.language !== this.#drawn) return this.#redraw();
    for (const panel of this.#panels) panel.update();
    this.#updateShell();
  }

  #updateShell(): void {
    const model = this.#model;
    const { event, step, last } = model;
    this.#scrubber.update();
    this.#count.textContent = `${step + 1} / ${last + 1}`;
    const state = model.stateAt(step);
    const words = h("span", {}, ...prose(model.sentence(step), (part) => labels(part, model, state)));
    this.#sentence.replaceChildren(event ? dot(event.by, byText(event.by, model)) : "", words);
    if (!event) words.style.gridColumn = "1/-1";
    for (const [key, stuck] of [["Home", step < 0], ["ArrowLeft", step < 0], ["ArrowRight", step >= last], ["End", step >= last]] as const) {
      this.#buttons[key]?.setAttribute("aria-disabled", String(stuck));
    }
    for (const button of this.#root.querySelectorAll<HTMLElement>(".pl-story button, .pl-textview button")) {
      const here = button.dataset.step === String(step);
      if (here) button.setAttribute("aria-current", "step");
      else button.removeAttribute("aria-current");
    }
    if (this.#asText) this.#followText();
    else showFacts(this.#facts, model);
    this.#roving.sweep();
  }

  #header(): HTMLElement {
    const model = this.#model;
    const { outcome, agreement, sources } = model.trace;
    const bad = outcome.kind === "raised" || !!model.scene.why;
    const said = say(model.scene.head, model.language) || outcome.kind;
    const agreed = model.t(`${agreement.agreed} of ${agreement.checked} operations agree`, `${agreement.checked} 个操作中 ${agreement.agreed} 个一致`);
    const mirrored = agreement.mirrored ? model.t(`, ${agreement.mirrored} without a model`, `，${agreement.mirrored} 个没有模型`) : "";
    const badge = h("span", { class: "pl-agree", title: say(this.#helpTexts.agreement, model.language) }, dot("a", byText("a", model)), agreed + mirrored);
    if (agreement.disagreed) badge.append(h("b", {}, model.t(`≠ ${agreement.disagreed} disagree`, `≠ ${agreement.disagreed} 个不一致`)));
    const keys = `← → ${this.#story ? "E " : ""}T ?`;
    const hint = h("span", { class: "pl-hint" }, model.t(`Click here, then ${keys}`, `点击此处，再按 ${keys}`));
    const tools = h(
      "div",
      { class: "pl-tools" },
      this.#button("t", model.t("Text", "文字"), model.t("everything as text (T)", "文字视图（T）"), () => this.#toggleText(), this.#asText),
      this.#button("?", model.t("Help", "帮助"), model.t("keys and signs (?)", "按键与符号（?）"), () => this.#toggleHelp(), this.#help),
      this.#button("language", model.t("中文", "English"), model.t("切换到中文", "switch to English"), () => (model.language = model.language === "zh" ? "en" : "zh")),
    );
    return h("header", { class: "pl-head" }, h("h2", {}, sources[0]?.name ?? ""), h("span", { class: bad ? "pl-outcome pl-bad" : "pl-outcome" }, said), badge, hint, tools);
  }

  get #helpTexts(): Partial<Help> {
    return (this.#model.scene.help ?? {}) as Partial<Help>;
  }

  #button(key: string, text: string | SVGElement, title: string, click: () => void, pressed?: boolean): HTMLButtonElement {
    const button = h("button", { "data-key": key, title, click }, text);
    if (typeof text !== "string") button.setAttribute("aria-label", title);
    if (pressed !== undefined) button.setAttribute("aria-pressed", String(pressed));
    this.#buttons[key] = button;
    return button;
  }

  #icon(name: string): SVGElement {
    return s("svg", { class: "pl-icon", viewBox: "0 0 16 16", "aria-hidden": "true" }, s("path", { d: ICONS[name] ?? "" }));
  }

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
    if (this.#story) {
      const cycle = this.#button("e", model.t("Story", "经过"), model.t("saved → changed → raised (E)", "保存 → 改写 → 报错（E）"), () => this.#act("e"));
      cycle.classList.add("pl-wide");
      buttons.push(cycle);
    } else delete this.#buttons.e;
    return h("div", { class: "pl-transport" }, h("div", { class: "pl-buttons" }, ...buttons), this.#scrubber.element, this.#count);
  }

  #tabs(): HTMLElement {
    const bar = h("div", { class: "pl-tabs", role: "tablist" });
    for (const { id, element } of this.#panels) {
      const tab = h("button", { role: "tab", "data-tab": id, "aria-selected": String(id === this.#chosen), click: () => this.#choose(id) });
      tab.textContent = element.getAttribute("aria-label");
      bar.append(tab);
    }
    return bar;
  }

  #sections(): View[] {
    const code: View = { id: "code", title: { en: "Code", zh: "代码" }, mount: (body) => new CodeView(body, this.#model, this.#stories) };
    return [code, ...this.#views];
  }

  #choose(id: string): void {
    this.#chosen = id;
    for (const tab of this.#root.querySelectorAll<HTMLElement>("[data-tab]")) tab.setAttribute("aria-selected", String(tab.dataset.tab === id));
    for (const panel of this.#panels) panel.element.classList.toggle("pl-chosen", panel.id === id);
    this.#update();
  }

  /** The panels that have something to show; of the others only their one sentence stays. */
  #grid(): HTMLElement[] {
    const grid = h("div", { class: "pl-panels" });
    const empties = h("p", { class: "pl-empties" });
    const mounted = this.#sections().map((view) => this.#panel(view.id, view.title, (body) => view.mount(body, this.#model)));
    this.#panels = mounted.filter((panel) => !panel.element.querySelector(":scope > .pl-body > .pl-nothing"));
    for (const panel of mounted) {
      if (this.#panels.includes(panel)) grid.append(panel.element);
      else empties.append(h("b", {}, panel.element.getAttribute("aria-label") ?? ""), ` — ${panel.element.querySelector(".pl-nothing")?.textContent ?? ""} `);
    }
    if (!this.#panels.some((panel) => panel.id === this.#chosen)) this.#chosen = "code";
    return empties.childNodes.length ? [this.#tabs(), grid, empties] : [this.#tabs(), grid];
  }

  /** A view in its frame. When it fails it is replaced by a text, and the others go on. */
  #panel(id: string, title: View["title"], mount: (body: HTMLElement) => { update(): void; destroy(): void }): Panel {
    const body = h("div", { class: "pl-body" });
    const name = this.#model.t(title.en, title.zh);
    const chosen = id === this.#chosen ? " pl-chosen" : "";
    const element = h("section", { class: `pl-panel pl-p-${id}${chosen}`, group: name }, h("h3", {}, name), this.#takers(id, name, body), body);
    let view: { update(): void; destroy(): void } | null = null;
    const guarded = (work: () => void): void => {
      try {
        work();
      } catch {
        view = null;
        const sorry = this.#model.t(`${name} could not be drawn here; press T for the text.`, `此处无法绘制“${name}”；按 T 查看文字。`);
        body.replaceChildren(h("p", { class: "pl-nothing" }, sorry));
      }
    };
    guarded(() => (view = mount(body)));
    return { id, element, update: () => guarded(() => view?.update()), destroy: () => guarded(() => view?.destroy()) };
  }

  /** The view as a picture: for slides. The code has none, it is text. */
  #takers(id: string, name: string, body: HTMLElement): HTMLElement | null {
    if (id === "code") return null;
    const button = (kind: "svg" | "png"): HTMLElement => {
      const label = kind === "svg" ? this.#model.t(`save ${name} as SVG`, `将“${name}”存为 SVG`) : this.#model.t(`copy ${name} as PNG`, `将“${name}”复制为 PNG`);
      const go = (): void => {
        const box = body.querySelector<HTMLElement>(".plv");
        if (box) void take(box, kind, `pitfall-lab-${id}`).catch(() => {});
      };
      return h("button", { title: label, label: label, click: go }, kind.toUpperCase());
    };
    return h("div", { class: "pl-take" }, button("svg"), button("png"));
  }

  #textBox(): HTMLElement {
    const model = this.#model;
    const from = Math.max(0, model.step - TEXT_WINDOW);
    const to = Math.min(model.last, model.step + TEXT_WINDOW);
    const list = h("ol", {});
    const left = model.trace.events.length - (to - from + 1);
    for (let step = from; step <= to; step += 1) {
      const go = (): void => void (model.step = step);
      const number = h("span", { class: "pl-no" }, String(step + 1));
      list.append(h("li", {}, h("button", { "data-step": step, click: go }, number, h("span", {}, ...prose(model.sentence(step))))));
    }
    const box = h("section", { class: "pl-textview", tabindex: "-1", "data-from": from, "data-to": to, group: model.t("Everything as text", "文字视图") }, list);
    if (left > 0) box.append(h("p", { class: "pl-nothing" }, model.t(`${left} steps further away are left out here.`, `此处省略了较远的 ${left} 步。`)));
    return box;
  }

  /** Keeps the current sentence in sight, and draws another window of the text when the step left it. */
  #followText(): void {
    const box = this.#root.querySelector<HTMLElement>(".pl-textview");
    const { step } = this.#model;
    if (!box || step < 0) return;
    if (step < Number(box.dataset.from) || step > Number(box.dataset.to)) return void (box.replaceWith(this.#textBox()), this.#updateShell());
    const row = box.querySelector<HTMLElement>("[aria-current]");
    if (!row) return;
    const top = row.offsetTop - box.offsetTop;
    if (top < box.scrollTop || top + row.offsetHeight > box.scrollTop + box.clientHeight) box.scrollTop = Math.max(0, top - box.clientHeight / 3);
  }

  #helpBox(): HTMLElement {
    const model = this.#model;
    const { keys = [], signs = [], agreement } = this.#helpTexts;
    const list = (rows: [sign: string | Element, text: Text][]): HTMLElement => h("dl", {}, ...rows.flatMap(([sign, text]) => [h("dt", {}, sign), h("dd", {}, say(text, model.language))]));
    const dots = (["o", "m", "a"] as const).map((by): [Element, Text] => [dot(by, ""), { en: byText(by, model), zh: byText(by, model) }]);
    return h(
      "section",
      { class: "pl-help", group: model.t("Help", "帮助") },
      h("div", {}, h("h3", {}, model.t("Keys", "按键")), list(keys)),
      h("div", {}, h("h3", {}, model.t("Signs", "符号")), list([...dots, ...signs]), h("p", { class: "pl-nothing" }, say(agreement, model.language))),
    );
  }

  #notes(): HTMLElement {
    const model = this.#model;
    const rows = model.trace.notes.map((note) => h("p", {}, model.t(note.en, note.zh)));
    for (const { step, path, observed, modelled } of model.trace.disagreements.slice(0, 20)) {
      const [a, b] = [JSON.stringify(observed) ?? "", JSON.stringify(modelled) ?? ""].map((text) => text.slice(0, 120));
      const place = model.t(`Step ${step + 1}, ${path}: torch has ${a}, the model has ${b}.`, `第 ${step + 1} 步，${path}：torch 是 ${a}，模型是 ${b}。`);
      rows.push(h("p", { class: "pl-wrong" }, `≠ ${place}`));
    }
    return h("section", { class: "pl-notes", group: model.t("Notes", "说明") }, ...rows);
  }

  #toggleText(): void {
    this.#asText = !this.#asText;
    this.#redraw();
    this.#root.querySelector(".pl-textview")?.scrollIntoView({ block: "nearest" });
  }

  #toggleHelp(): void {
    this.#help = !this.#help;
    this.#redraw();
  }

  #go(beat: Beat): void {
    const changed = this.#story?.beats.find((one) => one.role === "changed")?.step ?? null;
    const storage = changed === null ? undefined : this.#model.trace.events[changed]?.writes[0];
    if (beat.step !== null) this.#model.step = beat.step;
    if (storage) this.#model.focus = storage;
  }

  /** E: the next beat of the story that can be shown, round and round. */
  #cycle(): void {
    const beats = (this.#story?.beats ?? []).filter((beat) => beat.step !== null && beat.role !== "other");
    const all = beats.length ? beats : (this.#story?.beats ?? []).filter((beat) => beat.step !== null);
    const at = all.findIndex((beat) => beat.step === this.#model.step);
    const next = all[(at + 1) % Math.max(1, all.length)];
    if (next) this.#go(next);
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
      "?": () => this.#toggleHelp(),
    };
    const action = Object.hasOwn(actions, key) ? actions[key] : undefined;
    action?.();
    return action !== undefined;
  }

  #key(event: KeyboardEvent): void {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const section = /^[1-9]$/.test(key) && !this.#asText ? this.#panels[Number(key) - 1] : undefined;
    if (key === "ArrowUp") this.#roving.move(-1, event.target as Element);
    else if (key === "ArrowDown") this.#roving.move(1, event.target as Element);
    else if (key === "Escape") this.#leave(event.target as HTMLElement);
    else if (section) this.#choose(section.id);
    else if (!this.#act(key)) return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Esc goes from a control to the scrubber, and from there out, to whatever around the Explorer takes the focus. */
  #leave(from: HTMLElement): void {
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
