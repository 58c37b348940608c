/** The one model that all views of an Explorer share: step, focus, language, and the state after any step. */

import type { By, Language, Model, Scene, State, Text, Trace, TraceEvent } from "./contract";
import { GREY, HUES, hue } from "./palette";
import { apply, emptyState } from "./replay";
import { type Slice, type Story, stories } from "./story";
import { Turns } from "./turns";
import type { Drawing } from "./wire";

/** At most this many states are kept besides the current one: stepping stays cheap and memory stays flat. */
const CHECKPOINTS = 32;

export class ExplorerModel implements Model {
  edit?: Model["edit"];
  #now = -1;
  #label = "";
  #tongue: Language;
  #listeners = new Set<() => void>();
  #states = new Map<number, State>();
  #recent: [step: number, state: State][] = [];
  #facts: Map<string, [step: number, by: By][]> | null = null;
  #sentences = new Map<number, Text>();
  #stories: Story[];
  #chosen = 0;
  #all = false;
  #labelled = false;

  readonly turns: Turns;

  constructor(
    readonly trace: Trace,
    readonly scene: Scene,
    language: Language = "en",
  ) {
    this.turns = new Turns(this);
    this.#tongue = language;
    this.#stories = stories(scene);
    for (const one of Array.isArray(scene.events) ? scene.events : []) this.#sentences.set(one.step, one.sentence);
  }

  get last(): number {
    return this.trace.events.length - 1;
  }

  /** Whether calls of the program are missing between the recorded ones or after them, so that a count of steps is no count of calls. */
  get isPartial(): boolean {
    return !!this.scene.why || this.trace.reach.gaps.length > 0;
  }

  get step(): number {
    return this.#now;
  }

  set step(step: number) {
    const next = Math.max(-1, Math.min(this.last, Number.isFinite(step) ? Math.round(step) : -1));
    if (next === this.#now) return;
    this.#now = next;
    this.#changed();
  }

  get focus(): string {
    return this.#label;
  }

  set focus(label: string) {
    if (label === this.#label) return;
    this.#label = label;
    this.#changed();
  }

  get language(): Language {
    return this.#tongue;
  }

  set language(language: Language) {
    if (language === this.#tongue) return;
    this.#tongue = language;
    this.#changed();
  }

  get stories(): readonly Story[] {
    return this.#stories;
  }

  /** The finding that the Explorer is about now. */
  get story(): Story | undefined {
    return this.#stories[this.#chosen];
  }

  set story(story: Story | undefined) {
    const at = story ? this.#stories.indexOf(story) : -1;
    if (at >= 0) this.#chosen = at;
  }

  /** Python has tried the fixes: the same findings, in the same order, with what came of it. */
  amend(scene: Scene): void {
    Object.assign(this.scene, scene);
    this.#stories = stories(this.scene);
    this.#chosen = Math.min(this.#chosen, Math.max(0, this.#stories.length - 1));
  }

  /** Whether panels show everything, or what belongs to the finding. */
  get all(): boolean {
    return this.#all;
  }

  set all(all: boolean) {
    this.#all = all;
  }

  get slice(): Slice | null {
    return this.#all ? null : (this.story?.slice ?? null);
  }

  get sliceGraph(): Drawing | null {
    return this.#all ? null : (this.story?.graph ?? null);
  }

  /** Whether labels (`t3`, `S1`, `C1`, `n5`) stand beside the names. */
  get labelled(): boolean {
    return this.#labelled;
  }

  set labelled(labelled: boolean) {
    this.#labelled = labelled;
  }

  /** The display name of a label; with `then`, the name that the program had in that state, if it has given the tensor another one since. */
  called(label: string | null | undefined, then?: State): string {
    if (!label) return "?";
    const state = this.stateAt(this.last);
    const name =
      (then && this.#earlier(label, then, state)) || this.#displayed(label) || state.tensors[label]?.name || state.nodes[label]?.name;
    return !name || name === label ? label : this.#labelled ? `${name} (${label})` : name;
  }

  #displayed(label: string): string | undefined {
    const names = this.scene.names;
    return names && typeof names === "object" && Object.hasOwn(names, label) ? names[label] : undefined;
  }

  /** A memory and its version are named after a tensor: that one's earlier name is theirs. */
  #earlier(label: string, then: State, now: State): string {
    const owns = (tensor: string): boolean => {
      const record = now.tensors[tensor];
      const mine = tensor === label || record?.storage === label || record?.counter === label;
      return mine && !!record?.name && this.#displayed(tensor) === this.#displayed(label);
    };
    const owner = label in now.tensors ? label : (Object.keys(now.tensors).find(owns) ?? "");
    const earlier = then.tensors[owner]?.name;
    if (!earlier || earlier === now.tensors[owner]?.name) return "";
    return earlier.replace(/^self\./, "").replace(/\.(\d+)(?=\.|$)/g, "[$1]");
  }

  place(line: number | null, source = 0): string {
    if (line === null) return "";
    const found = this.trace.sources[source];
    const part = found && found.parts.length > 1 ? found.parts.findLast((one) => one.line <= line) : undefined;
    const [name, own] = part ? [part.name, line - part.line + part.own] : [source ? (found?.name ?? "") : "", line];
    return name ? this.t(`${name}, line ${own}`, `${name} 第 ${own} 行`) : this.t(`line ${own}`, `第 ${own} 行`);
  }

  get event(): TraceEvent | null {
    return this.trace.events[this.#now] ?? null;
  }

  onChange(fn: () => void): () => void {
    this.#listeners.add(fn);
    return () => this.#listeners.delete(fn);
  }

  #changed(): void {
    for (const fn of [...this.#listeners]) fn();
  }

  t(en: string, zh: string): string {
    return this.#tongue === "zh" ? zh : en;
  }

  /** The memories that have the hues: the finding's; where it is about none, those that Python chose for all views. */
  get #coloured(): readonly string[] | undefined {
    const own = this.story?.slice?.storages ?? [];
    return own.length ? own : Array.isArray(this.scene.palette) ? (this.scene.palette as string[]) : undefined;
  }

  /** The finding's memory has the hues; what is under the pointer takes the last one when it has none. */
  hue(storage: string): string {
    const own = hue(storage, this.#coloured);
    const pointed = own === GREY && this.#label !== "" && this.storageOf(this.#label, this.stateAt(this.#now)) === storage;
    return pointed ? HUES[5] : own;
  }

  /** The hue in what is drawn of the current step alone: there its own memories take the hues that none of them has, and nothing is all grey. */
  hueNow(storage: string): string {
    const own = this.hue(storage);
    if (own !== GREY || this.story) return own;
    const [before, now] = [this.stateAt(this.#now - 1), this.stateAt(this.#now)];
    const { operands = [], results = [], writes = [] } = this.event ?? {};
    const taken = operands.map(({ label }) => before.tensors[label ?? ""]?.storage ?? "");
    const its = [...new Set([...taken, ...results.map((label) => now.tensors[label]?.storage ?? ""), ...writes])].filter(Boolean);
    const free = HUES.filter((one) => its.every((each) => this.hue(each) !== one));
    return free[its.filter((each) => this.hue(each) === GREY).indexOf(storage)] ?? GREY;
  }

  /** One sentence about an event: the one that Python wrote, else a plain one. */
  sentence(step: number): string {
    const event = this.trace.events[step];
    if (!event) return this.t("Before the first operation.", "第一个操作之前。");
    const text = this.#sentences.get(step);
    return text ? this.t(String(text.en), String(text.zh)) : event.op;
  }

  /** The state after `step`. Treat it as read-only: states share their parts. */
  stateAt(step: number): State {
    const wanted = Math.max(-1, Math.min(this.last, step));
    const known = this.#recent.find(([at]) => at === wanted);
    if (known) return known[1];
    const [from, base] = this.#nearest(wanted);
    const state = this.#fold(base, from, wanted);
    this.#recent.unshift([wanted, state]);
    this.#recent.length = Math.min(this.#recent.length, 4);
    return state;
  }

  #nearest(wanted: number): [number, State] {
    let best: [number, State] = [-1, emptyState()];
    for (const [at, state] of [...this.#recent, ...this.#states]) if (at <= wanted && at > best[0]) best = [at, state];
    return best;
  }

  #fold(base: State, from: number, to: number): State {
    const spacing = Math.max(32, Math.ceil(this.trace.events.length / CHECKPOINTS));
    let state = { ...base };
    let owned = new Set<object>();
    for (let step = from + 1; step <= to; step += 1) {
      for (const effect of (this.trace.events[step] as TraceEvent).effects) apply(state, effect, owned);
      if (step % spacing === 0 && step < to) {
        this.#states.set(step, state);
        state = { ...state };
        owned = new Set();
      }
    }
    return state;
  }

  /** Who holds the fact at `path` ("tensors.t3.counter") after `step`: the last effect on it or on what it is part of. */
  provenance(path: string, step: number): By | null {
    const facts = (this.#facts ??= this.#index());
    let best: [number, By] | null = null;
    for (let key = path; key; key = key.slice(0, Math.max(0, key.lastIndexOf(".")))) {
      for (const entry of facts.get(key) ?? []) if (entry[0] <= step && (!best || entry[0] > best[0])) best = entry;
    }
    return best ? best[1] : null;
  }

  #index(): Map<string, [number, By][]> {
    const facts = new Map<string, [number, By][]>();
    for (const event of this.trace.events) {
      for (const [path, , by] of event.effects) {
        const entries = facts.get(path);
        if (entries) entries.push([event.step, by]);
        else facts.set(path, [[event.step, by]]);
      }
    }
    return facts;
  }

  /** The steps that touch the storage of the focused label: what `[` and `]` walk through. Everything when nothing is focused. */
  touching(): number[] {
    const storage = this.storageOf(this.#label, this.stateAt(this.last));
    const touched = this.scene.touched as Record<string, number[]> | undefined;
    return [...(touched?.[storage] ?? this.trace.events.keys())];
  }

  /** The storage behind a label: its own, its tensor's, its counter's, or that of what its node made. */
  storageOf(label: string, state: State): string {
    if (label.startsWith("S")) return label;
    if (label.startsWith("t")) return state.tensors[label]?.storage ?? "";
    if (label.startsWith("n")) return this.storageOf(state.nodes[label]?.output ?? "", state);
    if (!label.startsWith("C")) return "";
    return Object.values(state.tensors).find((tensor) => tensor.counter === label)?.storage ?? "";
  }
}
