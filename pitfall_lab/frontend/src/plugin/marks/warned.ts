/** The live warnings as marks: where it was saved, where it was changed, and what would help. */

import { cellOf, ROLES } from "../live/cells";
import type { Live } from "../live/live";
import { levelName } from "../live/warnings";
import { sayBoth } from "../words";
import { type Mark, setMarks } from "./marks";
import { remedies, textAt } from "./remedy";
import { offset } from "./write";

export function markWarnings(live: Live): void {
  const found = new Map<object, Mark[]>();
  for (const warning of live.warned.warnings) {
    const help = remedies(live.notebook, warning);
    for (const ref of warning.cells) {
      const cell = ref.line === null ? null : cellOf(live.notebook, ref);
      if (!cell || ref.line === null) continue;
      const { sharedModel } = cell.model;
      const line = ref.line + offset(cell);
      const code = textAt(cell, line);
      const [en, zh] = ROLES[ref.role];
      const name = sayBoth((say) => levelName(warning, say));
      const title = { en: `${name.en}: ${en} here`, zh: `${name.zh}：在此${zh}` };
      const level = ref.role === "changed" ? warning.level : "note";
      found.set(sharedModel, [...(found.get(sharedModel) ?? []), { level, line, code, title, sentence: warning.sentence, remedies: help }]);
    }
  }
  setMarks(`live ${live.notebook.id}`, found);
}
