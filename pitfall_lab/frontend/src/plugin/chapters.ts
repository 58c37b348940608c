/** Finding the chapters: notebooks named `NN-*.ipynb` in the server's root or in its folder `notebooks`. */

import type { Contents } from "@jupyterlab/services";

export interface Chapter {
  path: string;
  number: string;
  title: string;
  /** How many of its exercises are solved, as the file beside the notebooks says. */
  solved: number;
}

const NAME = /^(\d\d)-(.+)\.ipynb$/;
const DEPTH = 20;
const PROGRESS = "pitfall-lab-progress.jsonl";

/** Titles are read once per version of a file: a listing of many notebooks stays cheap. */
const titles = new Map<string, string>();

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

/** The first Markdown heading, without its hashes and emphasis. */
export function headingOf(notebook: unknown): string {
  const cells = (notebook as { cells?: { cell_type?: string; source?: string | string[] }[] } | null)?.cells ?? [];
  for (const cell of cells.slice(0, DEPTH)) {
    if (cell.cell_type !== "markdown") continue;
    const source = Array.isArray(cell.source) ? cell.source.join("") : (cell.source ?? "");
    const heading = /^#{1,2}[ \t]+(.+?)[ \t]*#*[ \t]*$/m.exec(source);
    if (heading) return (heading[1] as string).replace(/[*`]|(?<![\p{L}\p{N}])_|_(?![\p{L}\p{N}])/gu, "");
  }
  return "";
}

async function titleOf(contents: Contents.IManager, item: Contents.IModel): Promise<string> {
  const key = `${item.path} ${item.last_modified}`;
  const known = titles.get(key);
  if (known !== undefined) return known;
  let title = "";
  try {
    title = headingOf((await contents.get(item.path, { content: true })).content);
  } catch {
    // An unreadable notebook is still listed, by its file name.
  }
  titles.set(key, title);
  return title;
}

/** The numbers of solved exercises by chapter. Lines that are not readable are passed over, as Python does. */
export function solvedIn(text: string): Map<string, number> {
  const solved = new Map<string, Set<unknown>>();
  for (const line of text.split("\n")) {
    try {
      const { chapter, item, kind, held, total } = JSON.parse(line);
      if (kind === "exercise" && held === total && total > 0) solved.set(chapter, (solved.get(chapter) ?? new Set()).add(item));
    } catch {
      // Torn by a crash, or empty.
    }
  }
  return new Map([...solved].map(([chapter, items]) => [chapter, items.size]));
}

async function progressOf(contents: Contents.IManager, files: Contents.IModel[]): Promise<Map<string, number>> {
  const file = files.find((item) => item.name === PROGRESS);
  if (!file) return new Map();
  try {
    return solvedIn(String((await contents.get(file.path, { content: true, type: "file", format: "text" })).content));
  } catch {
    return new Map();
  }
}

export async function findChapters(contents: Contents.IManager, folder: string): Promise<Chapter[]> {
  for (const place of await foldersToSearch(contents, folder)) {
    const files = await filesIn(contents, place);
    const items = files.filter((item) => item.type === "notebook" && NAME.test(item.name));
    if (items.length === 0) continue;
    const solved = await progressOf(contents, files);
    items.sort((a, b) => a.name.localeCompare(b.name));
    return Promise.all(
      items.map(async (item) => {
        const [, number = "", slug = ""] = NAME.exec(item.name) ?? [];
        const title = (await titleOf(contents, item)) || slug.replace(/-/g, " ");
        return { path: item.path, number, title: title.replace(/^\d+\s*[.·:–—-]*\s*/, ""), solved: solved.get(number) ?? 0 };
      }),
    );
  }
  return [];
}
