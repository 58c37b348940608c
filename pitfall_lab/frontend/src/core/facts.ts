/** The facts about whatever is in focus, each with who holds it and the torch expression that shows it. */

import { bytes, swatch } from "../views/draw";
import type { By, State } from "./contract";
import { h } from "./dom";
import { dot } from "./marks";
import type { ExplorerModel } from "./model";
import { labels } from "./prose";
import { cellsText } from "./words";

/** Its name, its value, its path in the state, and the torch expression that shows it. */
type Fact = [name: string, value: string, path: string, torch: string];

export function byText(by: By | string, model: ExplorerModel): string {
  if (by[0] === "a") return model.t("torch and the shadow engine agree", "torch 与影子引擎一致");
  if (by[0] === "m") return model.t("computed by the shadow engine", "由影子引擎算出");
  return model.t("read from torch", "从 torch 读取");
}

const shape = (size: readonly number[] | null | undefined): string => `[${(size ?? []).join(", ")}]`;

function tensorFacts(label: string, state: State, model: ExplorerModel): Fact[] {
  const one = state.tensors[label];
  if (!one) return [];
  const me = one.name ?? model.called(label);
  const at = `tensors.${label}`;
  const array = one.kind === "array";
  const facts: Fact[] = [
    [
      array ? "array" : one.kind,
      `${one.names?.join(" = ") || model.called(label)} · ${one.dtype} ${shape(one.shape)}`,
      `${at}.shape`,
      `${me}.shape`,
    ],
    ["stride", shape(one.stride), `${at}.stride`, array ? `${me}.strides` : `${me}.stride()`],
  ];
  if (one.offset) facts.push(["offset", String(one.offset), `${at}.offset`, `${me}.storage_offset()`]);
  const others = Object.values(state.tensors)
    .filter((other) => other !== one && other?.alive && other.storage === one.storage)
    .flatMap((other) => other.names ?? []);
  if (one.storage && others.length)
    facts.push([
      model.t("same memory as", "同一内存"),
      [...new Set(others)].slice(0, 4).join(", "),
      `${at}.storage`,
      array ? `${me}.ctypes.data` : `${me}.untyped_storage().data_ptr()`,
    ]);
  if (one.counter) {
    const value = `${model.labelled ? `${one.counter}·` : ""}v${state.counters[one.counter] ?? "?"}`;
    facts.push([model.t("version", "版本"), value, `counters.${one.counter}`, `${me}._version`]);
  }
  if (array) return facts;
  const grad = `${one.requires_grad ? "True" : "False"}${one.is_leaf ? model.t(" · leaf", " · 叶子") : ""}`;
  facts.push(["requires_grad", grad, `${at}.requires_grad`, `${me}.requires_grad, ${me}.is_leaf`]);
  if (one.grad_fn) facts.push(["grad_fn", one.grad_fn, `${at}.grad_fn`, `${me}.grad_fn`]);
  if (one.base) facts.push([model.t("view of", "视图，基张量"), one.base, `${at}.base`, `${me}._base`]);
  if (one.grad) facts.push(["grad", one.grad, `${at}.grad`, `${me}.grad`]);
  return facts;
}

function nodeFacts(label: string, state: State, model: ExplorerModel): Fact[] {
  const one = state.nodes[label];
  if (!one) return [];
  const output = one.output ?? "";
  const me = `${state.tensors[output]?.name ?? (output || label)}.grad_fn`;
  const at = `nodes.${label}`;
  const facts: Fact[] = [[model.t("node", "节点"), model.called(label), at, me]];
  for (const saved of one.saved ?? []) {
    const now = saved.counter ? state.counters[saved.counter] : undefined;
    const stale = now !== undefined && now !== saved.version;
    const what = saved.tensor ?? saved.storage ?? model.t("a tensor without a name", "没有名字的张量");
    const value = `${what} v${saved.version}${stale ? ` ≠ v${now}` : ""}`;
    facts.push([model.t(`saved ${saved.name}`, `保存的 ${saved.name}`), value, `${at}.saved`, `${me}._saved_${saved.name}`]);
  }
  if (one.freed) facts.push([model.t("saved tensors", "保存的张量"), model.t("freed", "已释放"), `${at}.freed`, me]);
  const next = (one.next ?? []).map((target) => target ?? "None").join(", ");
  if (next) facts.push(["next", next, `${at}.next`, `${me}.next_functions`]);
  if (one.gradient)
    facts.push([
      model.t("gradient", "梯度"),
      `${cellsText(one.gradient)} ${shape(one.gradient_shape)}`,
      `${at}.gradient`,
      `${me}.register_prehook(print)`,
    ]);
  return facts;
}

function storageFacts(label: string, state: State, model: ExplorerModel): Fact[] {
  const one = state.storages[label];
  if (!one) return [];
  const living = Object.entries(state.tensors).filter(([, tensor]) => tensor?.storage === label && tensor.alive);
  const first = living[0]?.[1].name ?? living[0]?.[0] ?? label;
  const names = living.map(([id]) => id).join(", ");
  const at = `storages.${label}`;
  return [
    [
      model.t("storage", "存储"),
      `${model.called(label)} · ${one.size} × ${one.dtype} · ${bytes(one.nbytes)}`,
      `${at}.size`,
      `${first}.untyped_storage()`,
    ],
    [
      model.t("cells", "单元"),
      one.cells ? cellsText(one.cells) : model.t("not recorded", "未记录"),
      `${at}.cells`,
      `${first}.untyped_storage()`,
    ],
    [model.t("seen by", "被谁使用"), names || model.t("nothing", "无"), at, `${first}.untyped_storage().data_ptr()`],
  ];
}

function counterFacts(label: string, state: State, model: ExplorerModel): Fact[] {
  if (!(label in state.counters)) return [];
  const sharing = Object.entries(state.tensors).filter(([, tensor]) => tensor?.counter === label && tensor.alive);
  const me = sharing[0]?.[1].name ?? sharing[0]?.[0] ?? label;
  const names = sharing.map(([id]) => id).join(", ");
  return [
    [model.t("version", "版本"), `${model.called(label)} · v${state.counters[label]}`, `counters.${label}`, `${me}._version`],
    [model.t("counts for", "属于"), names || model.t("nothing", "无"), `counters.${label}`, `${me}._version`],
  ];
}

function factsOf(label: string, state: State, model: ExplorerModel): Fact[] {
  const read = { t: tensorFacts, n: nodeFacts, S: storageFacts, C: counterFacts }[label[0] ?? ""];
  return read ? read(label, state, model) : [];
}

/** Where the recording left out rounds that repeat, just before the current step or after the last one; null elsewhere. */
function gapText(model: ExplorerModel): string | null {
  const { gaps } = model.trace.reach;
  const before = gaps.find(({ step }) => step === model.step);
  if (before)
    return model.t(
      `Before this step, ${before.calls} calls in rounds that repeat were not recorded.`,
      `在这一步之前，重复的轮次中有 ${before.calls} 次调用没有记录。`,
    );
  const after = model.step === model.last ? gaps.find(({ step }) => step === model.trace.events.length) : undefined;
  return after
    ? model.t(
        `After this step, ${after.calls} calls in rounds that repeat were not recorded.`,
        `在这一步之后，重复的轮次中有 ${after.calls} 次调用没有记录。`,
      )
    : null;
}

/** What is known about the focus after the current step, as a row of facts. */
export function showFacts(root: HTMLElement, model: ExplorerModel): void {
  const state = model.stateAt(model.step);
  const storage = model.storageOf(model.focus, state);
  const facts = model.focus ? factsOf(model.focus, state, model) : [];
  const cells = facts.map(([name, value, path, torch]) => {
    const by = model.provenance(path, model.step) ?? "o";
    const value_ = h("span", { class: "pl-value" }, ...labels(value, model, state));
    return h("span", { title: `${byText(by, model)}: ${torch}` }, dot(by, byText(by, model)), name, value_);
  });
  if (storage) cells[0]?.prepend(swatch(storage, model));
  if (cells.length) root.replaceChildren(...cells);
  else if (model.focus)
    root.textContent = model.t(
      `${model.called(model.focus)} does not exist at this step.`,
      `在这一步，${model.called(model.focus)} 还不存在。`,
    );
  else
    root.textContent =
      gapText(model) ?? model.t("Point at code, a node or a cell for facts about it.", "把指针移到表达式、节点或单元上，可查看其信息。");
}
