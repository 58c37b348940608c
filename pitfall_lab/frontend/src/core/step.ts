/** The picture of one step, for a program without a finding: what goes in, what is done with it, what comes out. */

import type { State, TraceEvent } from "./contract";
import { type Child, h } from "./dom";
import type { ExplorerModel } from "./model";
import { cellRow, shape, telling } from "./numbers";
import { asked, dropped, runsLater } from "./passes";
import { called, memoryBox } from "./picture";
import type { Memory } from "./story";
import type { Cells } from "./wire";

/** So many of the nodes that a gradient goes on to are named. */
const NEXT = 3;
/** So many numbers of a gradient are shown. */
const NUMBERS = 6;

/** What the current step takes and what it makes or writes. Its room is fixed: stepping moves nothing. */
export function stepPicture(model: ExplorerModel): { element: HTMLElement; update(): void } {
  const element = h("section", { class: "pl-picture pl-step", tabindex: "-1", "data-part": "step", group: model.t("This step", "这一步") });
  return {
    element,
    update: () =>
      element.replaceChildren(
        ...(model.event
          ? stepParts(model)
          : [
              h(
                "p",
                { class: "pl-nothing" },
                model.t("Step with → to see what each operation takes and makes.", "按 → 逐步查看每个操作用了什么、产生什么。"),
              ),
            ]),
      ),
  };
}

function stepParts(model: ExplorerModel): HTMLElement[] {
  const { event } = model;
  if (!event) return [];
  const node = ranIn(event);
  if (node) return backwardParts(node, event, model);
  const now = model.stateAt(model.step);
  const before = model.stateAt(model.step - 1);
  const leaf = event.op.endsWith(".grad.__set__") ? event.operands[0]?.label : null;
  if (leaf) {
    const sides: [State, string][] = [
      [before, model.t("before", "之前")],
      [now, model.t("after", "之后")],
    ];
    const [was, is] = sides.map(([state, title]) => gradOf(leaf, state, title, null, model));
    return [flowing([was], `.${event.op.split(".").at(-2)} =`, [is])];
  }
  const storage = (label: string | null, state = now): string => (label ? (state.tensors[label]?.storage ?? "") : "");
  const taken = [...new Set(event.operands.map((one) => storage(one.label, before)).filter(Boolean))].slice(0, 3);
  const made = [...new Set([...event.results.map((label) => storage(label)), ...event.writes].filter(Boolean))].slice(0, 2);
  // A cell that this step changes has to be seen before and after, wherever it is.
  const seen = (id: string): number[] => telling([before.storages[id]?.cells ?? null, now.storages[id]?.cells ?? null]);
  const box = (id: string, state: typeof now, old?: Memory): [Memory, HTMLElement] | null => {
    const memory = memoryAt(id, state, model);
    return (
      memory && [
        memory,
        memoryBox({ ...memory, changed: !!old && JSON.stringify(old.cells) !== JSON.stringify(memory.cells) }, old, null, model, {
          also: seen(id),
        }),
      ]
    );
  };
  const left = taken.flatMap((id) => box(id, before)?.[1] ?? []);
  const right = made.flatMap((id) => box(id, now, memoryAt(id, before, model) ?? undefined)?.[1] ?? []);
  return [flowing(left, called(event.op), right)];
}

/** What goes in, the operation, and what comes out. */
function flowing(left: Child[], op: string, right: Child[], below: Child = null): HTMLElement {
  const arrow = (): HTMLElement => h("span", { class: "pl-arrow", "aria-hidden": "true" }, "→");
  return h(
    "div",
    { class: "pl-flowing" },
    left.length ? h("div", { class: "pl-memories" }, ...left) : "",
    left.length ? arrow() : "",
    h("span", { class: "pl-op" }, h("code", {}, op), below),
    right.length ? arrow() : "",
    right.length ? h("div", { class: "pl-memories" }, ...right) : "",
  );
}

function memoryAt(id: string, state: ReturnType<ExplorerModel["stateAt"]>, model: ExplorerModel): Memory | null {
  const storage = state.storages[id];
  if (!storage) return null;
  const living = Object.entries(state.tensors).filter(([, one]) => one?.storage === id && one.alive);
  const names = [...new Set(living.flatMap(([label]) => namesOf(label, state, model)))].map((name) => name.replace(/^self\./, ""));
  // What the tensors on it agree on is said of all of them, and nothing else: views have shapes of their own, an array has no version.
  const named = living.filter(([, one]) => one.names?.length);
  const readers = (named.length ? named : living).map(([, one]) => one);
  const shapes = new Set(readers.map((one) => JSON.stringify(one.shape)));
  const layouts = new Set(readers.map((one) => JSON.stringify([one.shape, one.stride, one.offset])));
  const [first] = readers;
  const versions = new Set(readers.map((one) => (one.counter ? (state.counters[one.counter] ?? 0) : null)));
  const called = names.length ? names.slice(0, 4) : [model.called(living[0]?.[0] ?? id)];
  return {
    storage: id,
    names: called,
    more: Math.max(0, names.length - 4),
    shape: shapes.size === 1 ? (readers[0]?.shape ?? null) : null,
    stride: layouts.size === 1 && first?.stride?.length === first?.shape.length ? (first?.stride ?? null) : null,
    offset: first?.offset ?? 0,
    size: storage.size,
    dtype: storage.dtype,
    cells: storage.cells,
    version: versions.size === 1 ? ([...versions][0] ?? null) : null,
    changed: false,
  };
}

/** The variables that have a tensor, `w.grad` where it is a gradient, and what a part of this step is called that no variable has: `pieces[0]`. */
function namesOf(label: string, state: State, model: ExplorerModel): string[] {
  const names = state.tensors[label]?.names ?? [];
  const leaf = Object.entries(state.tensors).find(([, one]) => one?.grad === label)?.[0];
  if (leaf) return names.some((name) => name.endsWith(".grad")) ? names : [...names, `${model.called(leaf)}.grad`];
  const taken = model.event?.operands.some((one) => one.label === label) && /^[a-z_][\w.]*(\[\d+\])*$/i.test(model.called(label));
  return names.length || !taken || model.called(label) === label ? names : [model.called(label)];
}

/** The label of the node that backward ran in this step. */
function ranIn(event: TraceEvent): string | null {
  const found = event.kind === "node" ? event.effects.find(([path]) => /^nodes\.\w+\.ran$/.test(path)) : undefined;
  return found?.[0].split(".")[1] ?? null;
}

/** A node of the graph in backward: the gradient that came in, whose node it is, and where the gradient goes on to. */
function backwardParts(label: string, event: TraceEvent, model: ExplorerModel): HTMLElement[] {
  const now = model.stateAt(event.step);
  const node = now.nodes[label];
  if (!node) return [];
  const came = gradientBox(model.t("gradient that comes in", "流入的梯度"), node.gradient, node.gradient_shape, model);
  if (node.name === "AccumulateGrad") return [flowing([came], node.name, leafParts(label, node.output ?? "", event, now, model))];
  const next = [...new Set(node.next.filter((one): one is string => one !== null))].filter((one) => goesTo(one, event, now, model));
  const to = next.slice(0, NEXT).map((one) => returnedBox(one, event, now, model) ?? nextBox(one, now, model));
  const more = next.length > NEXT ? [h("small", {}, model.t(`and ${next.length - NEXT} more`, `另有 ${next.length - NEXT} 个`))] : [];
  const made = node.output && model.called(node.output);
  const below = made && made !== node.output ? h("small", {}, model.t(`made ${made}`, `产生了 ${made}`)) : null;
  return [flowing([came], node.name, [...to, ...more], below)];
}

function gradientBox(title: string, cells: Cells | null, size: number[] | null, model: ExplorerModel): HTMLElement {
  const row = cellRow(cells, size, null, NUMBERS);
  const unknown = h("span", { class: "pl-cells pl-many" }, model.t("its numbers are not recorded", "未记录数值"));
  const head = h("span", { class: "pl-named" }, title, size ? h("small", {}, shape(size)) : "");
  return h("span", { class: "pl-memory pl-gradient" }, head, row ?? unknown);
}

/** A node that a gradient goes to: what it adds to, or what it made. */
function nextBox(label: string, now: State, model: ExplorerModel): HTMLElement {
  const { name, output } = now.nodes[label] ?? { name: model.called(label), output: null };
  const known = output ? model.called(output) : "";
  const about = known && known !== output ? known : "";
  const said = name === "AccumulateGrad" ? `${about}.grad` : about;
  return h(
    "span",
    { class: "pl-memory pl-gradient" },
    h("span", { class: "pl-named" }, h("code", {}, name)),
    about ? h("small", {}, said) : "",
  );
}

/** Whether a gradient goes on to a node: `grad` runs only the nodes that lead to its `inputs`. */
function goesTo(label: string, event: TraceEvent, now: State, model: ExplorerModel): boolean {
  return !asked(event, model) || runsLater(label, event, model) || returnedBox(label, event, now, model) !== null;
}

/** What `grad` takes before a node, which then does not run, and returns: no `.grad` gets it. */
function returnedBox(label: string, event: TraceEvent, now: State, model: ExplorerModel): HTMLElement | null {
  const started = asked(event, model);
  const of = now.nodes[label]?.output ?? "";
  if (!started?.operands.some((one) => one.label === of) || runsLater(label, event, model)) return null;
  const own = started.results.length === 1 ? (started.results[0] ?? "") : "";
  const title = h("code", {}, own && model.called(own) !== own ? model.called(own) : model.t("gradient", "梯度"));
  const said = model.t(`returned: the gradient of ${model.called(of)}`, `返回值：${model.called(of)} 的梯度`);
  return h("span", { class: "pl-memory pl-gradient" }, h("span", { class: "pl-named" }, title), h("small", {}, said));
}

/** What a backward changes of a leaf: its `.grad` before and after; one box where what came is dropped. */
function leafParts(label: string, leaf: string, event: TraceEvent, now: State, model: ExplorerModel): HTMLElement[] {
  const before = model.stateAt((event.parent ?? event.step) - 1);
  const box = (state: State, title: string, was: Cells | null): HTMLElement => gradOf(leaf, state, title, was, model);
  const old = before.tensors[before.tensors[leaf]?.grad ?? ""];
  if (dropped(label, now, model)) return [box(now, model.t("unchanged: the gradient is dropped", "不变：梯度被丢弃"), null)];
  return [
    box(before, model.t("before this backward", "这次反向之前"), null),
    box(now, model.t("after it", "之后"), before.storages[old?.storage ?? ""]?.cells ?? null),
  ];
}

/** The `.grad` of a leaf in a state: its numbers, or None. */
function gradOf(leaf: string, state: State, title: string, was: Cells | null, model: ExplorerModel): HTMLElement {
  const grad = state.tensors[state.tensors[leaf]?.grad ?? ""];
  const cells = state.storages[grad?.storage ?? ""]?.cells ?? null;
  const row = grad ? cellRow(cells, grad.shape, was, NUMBERS) : h("span", { class: "pl-cells pl-many" }, "None");
  const unknown = h("span", { class: "pl-cells pl-many" }, model.t("its numbers are not recorded", "未记录数值"));
  const style = `--v-hue:${model.hueNow(grad?.storage ?? "")}`;
  const head = h("span", { class: "pl-named" }, h("code", {}, `${model.called(leaf)}.grad`), h("small", {}, title));
  return h("span", { class: "pl-memory", style }, head, row ?? unknown);
}
