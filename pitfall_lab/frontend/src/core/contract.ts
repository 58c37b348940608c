/** What the front end is made of: what Python sends (wire.ts), the model that all views share, and a view. */

import type { Story } from "./story";
import type { Drawing, Effect, Language, Scene, Slice, State, Trace } from "./wire";

export type {
  Cell,
  Cells,
  Effect,
  Event as TraceEvent,
  Language,
  Part,
  Scene,
  Span,
  State,
  Text,
  Trace,
  Trials,
  Views,
} from "./wire";

/** Where a fact comes from: observed, modelled or agreed. */
export type By = Effect[2];

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
  /** The finding that is shown, if there is one. */
  readonly story: Story | undefined;
  /** The labels that the finding is about; null where everything is shown. */
  readonly slice: Slice | null;
  /** The part of the graph that belongs to it, as Python has laid it out. */
  readonly sliceGraph: Drawing | null;
}

export interface View {
  id: string;
  title: { en: string; zh: string };
  /** Whether there is anything to see: a panel without anything has no tab. */
  has(scene: Scene): boolean;
  /** Whether less than everything is shown of what belongs to this finding; without it, it is for every finding. */
  parts?(scene: Scene, story: Story): boolean;
  mount(root: HTMLElement, model: Model): { update(): void; destroy(): void };
}
