/** One quiet line under the cell that caused a warning, while the panel is not in sight. It is a part of the page, never of the notebook. */

import type { Cell, ICodeCellModel } from "@jupyterlab/cells";
import type { PanelLayout } from "@lumino/widgets";
import { Widget } from "@lumino/widgets";
import { h } from "../../core/dom";
import { prose } from "../../core/prose";
import { togetherAhead } from "../together";
import { languageOf, type Say } from "../words";
import { cellButton, cellOf } from "./cells";
import type { Live } from "./live";
import { HINT } from "./protocol";

const lines = new WeakMap<Live, Widget>();

export function takeNotice(live: Live): void {
  lines.get(live)?.dispose();
  lines.delete(live);
}

/** Of what is worth knowing, this is said under the cell too: who does not look at the panel would work on with numbers that are out of date. */
const SAID = new Set(["out-of-order", "graph-grows"]);

/** Whether the cell failed, and the line below its traceback says by what. */
function isHinted(cell: Cell): boolean {
  const outputs = cell.model.type === "code" ? (cell.model as ICodeCellModel).outputs.toJSON() : [];
  return outputs.some(({ data }) => typeof data === "object" && data !== null && HINT in data);
}

/** Other notes wait in the panel. What has failed, and what it failed by, has its own line under the cell, below the traceback. */
export function giveNotice(live: Live, show: (row: string | null) => void, say: Say): void {
  takeNotice(live);
  const { cell, warnings } = live.warned;
  const caused = cellOf(live.notebook, cell);
  const hinted = caused !== null && isHinted(caused);
  const wrong = warnings.filter(
    ({ level, kind, failed }) => (level !== "note" || SAID.has(kind)) && !failed && !(hinted && level === "error"),
  );
  const first = wrong.find(({ level }) => level === "error") ?? wrong.find(({ level }) => level === "silent") ?? wrong[0];
  if (!first || !caused?.layout) return;
  const more =
    wrong.length > 1 ? h("span", { class: "pl-live-others" }, say(`+${wrong.length - 1} more`, `另有 ${wrong.length - 1} 条`)) : null;
  const panel = h(
    "button",
    { class: "pl-live-cell", type: "button", click: () => show(first.row) },
    say("Show in the panel", "在面板中显示"),
  );
  const away = h(
    "button",
    { class: "pl-live-close", type: "button", label: say("Dismiss", "忽略"), title: say("Dismiss", "忽略"), click: () => takeNotice(live) },
    "×",
  );
  const elsewhere = first.cells.filter(({ id }) => id !== cell.id).map((one) => cellButton(live.notebook, one, say));
  const line = new Widget({ node: h("div", { class: `pl-live-notice pl-live-${first.level}`, role: "status" }) });
  const language = languageOf(say);
  const fix = first.fix ? h("span", { class: "pl-live-fix" }, h("b", {}, say("Fix: ", "修改：")), ...prose(first.fix[language])) : null;
  line.node.append(
    h("p", {}, ...prose(first.sentence[language]), " ", fix),
    h("div", { class: "pl-live-cells" }, ...elsewhere, panel, more, away),
    ...togetherAhead(live.notebook, first, say),
  );
  (caused.layout as PanelLayout).addWidget(line);
  lines.set(live, line);
}
