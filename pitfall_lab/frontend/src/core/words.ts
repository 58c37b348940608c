/** Sentences that the shell says itself. Both languages stand side by side; names and labels never translate. */

import type { Cells, Language, Text } from "./contract";

/** A text that may be plain, bilingual, or missing. */
export function say(text: string | Text | null | undefined, language: Language): string {
  if (text === null || text === undefined) return "";
  if (typeof text === "object") return String(text[language] ?? text.en ?? "");
  return String(text);
}

/** Cells as text: `[1, 2, 3]`, and what was left out is said. */
export function cellsText(cells: unknown): string {
  const known = cells as Cells | null;
  if (Array.isArray(known)) return `[${known.map(cellText).join(", ")}]`;
  if (!known || !Array.isArray(known.shown)) return "?";
  const ends = [known.shown.slice(0, 3), known.shown.slice(-1)].map((part) => part.map(([, one]) => cellText(one)).join(", "));
  return `[${ends.join(", … ")}] (${known.count})`;
}

/** One value at a glance: at most five significant digits. */
export function cellText(value: unknown): string {
  if (typeof value !== "number" || Number.isInteger(value)) return String(value);
  return String(Number(value.toPrecision(5)));
}
