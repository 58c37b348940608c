/**
 * What kernel and panel say to each other, version 1. Messages come from a kernel that may run anything: every field is read by type
 * and cut to size, what is not understood is left out, and all of it is shown as text.
 */

import type { Text } from "../../core/contract";

/** The line below a traceback, as an output of its cell. */
export const HINT = "application/vnd.pitfall-lab.hint+json";
export const TARGET = "pitfall-lab.live";
export const VERSION = 1;

export const ROWS = 20_000;
const SENTENCE = 2_000;
const NAME = 200;
/** The way from a name to what is inside it. */
const ID = 2_000;
const PICTURE = 8_000_000;
const EARLIER = 20;

const KINDS = ["tensor", "array", "module", "optimizer", "group"] as const;
const GRADS = ["leaf", "graph", "none", ""] as const;
const LEVELS = ["error", "silent", "note"] as const;
const ROLES = ["saved", "changed", "made", "stale"] as const;
export const VIEWS = ["storage", "graph", "alive"] as const;

export type Kind = (typeof KINDS)[number];
export type Level = (typeof LEVELS)[number];
export type Role = (typeof ROLES)[number];
export type View = (typeof VIEWS)[number];

/** A cell of the notebook: `In [count]`, and the notebook's own id for it. */
export interface CellRef {
  count: number;
  id: string;
}

export interface Saved {
  node: string;
  version: number;
  cell: number | null;
  line: number | null;
}

export interface Detail {
  norm: number | null;
  grad_norm: number | null;
  ratio: number | null;
  frozen: boolean;
  optimizer: string | null;
}

export interface Row {
  id: string;
  name: string;
  kind: Kind;
  type: string;
  shape: number[] | null;
  dtype: string;
  device: string;
  bytes: number | null;
  storage: number | null;
  version: [before: number, now: number] | null;
  grad: (typeof GRADS)[number];
  grad_fn: string;
  has_grad: boolean | null;
  /** What its graph has saved was overwritten: backward from here fails. */
  stale: boolean;
  saved_by: Saved[];
  changed: boolean;
  new: boolean;
  children: number;
  detail: Detail | null;
}

export interface Warning {
  id: string;
  row: string | null;
  level: Level;
  kind: string;
  sentence: Text;
  explanation: Text;
  fix: Text | null;
  cells: (CellRef & { line: number | null; role: Role })[];
  rule: string;
  /** It has come true: torch has refused what was warned of. */
  failed: boolean;
  /** A name that helps to copy before the statement at this line. */
  copy: { cell: string; line: number; name: string } | null;
  /** The cells to be recorded together with the backward of `root`, which has not been run yet. */
  again: (Again & { root: string }) | null;
}

/** The earlier cells in which something began, and what running them again changes besides. */
export interface Again {
  cells: CellRef[];
  effects: Text;
}

export interface Rows {
  kind: "rows";
  cell: CellRef;
  past: boolean;
  ms: number;
  /** The place of the first of these rows among all: what is many comes in pages. */
  from: number;
  rows: Row[];
  more: number;
  cells: CellRef[];
  note: Text | null;
}

export type Message =
  | Rows
  | { kind: "children"; id: string; rows: Row[] }
  | { kind: "warnings"; cell: CellRef; warnings: Warning[] }
  | { kind: "picture"; id: string; view: View; svg: string | null; text: Text }
  | { kind: "refused"; text: Text };

export type Ask =
  | { ask: "watch"; visible: boolean; stale: boolean }
  | { ask: "rows"; from?: number; all?: boolean }
  | { ask: "unfold"; id: string }
  | { ask: "picture"; id: string; view: View }
  | { ask: "past"; cell: number };

type Given = Record<string, unknown>;

function object(raw: unknown): Given {
  return typeof raw === "object" && raw !== null && !Array.isArray(raw) ? (raw as Given) : {};
}

function text(raw: unknown, most = NAME): string {
  return typeof raw === "string" ? raw.slice(0, most) : "";
}

function number(raw: unknown): number | null {
  return typeof raw === "number" && Number.isFinite(raw) ? raw : null;
}

function count(raw: unknown): number {
  return Math.max(0, Math.trunc(number(raw) ?? 0));
}

function word<W extends string>(raw: unknown, words: readonly W[], otherwise: W): W {
  return words.includes(raw as W) ? (raw as W) : otherwise;
}

function list<V>(raw: unknown, read: (one: unknown) => V, most: number): V[] {
  return Array.isArray(raw) ? raw.slice(0, most).map(read) : [];
}

function both(raw: unknown): Text {
  const { en, zh } = object(raw);
  const english = text(en, SENTENCE);
  return { en: english, zh: text(zh, SENTENCE) || english };
}

function cell(raw: unknown): CellRef {
  const given = object(raw);
  return { count: count(given.count), id: text(given.id) };
}

function saved(raw: unknown): Saved {
  const given = object(raw);
  return { node: text(given.node), version: count(given.version), cell: number(given.cell), line: number(given.line) };
}

function detail(raw: unknown): Detail {
  const given = object(raw);
  return {
    norm: number(given.norm),
    grad_norm: number(given.grad_norm),
    ratio: number(given.ratio),
    frozen: given.frozen === true,
    optimizer: typeof given.optimizer === "string" ? text(given.optimizer) : null,
  };
}

function row(raw: unknown): Row {
  const given = object(raw);
  const version = list(given.version, count, 2);
  return {
    id: text(given.id, ID),
    name: text(given.name),
    kind: word(given.kind, KINDS, "tensor"),
    type: text(given.type),
    shape: Array.isArray(given.shape) ? list(given.shape, count, 64) : null,
    dtype: text(given.dtype),
    device: text(given.device),
    bytes: number(given.bytes),
    storage: number(given.storage),
    version: version.length === 2 ? [version[0] as number, version[1] as number] : null,
    grad: word(given.grad, GRADS, ""),
    grad_fn: text(given.grad_fn),
    has_grad: typeof given.has_grad === "boolean" ? given.has_grad : null,
    stale: given.stale === true,
    saved_by: list(given.saved_by, saved, 50),
    changed: given.changed === true,
    new: given.new === true,
    children: count(given.children),
    detail: given.detail ? detail(given.detail) : null,
  };
}

/** Rows are found by their ids, so a second row with the same id is left out. */
function rows(raw: unknown): Row[] {
  const known = new Set<string>();
  return list(raw, row, ROWS).filter(({ id }) => id !== "" && !known.has(id) && known.add(id));
}

function warning(raw: unknown): Warning {
  const given = object(raw);
  return {
    id: text(given.id),
    row: typeof given.row === "string" ? text(given.row, ID) : null,
    level: word(given.level, LEVELS, "note"),
    kind: text(given.kind),
    sentence: both(given.sentence),
    explanation: both(given.explanation),
    fix: given.fix ? both(given.fix) : null,
    cells: list(given.cells, (one) => ({ ...cell(one), line: number(object(one).line), role: word(object(one).role, ROLES, "made") }), 8),
    rule: text(given.rule, 20),
    failed: given.failed === true,
    copy: copy(given.copy),
    again: ahead(given.again),
  };
}

/** What will be written into a cell is made here, out of a name and nothing else. */
function copy(raw: unknown): Warning["copy"] {
  const given = object(raw);
  const [name, line] = [text(given.name), count(given.line)];
  return /^[\p{L}_][\p{L}\p{N}_]*$/u.test(name) && line ? { cell: text(given.cell), line, name } : null;
}

function again(raw: unknown): Again | null {
  const { cells, effects } = object(raw);
  const earlier = list(cells, cell, EARLIER).filter(({ count }) => count > 0);
  return earlier.length ? { cells: earlier, effects: both(effects) } : null;
}

/** What will be run is made here, out of a name and nothing else. */
function ahead(raw: unknown): Warning["again"] {
  const root = text(object(raw).root);
  const earlier = again(raw);
  return earlier && /^[\p{L}_][\p{L}\p{N}_]*(\.[\p{L}_][\p{L}\p{N}_]*)*$/u.test(root) ? { ...earlier, root } : null;
}

/** The message in `raw`, or null for one of another version or of a kind that this panel does not know. */
export function readMessage(raw: unknown): Message | null {
  const given = object(raw);
  if (given.version !== VERSION) return null;
  switch (given.kind) {
    case "rows":
      return {
        kind: "rows",
        cell: cell(given.cell),
        past: given.past === true,
        ms: number(given.ms) ?? 0,
        from: count(given.from),
        rows: rows(given.rows),
        more: count(given.more),
        cells: list(given.cells, cell, 1_000),
        note: given.note ? both(given.note) : null,
      };
    case "children":
      return { kind: "children", id: text(given.id, ID), rows: rows(given.rows) };
    case "warnings":
      return { kind: "warnings", cell: cell(given.cell), warnings: list(given.warnings, warning, 200) };
    case "picture": {
      const svg = typeof given.svg === "string" && given.svg.length <= PICTURE ? given.svg : null;
      return { kind: "picture", id: text(given.id, ID), view: word(given.view, VIEWS, "storage"), svg, text: both(given.text) };
    }
    case "refused":
      return { kind: "refused", text: both(given.text) };
    default:
      return null;
  }
}

/** The hint under a cell that torch refused, as it stands in an output. */
export interface Hint {
  text: Text;
  rule: string;
  cell: string;
  again: Again | null;
}

export function readHint(raw: unknown): Hint | null {
  const given = object(raw);
  if (given.version !== VERSION) return null;
  return {
    text: both(given.text),
    rule: text(given.rule, 20),
    cell: text(given.cell),
    again: again(given.again),
  };
}
