/** Sentences that the shell says itself. Both languages stand side by side; names and labels never translate. */

import type { Cells, Language, Text, TraceEvent } from "./contract";

/** `add_` for `torch.Tensor.add_`, `grad` for `torch.Tensor.grad.__get__`. */
export function shortName(op: string): string {
  const parts = op.split(".");
  const last = parts[parts.length - 1] as string;
  return ["__get__", "__set__", "__delete__"].includes(last) && parts.length > 1 ? (parts[parts.length - 2] as string) : last;
}

/** A text that may be plain, bilingual, or missing. */
export function say(text: string | Text | null | undefined, language: Language): string {
  if (text === null || text === undefined) return "";
  if (typeof text === "object") return String(text[language] ?? text.en ?? "");
  return String(text);
}

/** A plain sentence for an event that Python gave none. */
export function describe(event: TraceEvent, language: Language): string {
  const name = shortName(event.op);
  const operands = event.operands.map((operand) => (operand.name ? `${operand.name}=` : "") + (operand.label ?? operand.text)).join(", ");
  const results = event.results.join(", ");
  const writes = event.writes.join(", ");
  const parts: string[] = [];
  if (event.kind === "node") parts.push(language === "zh" ? `反向传播运行 ${name}` : `backward runs ${name}`);
  else if (event.kind === "call") parts.push(`${name}(${operands})${results ? ` → ${results}` : ""}`);
  else parts.push(name);
  if (writes) parts.push(language === "zh" ? `写入 ${writes}` : `writes ${writes}`);
  if (event.error) parts.push(language === "zh" ? `抛出 ${event.error.type}` : `raises ${event.error.type}`);
  return parts.join(language === "zh" ? "；" : "; ") + (language === "zh" ? "。" : ".");
}

/** Cells as text: `[1, 2, 3]`, and what was left out is said. */
export function cellsText(cells: unknown): string {
  const known = cells as Cells | null;
  if (Array.isArray(known)) return `[${known.map(cellText).join(", ")}]`;
  if (known && Array.isArray(known.shown)) return `[${known.shown.map(([, value]) => cellText(value)).join(", ")}, … ${known.count}]`;
  return "?";
}

/** One value at a glance: at most five significant digits. */
export function cellText(value: unknown): string {
  if (typeof value !== "number" || Number.isInteger(value)) return String(value);
  return String(Number(value.toPrecision(5)));
}
