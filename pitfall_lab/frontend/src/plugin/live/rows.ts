/** Which rows are shown, in which order, and what stands in their columns. Nothing here knows of the page. */

import type { Say } from "../words";
import type { Kind, Level, Row, Warning } from "./protocol";

export const COLUMNS = ["name", "shape", "state", "dtype", "bytes", "device", "saved"] as const;
export type Column = (typeof COLUMNS)[number];
export type Only = Kind | "all" | "changed" | "warned";

export interface Wanted {
  column: Column;
  down: boolean;
  only: Only;
  search: string;
}

/** A row as it stands in the list: how deep inside which others, and whether its own are shown. */
export interface Line {
  row: Row;
  /** Inside another row: without what all rows there begin with. */
  name: string;
  depth: number;
  open: boolean;
  level: Level | null;
}

export function shapeText({ shape, kind, type, children }: Row): string {
  if (shape) return `[${shape.join(", ")}]`;
  return kind === "group" ? `${type} · ${children}` : type;
}

export function bytesText(bytes: number | null): string {
  if (bytes === null) return "";
  const power = bytes < 1000 ? 0 : Math.min(4, Math.floor(Math.log10(bytes) / 3));
  const units = ["B", "kB", "MB", "GB", "TB"];
  return `${power ? (bytes / 1000 ** power).toPrecision(3) : bytes} ${units[power]}`;
}

export function versionText({ version }: Row): string {
  if (!version) return "";
  const [before, now] = version;
  return before === now ? `v${now}` : `v${before}\u2009→\u2009v${now}`;
}

/** `leaf`, or that a graph is behind it and whether it can still be used; and whether `.grad` holds something. */
export function gradText(row: Row, say: Say): string {
  const stale = row.stale ? say("backward from here fails", "从这里反向传播会失败") : "";
  const graph = row.grad === "leaf" ? say("leaf", "叶子") : row.grad === "graph" ? row.grad_fn || say("graph", "有图") : "";
  const frozen = row.detail?.frozen ? say("frozen", "冻结") : "";
  return [graph, stale, row.has_grad ? ".grad" : "", frozen].filter(Boolean).join(" ");
}

/** The same in one word, which a narrow column has room for. */
export function gradWord({ grad, stale, detail }: Row, say: Say): string {
  if (stale) return say("broken", "已失效");
  if (detail?.frozen) return say("frozen", "冻结");
  return grad === "leaf" ? say("leaf", "叶子") : grad === "graph" ? say("graph", "有图") : "";
}

export function savedText(row: Row): string {
  const nodes = [...new Set(row.saved_by.map(({ node }) => node))];
  return nodes.length > 2 ? `${nodes[0]} +${nodes.length - 1}` : nodes.join(", ");
}

const elements = (row: Row): number => row.shape?.reduce((product, size) => product * size, 1) ?? -1;
const names = new Intl.Collator("en", { numeric: true });

const ORDERS: Record<Column, (a: Row, b: Row) => number> = {
  name: (a, b) => names.compare(a.name, b.name),
  shape: (a, b) => elements(b) - elements(a) || names.compare(shapeText(a), shapeText(b)),
  state: (a, b) =>
    Number(b.changed) - Number(a.changed) || (b.version?.[1] ?? -1) - (a.version?.[1] ?? -1) || names.compare(a.grad, b.grad),
  dtype: (a, b) => names.compare(a.dtype, b.dtype),
  bytes: (a, b) => (b.bytes ?? -1) - (a.bytes ?? -1),
  device: (a, b) => names.compare(a.device, b.device),
  saved: (a, b) => b.saved_by.length - a.saved_by.length,
};

/** How many characters the names of these rows share: that of the row that they are in, or else whole words before a point. */
function common(rows: readonly Row[], outer: string): number {
  const first = rows[0]?.name ?? "";
  const parts = [...first.matchAll(/\./g)].map(({ index }) => index + 1).reverse();
  const whole = (length: number): boolean => rows.every(({ name }) => name.startsWith(first.slice(0, length)) && name.length > length);
  if (first.startsWith(`${outer}.`)) return whole(outer.length + 1) ? outer.length + 1 : 0;
  return parts.find(whole) ?? 0;
}

const SEVERITY: Record<Level, number> = { error: 2, silent: 1, note: 0 };

/** The worst that is said of each row. */
export function levels(warnings: Warning[]): Map<string, Level> {
  const found = new Map<string, Level>();
  for (const { row, level } of warnings) {
    const known = row === null ? undefined : found.get(row);
    if (row !== null && (known === undefined || SEVERITY[level] > SEVERITY[known])) found.set(row, level);
  }
  return found;
}

function kept(row: Row, wanted: Wanted, warned: ReadonlyMap<string, Level>): boolean {
  if (wanted.only === "changed" && !(row.changed || row.new)) return false;
  if (wanted.only === "warned" && !warned.has(row.id)) return false;
  if (!["all", "changed", "warned"].includes(wanted.only) && row.kind !== wanted.only) return false;
  const search = wanted.search.trim().toLowerCase();
  return (
    !search || [row.name, row.type, shapeText(row), row.dtype, row.device, row.grad_fn].some((one) => one.toLowerCase().includes(search))
  );
}

/** Of each message's rows the last order that was wanted: thousands are sorted once, and not with each key that is pressed. */
const orders = new WeakMap<readonly Row[], { by: string; rows: Row[] }>();

function sorted(rows: readonly Row[], { column, down }: Wanted): Row[] {
  const by = `${column} ${down}`;
  const known = orders.get(rows);
  if (known?.by === by) return known.rows;
  const order = ORDERS[column];
  const made = [...rows].sort((a, b) => (down ? -1 : 1) * order(a, b) || names.compare(a.name, b.name));
  orders.set(rows, { by, rows: made });
  return made;
}

/** The lines of the list. What is inside a row follows it, in the kernel's own order; filters are for the rows of the namespace. */
export function arrange(
  rows: readonly Row[],
  inside: ReadonlyMap<string, Row[]>,
  open: ReadonlySet<string>,
  warned: ReadonlyMap<string, Level>,
  wanted: Wanted,
): Line[] {
  const shown = sorted(rows, wanted).filter((row) => kept(row, wanted, warned));
  const lines: Line[] = [];
  const seen = new Set<string>();
  const put = (row: Row, depth: number, begin = 0): void => {
    if (seen.has(row.id)) return; // A list that holds itself.
    seen.add(row.id);
    const unfolded = row.children > 0 && open.has(row.id);
    lines.push({ row, name: row.name.slice(begin), depth, open: unfolded, level: warned.get(row.id) ?? null });
    const children = unfolded ? (inside.get(row.id) ?? []) : [];
    const same = common(children, row.name);
    for (const child of children) put(child, depth + 1, same);
  };
  for (const row of shown) put(row, 0);
  return lines;
}
