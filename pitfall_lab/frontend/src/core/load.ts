/**
 * Reading a trace that may come from anywhere: every field is checked and every default is put back, or one sentence
 * says why the text was refused. What effects carry is free data; views that stumble over it are replaced by a text.
 */

import type { Effect, Scene, Text, Trace } from "./contract";
import type { Beside, Given } from "./wire";

export const SCHEMA = 3;
const MAX_CHARACTERS = 128 * 1024 * 1024;

/** Why a text is not a trace that can be shown: one sentence for a person, in both languages. */
export class TraceError extends Error {
  constructor(readonly text: Text) {
    super(text.en);
  }
}

type Reader<V> = (raw: unknown) => V;

function damaged(): never {
  throw new TraceError({ en: "This is not a complete trace, so there is nothing to show.", zh: "这不是一份完整的轨迹，无法显示。" });
}

const text: Reader<string> = (raw) => (typeof raw === "string" ? raw : damaged());
const truth: Reader<boolean> = (raw) => (typeof raw === "boolean" ? raw : damaged());
const whole: Reader<number> = (raw) => (Number.isInteger(raw) ? (raw as number) : damaged());
const real: Reader<number> = (raw) => (typeof raw === "number" ? raw : damaged());
const anything: Reader<unknown> = (raw) => raw;

function optional<V>(read: Reader<V>): Reader<V | null> {
  return (raw) => (raw === null ? null : read(raw));
}

function list<V>(read: Reader<V>): Reader<V[]> {
  return (raw) => (Array.isArray(raw) ? raw.map(read) : damaged());
}

function couple<A, B>(first: Reader<A>, second: Reader<B>): Reader<[A, B]> {
  return (raw) => (Array.isArray(raw) && raw.length === 2 ? [first(raw[0]), second(raw[1])] : damaged());
}

function pair<V>(read: Reader<V>): Reader<[V, V]> {
  return couple(read, read);
}

function word<W extends string>(...words: W[]): Reader<W> {
  return (raw) => (words.includes(raw as W) ? (raw as W) : damaged());
}

/** One field: how to read it, and the value it has when it was left out (none: it must be there). */
type Field<V> = [read: Reader<V>] | [read: Reader<V>, missing: unknown];

function record<R extends object>(fields: { [K in keyof R]: Field<R[K]> }): Reader<R> {
  return (raw) => {
    if (typeof raw !== "object" || raw === null || Array.isArray(raw)) damaged();
    const given = raw as Record<string, unknown>;
    const result: Record<string, unknown> = {};
    for (const [name, field] of Object.entries<Field<unknown>>(fields)) {
      const [read, missing] = field;
      if (Object.hasOwn(given, name)) result[name] = read(given[name]);
      else if (field.length === 1) damaged();
      else result[name] = Array.isArray(missing) ? [...missing] : missing;
    }
    return result as R;
  };
}

const label = optional(text);
const step = optional(whole);

const span = record<NonNullable<Trace["events"][0]["span"]>>({
  line: [whole],
  column: [whole],
  end_line: [whole],
  end_column: [whole],
  utf16: [pair(whole), [0, 0]],
  source: [whole, 0],
});

const given = record<Given>({
  name: [text, ""],
  text: [text, ""],
  kind: [text, ""],
  label: [label, null],
  value: [text, ""],
  dtype: [text, ""],
  shape: [optional(list(whole)), null],
  device: [text, ""],
  requires_grad: [truth, false],
  low: [anything, null],
  high: [anything, null],
  part_of: [text, ""],
});

const failure = record<NonNullable<Trace["outcome"]["failure"]>>({
  type: [text],
  message: [text],
  kind: [text, "other"],
  step: [step, null],
  span: [optional(span), null],
  node: [label, null],
  saved: [label, null],
  tensor: [label, null],
  storage: [label, null],
  counter: [label, null],
  expected: [step, null],
  found: [step, null],
  saved_at: [step, null],
  changed_at: [list(whole), []],
  origin: [word("", "torch", "program", "library"), ""],
  op: [text, ""],
  given: [list(given), []],
  earlier: [truth, false],
});

const effect: Reader<Effect> = (raw) => {
  if (!Array.isArray(raw) || raw.length !== 3) damaged();
  return [text(raw[0]), raw[1], word("o", "m", "a")(raw[2])];
};

const event = record<Trace["events"][0]>({
  step: [whole],
  kind: [word("call", "node", "write", "mode")],
  op: [text],
  span: [optional(span), null],
  scope: [list(text), []],
  parent: [step, null],
  operands: [list(record({ label: [label, null], text: [text, ""], name: [text, ""] })), []],
  results: [list(text), []],
  writes: [list(text), []],
  effects: [list(effect), []],
  by: [word("observed", "modelled", "agreed"), "observed"],
  reason: [text, ""],
  forecasts: [list(record({ step: [whole], failure: [failure], came_true: [step, null] })), []],
  harms: [
    list(
      record({
        step: [whole],
        leaf: [text],
        torch: [anything, null],
        meant: [anything, null],
        causes: [
          list(
            record({
              node: [text],
              saved: [text],
              storage: [text],
              saved_at: [step, null],
              changed_at: [list(whole), []],
            }),
          ),
          [],
        ],
      }),
    ),
    [],
  ],
  error: [optional(failure), null],
});

const finished = { kind: "finished", failure: null };
const unchecked = { checked: 0, agreed: 0, mirrored: 0, disagreed: 0 };

const trace = record<Trace>({
  schema: [whole],
  sources: [
    list(
      record({ name: [text], text: [text], parts: [list(record({ name: [text], line: [whole], own: [whole, 1], cell: [text, ""] })), []] }),
    ),
    [],
  ],
  events: [list(event), []],
  outcome: [record({ kind: [word("finished", "raised"), "finished"], failure: [optional(failure), null] }), finished],
  agreement: [record({ checked: [whole, 0], agreed: [whole, 0], mirrored: [whole, 0], disagreed: [whole, 0] }), unchecked],
  disagreements: [list(record({ step: [whole], path: [text], observed: [anything, null], modelled: [anything, null] })), []],
  notes: [
    list(
      record({
        kind: [word("limit", "stopped", "unseen")],
        en: [text],
        zh: [text],
        step: [step, null],
        span: [optional(span), null],
        cause: [optional(word("failure", "limit", "removed", "never")), null],
      }),
    ),
    [],
  ],
  environment: [list(pair(text)), []],
  optimizer_steps: [
    list(record({ step: [whole], optimizer: [text], span: [optional(span), null], holds: [list(text), []], made: [step, null] })),
    [],
  ],
  reach: [
    record({
      lines: [whole, 0],
      missed: [whole, 0],
      later: [list(whole), []],
      gaps: [list(record({ step: [whole], calls: [whole] })), []],
    }),
    { lines: 0, missed: 0, later: [], gaps: [] },
  ],
  optimizers: [
    list(
      record({
        step: [whole],
        optimizer: [text],
        span: [optional(span), null],
        holds: [list(text), []],
        steps: [whole, 0],
        rates: [list(pair(real)), []],
        given: [list(real), []],
        apart: [whole, 0],
        updates: [list(whole), []],
        left: [list(couple(whole, optional(span))), []],
        cleared: [list(span), []],
        begins: [list(whole), []],
      }),
    ),
    [],
  ],
  // Only rules read it, in Python.
  beside: [anything as Reader<Beside>, {}],
});

function parse(json: string): unknown {
  if (json.length > MAX_CHARACTERS) {
    throw new TraceError({ en: "This trace is too large to show in a browser.", zh: "这份轨迹太大，浏览器无法显示。" });
  }
  try {
    return JSON.parse(json);
  } catch {
    return damaged();
  }
}

/** The trace in `json`; throws `TraceError` with one sentence when there is none that can be shown. */
export function readTrace(json: string): Trace {
  const raw = parse(json) as { schema?: unknown } | null;
  const schema = raw?.schema;
  if (typeof schema === "number" && schema > SCHEMA) {
    throw new TraceError({
      en: `This trace has schema ${schema}; this version of Pitfall Lab reads up to ${SCHEMA}. Please update it.`,
      zh: `这份轨迹的格式版本是 ${schema}；当前的 Pitfall Lab 最高支持 ${SCHEMA}，请更新。`,
    });
  }
  const result = trace(raw);
  if (result.events.some((one, index) => one.step !== index)) damaged();
  return result;
}

/** The scene in `json`. A scene only adds pictures to the trace, so a damaged one is an empty one. */
export function readScene(json: string): Scene {
  try {
    const raw: unknown = JSON.parse(json);
    return typeof raw === "object" && raw !== null && !Array.isArray(raw) ? (raw as Scene) : {};
  } catch {
    return {};
  }
}
