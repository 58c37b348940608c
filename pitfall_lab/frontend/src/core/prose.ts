/** Sentences as nodes: `code` between backticks, and every tensor, memory and node by the name that the program has for it. */

import type { State } from "./contract";
import { h } from "./dom";
import type { ExplorerModel } from "./model";
import { wrapped } from "./wrap";

/** The learner's own text may hold single backticks: only pairs around something count. */
export function prose(text: string, plain: (text: string) => Node[] = emphasis): Node[] {
  return text.split(/`([^`\n]+)`/).flatMap((part, index) => (index % 2 === 1 ? [h("code", {}, ...wrapped(part))] : plain(part)));
}

/** A word between asterisks is what the sentence turns on, or a term at its first use. */
function emphasis(text: string): Node[] {
  return text
    .split(/(?<![\w*])\*([^\s*](?:[^*\n]*[^\s*])?)\*(?![\w*])/)
    .map((part, index) => (index % 2 === 1 ? h("em", {}, part) : document.createTextNode(part)));
}

/** How sentences speak of labels, and what they say instead: a thing has one name, and its memory and its version are named after it. */
const PHRASES: [RegExp, string][] = [
  [/[^\s（）。，、：；]+ \((t\d+)\)/g, "$1"],
  [/(n\d+) \(\w+\)/g, "$1"],
  [/(Its|Their) node (n\d+) enters the graph/g, "$1 backward will be $2"],
  [/The node of (t\d+(?:(?:, | and )t\d+)*), (n\d+), enters the graph/g, "The backward of $1 will be $2"],
  [/On the way there, nodes? ((?:n\d+|, | and )+) enters? the graph/g, "On the way there, torch also records $1"],
  [/Nodes ((?:n\d+|, | and )+) enter the graph/g, "$1 enter the graph"],
  [/enters the graph and saves /g, "enters the graph and keeps "],
  [/(n\d+) and saves /g, "$1, which keeps "],
  [/; (n\d+) saves /g, "; $1 keeps "],
  [/的节点 (n\d+) 加入计算图/g, "的反向传播是 $1"],
  [/节点 (n\d+) 属于 (t\d+(?:(?:、 | 和 )t\d+)*)，加入计算图/g, "$2 的反向传播是 $1"],
  [/途中还有节点 ((?:n\d+|、)+) 加入计算图/g, "途中 torch 还记录了 $1"],
  [/(n\d+)( 加入计算图)?，保存 /g, "$1$2，为反向传播保留 "],
  [/；(n\d+) 保存 /g, "；$1 为反向传播保留 "],
  [/Node (n\d+)/g, "$1"],
  [/节点 (n\d+)/g, "$1"],
  [/\w+ = (a tensor without a name|\S+) at v(\d+)/g, "$1 (v$2)"],
  [/\w+ = ([^\s（]+)（版本 (\d+)）/g, "$1（v$2）"],
  [/It shares counter C\d+\./g, "A write through either is counted for both."],
  [
    /It has its own counter C\d+: writes through one do not show on the other's counter\./g,
    "A write through one is not counted for the other.",
  ],
  [/它与别的张量共用版本计数器 C\d+。/g, "经任何一方的写入都会为双方计数。"],
  [/它有自己的版本计数器 C\d+：经一方写入，另一方的计数器看不出来。/g, "经一方的写入不会为另一方计数。"],
  [/, in new storage S\d+(?:, counter C\d+ at \d+)?/g, ", in memory of its own"],
  [/storage S\d+ of (t\d+)/g, "the memory of $1"],
  [/存储 S\d+（(t\d+)）/g, "$1 的内存"],
  [/(?:the existing |memory of )?storage (S\d+)/g, "the memory of $1"],
  [/shares counter C\d+/g, "shares its version counter"],
  [/its own counter C\d+/g, "its own version counter"],
  [/counters? (C\d+)/g, "the version of $1"],
  [/，放在新的存储 S\d+ 中(?:，版本计数器 C\d+ 为 \d+)?/g, "，有自己的内存"],
  [/(?:新的|已有的)?存储 (S\d+)(?: 的内存)?/g, "$1 的内存"],
  [/(共用|自己的)版本计数器 C\d+/g, "$1版本计数器"],
  [/版本计数器 (C\d+)/g, "$1 的版本"],
];

function named(text: string): string {
  return PHRASES.reduce((said, [pattern, instead]) => said.replace(pattern, instead), text);
}

/** Text in which every label that exists in `state` is a button that brings it into focus, and is called as the program calls it then. */
export function labels(text: string, model: ExplorerModel, state: State): Node[] {
  const said = model.labelled ? text : named(text);
  return said.split(/(?<![\w.])([tSCn]\d+)(?![\w(]|\.\w)/u).map((part, index) => {
    const known = index % 2 === 1 && (part in state.tensors || part in state.storages || part in state.counters || part in state.nodes);
    if (!known) return document.createTextNode(index % 2 === 1 && !model.labelled ? model.called(part, state) : part);
    const storage = model.storageOf(part, state);
    const style = storage ? `--pl-of:${model.hueNow(storage)}` : "";
    return h(
      "button",
      { class: "pl-label", "data-label": part, "aria-pressed": String(model.focus === part), style },
      model.labelled ? part : model.called(part, state),
    );
  });
}
