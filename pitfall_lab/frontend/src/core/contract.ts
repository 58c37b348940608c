/**
 * What the front end is made of: the trace as the browser reads it, the model that all views share, and a view.
 *
 * The trace types mirror `pitfall_lab/trace/model.py`. The JSON leaves out fields that have their default value;
 * `readTrace` (load.ts) puts them back, so every field below is always there.
 */

import type { Slice } from "./story";

export type Language = "en" | "zh";
export type By = "o" | "m" | "a";
export type EventKind = "call" | "node" | "write" | "mode";
export type Text = { en: string; zh: string };

export type Cell = number | boolean | string;
/** Plain values, or when there are many: how many, and the few that are shown as [index, value]. */
export type Cells = Cell[] | { count: number; shown: [number, Cell][] };

/** A cell's share of a program that several cells make: from `line` on, which is line `own` of the cell called `name`. */
export interface Part {
  name: string;
  line: number;
  own: number;
  cell: string;
}

export interface Source {
  name: string;
  text: string;
  parts: Part[];
}

/** Lines count from 1, columns from 0. `utf16` holds the two columns in JavaScript's string units. */
export interface Span {
  line: number;
  column: number;
  end_line: number;
  end_column: number;
  utf16: [number, number];
  source: number;
}

/** [path, value, who holds the fact: observed, modelled or agreed] */
export type Effect = [path: string, value: unknown, by: By];

export interface Operand {
  label: string | null;
  text: string;
  name: string;
}

export interface Failure {
  type: string;
  message: string;
  kind: string;
  step: number | null;
  span: Span | null;
  node: string | null;
  saved: string | null;
  tensor: string | null;
  storage: string | null;
  counter: string | null;
  expected: number | null;
  found: number | null;
  saved_at: number | null;
  changed_at: number[];
}

export interface Forecast {
  step: number;
  failure: Failure;
  came_true: number | null;
}

export interface StaleRead {
  node: string;
  saved: string;
  storage: string;
  saved_at: number | null;
  changed_at: number[];
}

export interface Harm {
  step: number;
  leaf: string;
  torch: unknown;
  meant: unknown;
  causes: StaleRead[];
}

export interface TraceEvent {
  step: number;
  kind: EventKind;
  op: string;
  span: Span | null;
  scope: string[];
  parent: number | null;
  operands: Operand[];
  results: string[];
  writes: string[];
  effects: Effect[];
  by: "observed" | "modelled" | "agreed";
  reason: string;
  forecasts: Forecast[];
  harms: Harm[];
  error: Failure | null;
}

export interface Agreement {
  checked: number;
  agreed: number;
  mirrored: number;
  disagreed: number;
}

export interface Disagreement {
  step: number;
  path: string;
  observed: unknown;
  modelled: unknown;
}

export interface Note {
  kind: "limit" | "stopped" | "unseen";
  en: string;
  zh: string;
  step: number | null;
}

export interface Trace {
  schema: number;
  sources: Source[];
  events: TraceEvent[];
  outcome: { kind: "finished" | "raised"; failure: Failure | null };
  agreement: Agreement;
  disagreements: Disagreement[];
  notes: Note[];
  environment: [string, string][];
}

export interface TensorState {
  kind: "tensor" | "parameter" | "array";
  name: string | null;
  names: string[];
  shape: number[];
  stride: number[];
  offset: number;
  dtype: string;
  device: string;
  storage: string | null;
  counter: string | null;
  requires_grad: boolean;
  is_leaf: boolean;
  grad_fn: string | null;
  base: string | null;
  grad: string | null;
  born: number;
  alive: boolean;
}

export interface StorageState {
  size: number;
  dtype: string;
  nbytes: number;
  cells: Cells | null;
  alive: boolean;
}

export interface SavedState {
  name: string;
  tensor: string | null;
  storage: string | null;
  counter: string | null;
  version: number;
}

export interface NodeState {
  name: string;
  next: (string | null)[];
  born: number;
  output: string | null;
  saved: SavedState[];
  freed: boolean;
  ran: number | null;
  gradient: Cells | null;
  gradient_shape: number[] | null;
}

/** What the program's memory and graph look like after a step: the fold of all effects up to it. */
export interface State {
  tensors: Record<string, TensorState>;
  storages: Record<string, StorageState>;
  counters: Record<string, number>;
  nodes: Record<string, NodeState>;
  mode: { grad: boolean; inference: boolean };
}

/** How far Python is with trying the fixes; `said` is why it cannot. */
export interface Trials {
  state: "trying" | "done" | "stopped" | "failed" | "refused";
  done: number;
  total: number;
  said: Text | null;
}

/** What Python has laid out once for the finished trace; each view reads its own part, which may be missing. */
export interface Scene {
  code?: unknown;
  graph?: unknown;
  storage?: unknown;
  broadcast?: unknown;
  versions?: unknown;
  memory?: unknown;
  events?: { step: number; sentence: Text }[];
  stories?: unknown;
  /** The headline, and why observation stopped where it did. */
  head?: Text;
  why?: Text | null;
  /** What the program calls each label. */
  names?: Record<string, string>;
  /** Fixes are still being tried: they come with an amendment, and so does how far the trials are. */
  trying?: boolean;
  trials?: Trials;
  [view: string]: unknown;
}

export interface Model {
  readonly trace: Trace;
  readonly scene: Scene;
  /** -1 is before the first event. */
  step: number;
  /** A label ("t3", "S1", "C1", "n5") or "". */
  focus: string;
  language: Language;
  stateAt(step: number): State;
  /** Calls `fn` after step, focus or language changed; returns what stops it. */
  onChange(fn: () => void): () => void;
  t(en: string, zh: string): string;
  /** Writes a number to an element of a live tensor; resolves when it is done, rejects with the sentence that says why not. */
  edit?(tensor: string, index: number[], text: string): Promise<void>;
  /** The storage behind a label: its own, its tensor's, its counter's, or that of what its node made. */
  storageOf(label: string, state: State): string;
  hue(storage: string): string;
  /** What the program calls the thing behind a label; with the label where the reader asked for labels. */
  called(label: string | null | undefined): string;
  /** A line as its author finds it: with the cell where several make the program. */
  place(line: number | null, source?: number): string;
  /** Whether labels (`C2`) stand beside the names. */
  readonly labelled: boolean;
  /** The labels that the finding is about; null where everything is shown. */
  readonly slice: Slice | null;
  /** The part of the graph that belongs to it, as Python has laid it out. */
  readonly sliceGraph: unknown;
}

export interface View {
  id: string;
  title: { en: string; zh: string };
  /** Whether there is anything to see: a panel without anything has no tab. */
  has(scene: Scene): boolean;
  mount(root: HTMLElement, model: Model): { update(): void; destroy(): void };
}
