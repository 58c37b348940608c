/** Live bytes over the steps, a band per storage, the peak marked; and, for the current step, who keeps what alive. */

import type { Model, State, View } from "../core/contract";
import { h, s } from "../core/dom";
import { inkOn } from "../core/palette";
import type { MemoryScene as Memory } from "../core/wire";
import { at, bytes, frame, nothing, part, pressable, sent, swatch, toggle } from "./draw";

const LISTED = 7;

export const memory: View = {
  id: "memory",
  title: { en: "Memory", zh: "内存" },
  has: (scene) => sent(scene, "memory", (one) => one.peak?.bytes),
  parts: (scene, story) => sent(scene, "memory", (one) => own(one, story.slice?.storages).length % (one.bands.length + one.others)),
  mount(root, model) {
    const all = part(model, "memory");
    const bands = all ? own(all, model.slice?.storages) : [];
    const scene = all && bands.length ? { ...all, ...stacked(bands), others: 0 } : all;
    const peak = scene?.peak;
    if (!all || !scene || !peak?.bytes) return nothing(root, model.t("No storage with any bytes was made.", "没有产生占用内存的存储。"));
    const box = frame(root, model.t("live bytes, scrollable", "存活的字节，可滚动"));
    const now = h("b", {});
    const line = model.trace.events[peak.step]?.span?.line;
    const where = line ? model.t(`line ${line}`, `第 ${line} 行`) : model.t(`step ${peak.step + 1}`, `第 ${peak.step + 1} 步`);
    const go = h(
      "button",
      { class: "v-link", click: () => (model.step = peak.step) },
      model.t(`peak ${bytes(peak.bytes)} · ${where}`, `峰值 ${bytes(peak.bytes)} · ${where}`),
    );
    const cursor = h("i", { class: "v-now-line" });
    const chart = h("div", { class: "v-memory" });
    const redraws = draw(chart, scene, peak.bytes, model);
    chart.append(h("i", { class: "v-peak-line", style: `left:${((peak.step + 0.5) / scene.steps) * 100}%` }), cursor);
    const list = h("ul", { class: "v-alive", style: `min-height:${28 * Math.min(LISTED + 1, scene.bands.length)}px` });
    box.append(h("div", { class: "v-tools" }, now, go), chart, list);
    scrub(chart, scene.steps, model);
    const [total, whole] = [scene, all].map(({ total }) => total.map(([step, bytes]) => ({ step, bytes }))) as [Total, Total];
    return {
      update() {
        const { step } = model;
        const state = model.stateAt(step);
        const [live, of] = [total, whole].map((each) => bytes(at(each, step)?.bytes ?? 0)) as [string, string];
        now.textContent =
          scene === all
            ? model.t(`${live} live`, `存活 ${live}`)
            : model.t(`${live} of the finding, ${of} live in all`, `此发现占 ${live}，全部存活 ${of}`);
        toggle(now, "pl-same", step === peak.step);
        cursor.style.left = `${((step + 0.5) / scene.steps) * 100}%`;
        for (const redraw of redraws) redraw(step);
        list.replaceChildren(...alive(scene, state, step, model));
      },
      destroy: () => root.replaceChildren(),
    };
  },
};

type Total = { step: number; bytes: number }[];

/** The bands that belong to the finding. */
function own(scene: Memory, storages: readonly string[] = []): Memory["bands"] {
  return scene.bands.filter((band) => storages.includes(band.id));
}

/** Some of the bands on one another, as Python stacks all: each above those before it. */
function stacked(bands: Memory["bands"]): Pick<Memory, "bands" | "total" | "peak"> {
  const steps = [...new Set(bands.flatMap((band) => [band.born, band.died ?? []].flat()))].sort((a, b) => a - b);
  const lives = (band: Memory["bands"][number], step: number): boolean => band.born <= step && step < (band.died ?? Infinity);
  const sum = (some: Memory["bands"], step: number): [number, number] => [
    step,
    some.reduce((all, band) => all + (lives(band, step) ? band.nbytes : 0), 0),
  ];
  const total = steps.map((step) => sum(bands, step));
  const [step, most] = total.reduce((best, one) => (one[1] > best[1] ? one : best), [0, 0]);
  return {
    bands: bands.map((band, place) => ({
      ...band,
      base: steps.filter((step) => lives(band, step)).map((step) => sum(bands.slice(0, place), step)),
    })),
    total,
    peak: { step, bytes: most },
  };
}

/** The bands, in a picture that is stretched to the room there is; names stand over it, unstretched. */
function draw(chart: HTMLElement, scene: Memory, peak: number, model: Model): ((step: number) => void)[] {
  const svg = s("svg", {
    viewBox: `0 0 ${scene.steps} ${peak}`,
    preserveAspectRatio: "none",
    group: model.t("live bytes over the steps", "各步存活的字节"),
  });
  chart.append(svg);
  return scene.bands.map((band) => {
    const end = band.died ?? scene.steps;
    const parts = band.base.map(([from, base], index) => [from, base, band.base[index + 1]?.[0] ?? end] as const);
    const d = parts.map(([from, base, to]) => `M${from} ${peak - base}H${to}V${peak - base - band.nbytes}H${from}z`).join("");
    const path = s("path", { class: "v-band", d, style: `fill:${model.hue(band.id)}` });
    const until = band.died === null ? "" : model.t(` to step ${band.died}`, ` 至第 ${band.died} 步`);
    const called = model.called(band.id);
    pressable(
      path,
      model.t(
        `${called}, ${bytes(band.nbytes)}, from step ${band.born + 1}${until}`,
        `${called}，${bytes(band.nbytes)}，第 ${band.born + 1} 步起${until}`,
      ),
      () => (model.focus = band.id),
    );
    svg.append(path);
    const [from, base, to] = parts.reduce((best, one) => (one[2] - one[0] > best[2] - best[0] ? one : best));
    const part = (to - from) / scene.steps;
    if (band.nbytes / peak > 0.1 && part > 0.018 * Math.min(16, called.length)) {
      // Its band is all the room that a name has.
      const fit = `max-width:${part * 100}%;overflow:hidden;text-overflow:ellipsis`;
      const place = `${fit};left:${((from + to) / 2 / scene.steps) * 100}%;bottom:${((base + band.nbytes / 2) / peak) * 100}%`;
      chart.append(h("span", { class: "v-in-band", style: `${place};color:${inkOn(model.hue(band.id))}`, "aria-hidden": "true" }, called));
    }
    return (step: number): void => {
      toggle(path, "v-later", step < band.born);
      toggle(path, "v-focus", model.focus === band.id);
    };
  });
}

/** The largest storages alive after the step, each with what keeps it: names, gradients, nodes that saved it. */
function alive(scene: Memory, state: State, step: number, model: Model): HTMLElement[] {
  const live = scene.bands
    .filter((band) => band.born <= step && step < (band.died ?? Infinity))
    .sort((a, b) => b.nbytes - a.nbytes || a.born - b.born);
  const kept = keepers(new Set(live.slice(0, LISTED).map((band) => band.id)), state, model);
  const rows = live.slice(0, LISTED).map((band) => {
    const names = [...(kept.get(band.id) ?? [])];
    const text = names.slice(0, 3).join(", ") + (names.length > 3 ? ` +${names.length - 3}` : "");
    return h(
      "li",
      { click: () => (model.focus = band.id) },
      swatch(band.id, model),
      h("b", {}, bytes(band.nbytes)),
      h("span", {}, text || model.t("nothing here names it", "这里没有名字指向它")),
    );
  });
  const more = live.length - rows.length + scene.others;
  if (more > 0) rows.push(h("li", {}, h("span", { class: "v-dim" }, model.t(`and ${more} more`, `以及另外 ${more} 个存储`))));
  return rows;
}

/** For each of the storages what keeps it, found in one pass: a long program has ten thousand tensors. */
function keepers(storages: Set<string>, state: State, model: Model): Map<string, Set<string>> {
  const found = new Map<string, Set<string>>();
  const keep = (storage: string, what: string): void => void (found.get(storage) ?? found.set(storage, new Set()).get(storage))?.add(what);
  for (const label in state.tensors) {
    const one = state.tensors[label];
    const held = one?.grad ? state.tensors[one.grad] : undefined;
    if (one?.name && one.alive && one.storage && storages.has(one.storage)) keep(one.storage, model.called(label));
    if (held?.alive && held.storage && storages.has(held.storage)) keep(held.storage, `${model.called(label)}.grad`);
  }
  for (const label in state.nodes) {
    const node = state.nodes[label];
    if (node && !node.freed) for (const slot of node.saved) if (slot.storage && storages.has(slot.storage)) keep(slot.storage, node.name);
  }
  return found;
}

/** A press or a drag on the chart goes to that step. */
function scrub(chart: HTMLElement, steps: number, model: Model): void {
  const go = (event: PointerEvent): void => {
    const box = chart.getBoundingClientRect();
    model.step = Math.max(0, Math.min(steps - 1, Math.floor(((event.clientX - box.left) / box.width) * steps)));
  };
  chart.addEventListener("pointerdown", go);
  chart.addEventListener("pointermove", (event) => event.buttons && go(event));
}
