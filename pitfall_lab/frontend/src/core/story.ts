/** What went wrong, as Python tells it: beats to walk through, one picture, edits that help, and the part of the program that it is about. */

import type { Cells, Scene, Text } from "./contract";

export type Role = "saved" | "changed" | "raised" | "wrong" | "other";

/** One place in the story: what happened there, and the step and line to look at. */
export interface Beat {
  role: Role;
  title: Text;
  step: number | null;
  line: number | null;
  source: number;
  place: Text;
  code: string;
  text: string | Text;
}

/** An edit of the program's first source: whole lines, both ends included, counted from 1. */
export interface Edit {
  line: number;
  end_line: number;
  text: string;
}

/** A way to repair the program. As rows: " " stays, "−" goes, "+" comes. */
export interface Fix {
  title: string | Text;
  verified: boolean;
  rows: [sign: " " | "−" | "+", text: string][];
  edits: Edit[];
}

/** A storage as it was after a step. */
export interface Memory {
  storage: string;
  names: string[];
  more: number;
  shape: number[] | null;
  size: number | null;
  dtype: string;
  cells: Cells | null;
  version: number | null;
  changed?: boolean;
}

export interface Moment extends Beat {
  memory: Memory[];
}

/** The node that keeps the memory from one moment to another. */
export interface Keeper {
  node: string;
  name: string;
  slot: string | null;
  from: number;
  to: number;
  freed: number | null;
  expected: number | null;
  found: number | null;
}

export interface TimePicture {
  kind: "time";
  moments: Moment[];
  keeper: Keeper | null;
}

export interface Round {
  step: number;
  line: number | null;
  code: string;
  before: Cells | null;
  flowed: Cells | null;
  after: Cells | null;
}

export interface SumPicture {
  kind: "sum";
  name: string;
  rounds: Round[];
  left: number;
  /** Whether the gradient was meant to be cleared in between. */
  cleared: boolean;
}

export interface Side {
  name: string;
  shape: number[];
  storage: string | null;
  cells: Cells | null;
}

export interface TablePicture {
  kind: "table";
  step: number;
  line: number | null;
  code: string;
  column: Side;
  row: Side;
  count: number;
  pairs: number | null;
  cells: number[][] | null;
  came: number | null;
  meant: number | null;
}

export interface Chip {
  node: string;
  name: string;
  step: number;
  line: number | null;
}

export interface PathPicture {
  kind: "path";
  root: string;
  root_step: number;
  root_line: number | null;
  chips: Chip[];
  skipped: number;
  cut: { step: number; line: number | null; code: string };
  behind: string;
  lost: string[];
  more: number;
}

export type Picture = TimePicture | SumPicture | TablePicture | PathPicture;

/** The part of a program that a finding is about: what panels open on. */
export interface Slice {
  storages: string[];
  tensors: string[];
  counters: string[];
  nodes: string[];
  steps: number[];
}

export interface Story {
  severity: "error" | "warning" | "info";
  rule: string;
  name: string;
  message: string | Text;
  explanation: string | Text;
  predicted: boolean;
  step: number | null;
  beats: Beat[];
  fixes: Fix[];
  picture: Picture | null;
  slice: Slice | null;
  /** The part of the graph that the slice names, laid out. */
  graph?: unknown;
}

const EMPTY: Slice = { storages: [], tensors: [], counters: [], nodes: [], steps: [] };

/** One per finding, or what the trace itself tells when no rule spoke; none when Python sent nothing that can be read. */
export function stories(scene: Scene): Story[] {
  const told = Array.isArray(scene.stories) ? (scene.stories as Story[]) : [];
  return told
    .filter((story) => Array.isArray(story?.beats) && Array.isArray(story.fixes))
    .map((story) => ({ ...story, slice: readSlice(story.slice) }));
}

/** A slice that can be trusted to be lists; `null` where it names no memory: there is nothing to open on. */
function readSlice(raw: unknown): Slice | null {
  if (typeof raw !== "object" || raw === null) return null;
  const read = Object.fromEntries(
    Object.keys(EMPTY).map((key) => [
      key,
      Array.isArray((raw as Record<string, unknown>)[key]) ? (raw as Record<string, unknown>)[key] : [],
    ]),
  ) as unknown as Slice;
  return read.storages.length || read.nodes.length ? read : null;
}
