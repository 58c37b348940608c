/** The ladder: a row per step, a lane per storage in use. Only the rows in sight are in the document. */

import type { Model } from "../core/contract";
import { h, s } from "../core/dom";
import type { Ladder, Rung } from "../core/wire";
import { cut, frame, pressable, toggle } from "./draw";

const ROW = 26;
const LANE = 18;
const LEFT = 300;
const SPARE = 8;

export function mountLadder(root: HTMLElement, model: Model, ladder: Ladder): { update(): void; destroy(): void } {
  const box = frame(root, model.t("steps and storages, scrollable", "步骤与存储，可滚动"));
  const width = LEFT + (ladder.lanes + 2) * LANE;
  const height = ladder.rows.length * ROW;
  const svg = s("svg", {
    width,
    height,
    viewBox: `0 0 ${width} ${height}`,
    group: model.t(`${ladder.rows.length} rows, one per step; loops are folded`, `${ladder.rows.length} 行，每行一步，循环已折叠`),
  });
  if (ladder.crowded)
    box.append(
      h("p", { class: "v-dim" }, model.t(`${ladder.crowded} storages share the last lane.`, `${ladder.crowded} 个存储共用最后一列。`)),
    );
  box.append(svg);
  const drawn = new Map<number, SVGElement>();
  const window_ = (): void => {
    const first = Math.max(0, Math.floor(box.scrollTop / ROW) - SPARE);
    const last = Math.min(ladder.rows.length, first + Math.ceil((box.clientHeight || 440) / ROW) + 2 * SPARE);
    for (const [index, rung] of drawn) if (index < first || index >= last) rung.remove(), drawn.delete(index);
    for (let index = first; index < last; index += 1) {
      if (drawn.has(index)) continue;
      const rung = drawRung(ladder.rows[index] as Rung, index, width, ladder, model);
      drawn.set(index, rung);
      svg.append(rung);
    }
    mark();
  };
  const here = (): number => (model.step < 0 ? -1 : (ladder.row_of[model.step] ?? -1));
  const mark = (): void => {
    for (const [index, rung] of drawn) toggle(rung, "v-here", index === here()), toggle(rung, "v-later", index > here());
  };
  box.addEventListener("scroll", window_);
  return {
    update() {
      const top = here() * ROW;
      if (top >= 0 && (top < box.scrollTop || top + ROW > box.scrollTop + box.clientHeight))
        box.scrollTop = Math.max(0, top - box.clientHeight / 3);
      window_();
    },
    destroy: () => root.replaceChildren(),
  };
}

function drawRung(row: Rung, index: number, width: number, ladder: Ladder, model: Model): SVGElement {
  const y = ROW / 2;
  const x = (lane: number): number => LEFT + lane * LANE;
  const times = row.times ? `×${row.times} · ${row.length} ${model.t("steps  ", "步  ")}` : "";
  const g = s("g", { class: "v-rung", transform: `translate(0 ${index * ROW})` }, s("rect", { width, height: ROW }));
  g.append(
    s("text", { x: 40, y: y + 4, class: "v-end v-dim" }, String(row.line ?? "")),
    s("text", { x: 50, y: y + 4 }, cut(times + row.code, 33)),
  );
  const lanes = [...row.reads, ...row.makes];
  if (lanes.length > 1) g.append(s("line", { x1: x(Math.min(...lanes)), x2: x(Math.max(...lanes)), y1: y, y2: y, class: "v-edge" }));
  const storageAt = (lane: number): string => row.storages.find((one) => ladder.lane_of[one] === lane) ?? "";
  for (const lane of row.reads)
    g.append(s("circle", { cx: x(lane), cy: y, r: 4.5, class: "v-lane", style: `stroke:${model.hue(storageAt(lane))}` }));
  for (const lane of row.makes) {
    const style = `fill:${model.hue(storageAt(lane))};stroke:var(--pl-ink);stroke-width:${row.writes ? 3 : 1.2}`;
    g.append(s("rect", { x: x(lane) - 6, y: y - 6, width: 12, height: 12, style }));
  }
  if (row.error) g.append(s("text", { x: x(ladder.lanes) + 4, y: y + 4, class: "v-red" }, "✕"));
  const line = row.line ? model.t(`line ${row.line}, `, `第 ${row.line} 行，`) : "";
  pressable(g, `${line}${times}${row.code}: ${row.storages.join(", ")}`, () => {
    model.step = row.step;
    if (row.storages[0]) model.focus = row.storages[0];
  });
  return g;
}
