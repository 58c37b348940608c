/** Sentences as nodes: `code` between backticks, and labels (`t3`, `S1`) as buttons where a model knows them. */

import type { State } from "./contract";
import { h } from "./dom";
import type { ExplorerModel } from "./model";

/** The learner's own text may hold single backticks: only pairs around something count. */
export function prose(text: string, plain: (text: string) => Node[] = (part) => [document.createTextNode(part)]): Node[] {
  return text.split(/`([^`\n]+)`/).flatMap((part, index) => (index % 2 === 1 ? [h("code", {}, part)] : plain(part)));
}

/** Text in which every label that exists in `state` is a button that brings it into focus. */
export function labels(text: string, model: ExplorerModel, state: State): Node[] {
  return text.split(/(?<![\w.])([tSCn]\d+)(?![\w(]|\.\w)/u).map((part, index) => {
    const known = index % 2 === 1 && (part in state.tensors || part in state.storages || part in state.counters || part in state.nodes);
    if (!known) return document.createTextNode(part);
    const storage = model.storageOf(part, state);
    const style = storage ? `--pl-of:${model.hue(storage)}` : "";
    return h("button", { class: "pl-label", "data-label": part, "aria-pressed": String(model.focus === part), style }, part);
  });
}
