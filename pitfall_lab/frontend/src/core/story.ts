/** What went wrong, as Python tells it: beats to walk through, one picture, edits that help, and the part of the program that it is about. */

import type { Scene, StoryScene as SentStory, Slice } from "./wire";

export type {
  AxesPicture,
  Beat,
  BeatRole as Role,
  Chip,
  CurvePicture,
  CurvePlace as Place,
  EditScene as Edit,
  FindingPicture as Picture,
  FixScene as Fix,
  Keeper,
  LooksPicture,
  PairsPicture,
  PathPicture,
  PicturedBeat as Moment,
  PrintedScene as Printed,
  Round,
  Slice,
  StorageThen as Memory,
  SumPicture,
  TablePicture,
  TableSide as Side,
  TimePicture,
} from "./wire";

/** A story as it was read: without a slice where that names no memory. */
export type Story = Omit<SentStory, "slice"> & { slice: Slice | null };

const EMPTY: Slice = { storages: [], tensors: [], counters: [], nodes: [], steps: [] };

const SEVERITIES = ["error", "warning", "info"];

/** The worst first, and in the order of the program; one per finding, or what the trace itself tells when no rule spoke; none when Python sent nothing that can be read. */
export function stories(scene: Scene): Story[] {
  const sent = Array.isArray(scene.stories) ? (scene.stories as SentStory[]) : [];
  return sent
    .filter((story) => Array.isArray(story?.beats) && Array.isArray(story.fixes))
    .map((story) => ({ ...story, slice: readSlice(story.slice) }))
    .sort((a, b) => SEVERITIES.indexOf(a.severity) - SEVERITIES.indexOf(b.severity));
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
