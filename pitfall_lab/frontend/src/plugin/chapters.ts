/** Finding the chapters: notebooks named `NN-*.ipynb` in the server's root or in its folder `notebooks`. */

import type { Contents } from "@jupyterlab/services";

export interface Chapter {
  path: string;
  number: string;
  title: string;
}

const NAME = /^(\d\d)-(.+)\.ipynb$/;
const DEPTH = 20;

/** Titles are read once per version of a file: a listing of many notebooks stays cheap. */
const titles = new Map<string, string>();

async function namesIn(contents: Contents.IManager, folder: string): Promise<Contents.IModel[]> {
  try {
    const listing = await contents.get(folder, { content: true });
    return listing.type === "directory" ? (listing.content as Contents.IModel[]).filter((item) => item.type === "notebook" && NAME.test(item.name)) : [];
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

export async function findChapters(contents: Contents.IManager, folder: string): Promise<Chapter[]> {
  for (const place of await foldersToSearch(contents, folder)) {
    const items = await namesIn(contents, place);
    if (items.length === 0) continue;
    items.sort((a, b) => a.name.localeCompare(b.name));
    return Promise.all(
      items.map(async (item) => {
        const [, number = "", slug = ""] = NAME.exec(item.name) ?? [];
        const title = (await titleOf(contents, item)) || slug.replace(/-/g, " ");
        return { path: item.path, number, title: title.replace(/^\d+\s*[.·:–—-]*\s*/, "") };
      }),
    );
  }
  return [];
}
