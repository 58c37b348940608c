/** Says to the page what the Explorer has found: where JupyterLab's extension is installed, it marks the lines. */

import type { Text } from "./contract";
import { offered } from "./fixes";
import type { ExplorerModel } from "./model";
import type { Beat } from "./story";

export const FOUND = "pitfall-lab-found";
/** The beats that are worth a mark: where something has to be changed, and where it was needed. */
const MARKED: Beat["role"][] = ["saved", "changed", "raised", "wrong"];

function both(text: string | Text): Text {
  return typeof text === "string" ? { en: text, zh: text } : text;
}

export function tellFound(model: ExplorerModel, host: HTMLElement): void {
  const source = model.trace.sources[0];
  const findings = model.stories.flatMap((story) => {
    const fixes = offered(story).map(({ title, verified, edits }) => ({ title: both(title), verified, edits }));
    const beats = story.beats.filter(({ role, line, source: at }) => line !== null && at === 0 && MARKED.includes(role));
    const lines = new Map(beats.map((beat) => [beat.line, beat]));
    return [...lines.values()].map(({ role, line, title }) => ({
      severity: role === "saved" ? "info" : story.severity,
      title: both(title),
      message: both(story.message),
      line,
      fixes,
    }));
  });
  const detail = { text: source?.text ?? "", parts: source?.parts ?? [], findings };
  // When it is drawn for the first time, it is not yet in the page.
  window.setTimeout(() => host.dispatchEvent(new CustomEvent(FOUND, { detail, bubbles: true, composed: true })));
}
