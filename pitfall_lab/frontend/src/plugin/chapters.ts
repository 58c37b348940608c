/** Finding the chapters: notebooks named `NN-*.ipynb` in the server's root or in its folder `notebooks`. */

import type { Contents } from "@jupyterlab/services";

export interface Chapter {
  path: string;
  number: string;
  title: string;
  /** How long it takes, as its introduction says; 0 where it does not. */
  minutes: number;
  /** Its exercises (`5.3`), in order, and those that are solved, as the file beside the notebooks says. */
  exercises: string[];
  solved: Set<string>;
}

export interface Course {
  chapters: Chapter[];
  /** The first unsolved exercise of the chapter that was worked on last, or of one after it. */
  next: { chapter: Chapter; exercise: string } | null;
}

const NAME = /^(\d\d)-(.+)\.ipynb$/;
const DEPTH = 20;
const PROGRESS = "pitfall-lab-progress.jsonl";

/** What a notebook says of itself, read once per version of the file: a listing of many notebooks stays cheap. */
interface About {
  title: string;
  minutes: number;
  exercises: string[];
}
const known = new Map<string, About>();

async function filesIn(contents: Contents.IManager, folder: string): Promise<Contents.IModel[]> {
  try {
    const listing = await contents.get(folder, { content: true });
    return listing.type === "directory" ? (listing.content as Contents.IModel[]) : [];
  } catch {
    return []; // No such folder: not an error, there may be one of the two only.
  }
}

/** Asking for a folder that is not there would leave a failed request in the browser's log, so the root is looked at first. */
async function foldersToSearch(contents: Contents.IManager, wanted: string): Promise<string[]> {
  if (wanted) return [wanted];
  try {
    const root = await contents.get("", { content: true });
    const inner = (root.content as Contents.IModel[]).some((item) => item.type === "directory" && item.name === "notebooks");
    return inner ? ["notebooks", ""] : [""];
  } catch {
    return [];
  }
}

interface Content {
  cells?: { cell_type?: string; source?: string | string[] }[];
}

/** The first Markdown heading, without its hashes and emphasis; how long it takes; and the exercises in it. */
export function aboutOf(notebook: unknown): About {
  const about: About = { title: "", minutes: 0, exercises: [] };
  for (const [place, cell] of ((notebook as Content | null)?.cells ?? []).entries()) {
    const source = Array.isArray(cell.source) ? cell.source.join("") : (cell.source ?? "");
    const exercise = /^%%exercise (\d+\.\d+)/.exec(source)?.[1];
    if (exercise) about.exercises.push(exercise);
    if (cell.cell_type !== "markdown" || place >= DEPTH) continue;
    const heading = /^#{1,2}[ \t]+(.+?)[ \t]*#*[ \t]*$/m.exec(source)?.[1] ?? "";
    about.title ||= heading.replace(/[*`]|(?<![\p{L}\p{N}])_|_(?![\p{L}\p{N}])/gu, "");
    about.minutes ||= Number(/\babout (\d{1,3}) minutes\b/.exec(source)?.[1] ?? 0);
  }
  return about;
}

async function read(contents: Contents.IManager, item: Contents.IModel): Promise<About> {
  const key = `${item.path} ${item.last_modified}`;
  const before = known.get(key);
  if (before !== undefined) return before;
  let about: About = { title: "", minutes: 0, exercises: [] };
  try {
    about = aboutOf((await contents.get(item.path, { content: true })).content);
  } catch {
    // An unreadable notebook is still listed, by its file name.
  }
  known.set(key, about);
  return about;
}

/** The solved exercises by chapter, the chapter of the last answer last. Lines that are not readable are passed over, as Python does. */
export function solvedIn(text: string): Map<string, Set<string>> {
  const solved = new Map<string, Set<string>>();
  for (const line of text.split("\n")) {
    try {
      const { chapter, item, kind, held, total } = JSON.parse(line);
      if (typeof chapter !== "string" || typeof item !== "string" || kind !== "exercise") continue;
      const items = solved.get(chapter) ?? new Set<string>();
      solved.delete(chapter);
      solved.set(chapter, held === total && total > 0 ? items.add(item) : items);
    } catch {
      // Torn by a crash, or empty.
    }
  }
  return solved;
}

async function progressOf(contents: Contents.IManager, files: Contents.IModel[]): Promise<Map<string, Set<string>>> {
  const file = files.find((item) => item.name === PROGRESS);
  if (!file) return new Map();
  try {
    return solvedIn(String((await contents.get(file.path, { content: true, type: "file", format: "text" })).content));
  } catch {
    return new Map();
  }
}

export async function findCourse(contents: Contents.IManager, folder: string): Promise<Course> {
  for (const place of await foldersToSearch(contents, folder)) {
    const files = await filesIn(contents, place);
    const items = files.filter((item) => item.type === "notebook" && NAME.test(item.name));
    if (items.length === 0) continue;
    const solved = await progressOf(contents, files);
    items.sort((a, b) => a.name.localeCompare(b.name));
    const chapters = await Promise.all(
      items.map(async (item): Promise<Chapter> => {
        const [, number = "", slug = ""] = NAME.exec(item.name) ?? [];
        const { title, ...about } = await read(contents, item);
        const name = (title || slug.replace(/-/g, " ")).replace(/^\d+\s*[.·:–—-]*\s*/, "");
        return { path: item.path, number, title: name, solved: solved.get(number) ?? new Set(), ...about };
      }),
    );
    return { chapters, next: nextOf(chapters, [...solved.keys()].at(-1)) };
  }
  return { chapters: [], next: null };
}

function nextOf(chapters: Chapter[], last: string | undefined): Course["next"] {
  const from = Math.max(
    0,
    chapters.findIndex(({ number }) => number === last),
  );
  for (const chapter of [...chapters.slice(from), ...chapters.slice(0, from)]) {
    const exercise = chapter.exercises.find((one) => !chapter.solved.has(one));
    if (exercise) return { chapter, exercise };
  }
  return null;
}
