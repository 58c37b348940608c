/** The computation graph: cards where they fit, the ladder for long programs. Python has placed everything. */

import type { Model, State, TraceEvent, View } from "../core/contract";
import { h, s } from "../core/dom";
import { gist } from "../core/numbers";
import { arrives } from "../core/passes";
import type { Card, Cells, Drawing, Edge, GraphScene, Notch } from "../core/wire";
import { cut, describe, frame, nothing, part, pressable, reveal, sent, toggle } from "./draw";
import { mountLadder } from "./ladder";
import { flow } from "./motion";
import { stage } from "./stage";

type Mounted = { update(): void; destroy(): void };
type Redraw = (state: State, step: number) => void;

export const graph: View = {
  id: "graph",
  title: { en: "Graph", zh: "计算图" },
  has: (scene) => sent(scene, "graph", (one) => one.count || one.ladder?.rows.length),
  parts: (_, story) => !!story.graph?.nodes?.length,
  mount(root, model) {
    const scene = part(model, "graph");
    const own = model.sliceGraph;
    if (own?.nodes?.length) return mountCards(root, model, own, undefined, true);
    const ways: Way[] = [];
    if (scene?.modules) ways.push([model.t("modules", "模块"), (place) => mountModules(place, model, scene)]);
    const folded = scene?.folded;
    if (folded) ways.push([model.t("loops folded", "折叠循环"), (place) => mountCards(place, model, folded)]);
    const ladder = scene?.ladder;
    if (ladder) ways.push([model.t("ladder", "梯形图"), (place) => mountLadder(place, model, ladder)]);
    if (scene?.nodes.length) ways.push([model.t("all nodes", "全部节点"), (place) => mountCards(place, model, scene)]);
    if (!ways[0])
      return nothing(
        root,
        model.t("torch built no graph: nothing here requires a gradient.", "torch 没有建立计算图：这里没有张量需要梯度。"),
      );
    return ways.length > 1 ? mountWays(root, ways) : ways[0][1](root);
  },
};

type Way = [title: string, mount: (place: HTMLElement) => Mounted];

/** Several pictures of one graph: the first to start with, a button for each. */
function mountWays(root: HTMLElement, ways: Way[]): Mounted {
  const place = h("div", { class: "v-place" });
  let view: Mounted | null = null;
  const choose = (chosen: number): void => {
    buttons.forEach((button, index) => button.setAttribute("aria-pressed", String(index === chosen)));
    view = (ways[chosen] as Way)[1](place);
    view.update();
  };
  const buttons: HTMLElement[] = ways.map(([title], index) => h("button", { class: "v-link", click: () => choose(index) }, title));
  root.replaceChildren(h("div", { class: "v-tools" }, ...buttons), place);
  choose(0);
  return { update: () => view?.update(), destroy: () => root.replaceChildren() };
}

/** Modules as boxes, and a trail of those that are open. Python has placed the cards for each. */
function mountModules(root: HTMLElement, model: Model, scene: GraphScene): Mounted {
  const { boxes, pictures } = scene.modules as NonNullable<GraphScene["modules"]>;
  const all = [...(scene.cards ?? scene.nodes), ...boxes];
  const trail = h("div", { class: "v-tools", group: model.t("open modules", "已展开的模块") });
  const place = h("div", { class: "v-place" });
  let view: Mounted;
  const open = (key: string, focus = true): void => {
    const { places, ...picture } = pictures[key] as (typeof pictures)[string];
    view = mountCards(
      place,
      model,
      { ...picture, count: scene.count, nodes: places.map(([card, x, y]) => ({ ...(all[card] as Card), x, y })) },
      open,
    );
    const buttons = Object.keys(pictures)
      .filter((one) => !one || one === key || key.startsWith(`${one}/`))
      .map((one) =>
        h(
          "button",
          { class: "v-link", "aria-current": one === key && "location", click: () => open(one) },
          one.replaceAll("/", ".") || model.t("model", "模型"),
        ),
      );
    trail.replaceChildren(...buttons.flatMap((button, depth) => (depth ? ["›", button] : [button])));
    view.update();
    if (focus) buttons.at(-1)?.focus();
  };
  root.replaceChildren(trail, place);
  // What the finding turns on is not behind a closed box.
  const [guilty = ""] = guiltyNodes(model, { ...scene, nodes: scene.cards ?? scene.nodes });
  const around = boxes.flatMap(({ inside, opens }) => (opens && opens in pictures && inside?.includes(guilty) ? [opens] : []));
  open(
    around.reduce((deepest, one) => (one.length > deepest.length ? one : deepest), ""),
    false,
  );
  return { update: () => view.update(), destroy: () => root.replaceChildren() };
}

/** The nodes that a finding turns on: what kept the memory, what its writes brought into the graph, and what was broken. */
function guiltyNodes(model: Model, scene: Drawing): string[] {
  const { story } = model;
  if (!story) return [];
  const changed = story.beats.filter((beat) => beat.role === "changed" && beat.step !== null).map((beat) => beat.step);
  const written = scene.nodes.filter((card) => card.kind === "node" && changed.includes(card.born));
  const leaves = scene.nodes.filter((card) => card.kind === "leaf" && story.slice?.storages[0] === card.storage);
  const raised = scene.nodes.filter((card) => card.raised != null);
  const { picture } = story;
  const keeper = picture && "keeper" in picture && picture.keeper ? [picture.keeper.node] : [];
  // A write that made no node (an optimizer's) is where its leaf is.
  const named = [...keeper, ...[...(written.length ? written : leaves), ...raised].map((card) => card.id)];
  return named.length ? named : (story.slice?.nodes ?? []);
}

function mountCards(root: HTMLElement, model: Model, scene: Drawing, open?: (key: string) => void, whole = false): Mounted {
  const box = frame(root, model.t("computation graph, scrollable", "计算图，可滚动"));
  const label = model.t(`Computation graph with ${scene.count} nodes`, `计算图，${scene.count} 个节点`);
  const size = { width: scene.width + 56, height: scene.height };
  const svg = s("svg", { ...size, viewBox: `0 0 ${size.width} ${size.height}`, group: label });
  const tip = `v-tip-${Math.random().toString(36).slice(2)}`;
  const arrow = s("path", { d: "M0 0L8 4L0 8z", class: "v-tip" });
  svg.append(
    s("defs", {}, s("marker", { id: tip, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, arrow)),
  );
  const redraws: Redraw[] = scene.edges.map((edge) => drawEdge(svg, edge, scene, tip, model));
  const places = scene.nodes.map((card) => {
    redraws.push(drawCard(svg, card, model, box, open));
    const text = [card.id, card.title, card.sub, card.output, card.storage, ...card.saved.map((notch) => notch.text)].join(" ");
    return {
      ...card,
      text,
      element: svg.lastElementChild as SVGElement,
      go: () => (card.kind === "fold" ? (model.step = card.born) : (model.focus = card.id)),
    };
  });
  box.append(svg);
  const canvas = stage(box, svg, size, places, model);
  const guilty = guiltyNodes(model, scene);
  const chosen = [...new Set(guilty.flatMap((id) => places.find((card) => card.id === id || card.inside?.includes(id)) ?? []))];
  const opening = chosen.length ? chosen : [places.find((card) => isNow(card, model, model.step)) ?? places[0]];
  canvas.open(opening.filter((one) => one !== undefined));
  let shown = -2;
  return {
    update() {
      const state = model.stateAt(model.step);
      for (const redraw of redraws) redraw(state, model.step);
      // What is to come is faint in a finding's part, and where there is nothing else to see; it is not drawn in a graph that grows.
      toggle(svg, "v-whole", whole || scene.nodes.every((card) => card.born > model.step));
      if (!box.clientWidth) return; // behind another tab
      const now = shown === model.step ? null : svg.querySelector(".v-now");
      shown = model.step;
      if (now) reveal(box, now);
    },
    destroy: () => root.replaceChildren(),
  };
}

/** How far the gradient's way runs beside the forward edge, in px. */
const BESIDE = 11;

/** The same curve from its end to its start, beside it. */
function backwards(d: string): string {
  const points = d
    .slice(1)
    .split(/[C ]/)
    .map((point) => point.split(",").map(Number) as [number, number]);
  const [first, ...rest] = points.reverse().map(([x, y]) => `${x + BESIDE},${y}`);
  return `M${first}C${rest.join(" ")}`;
}

/** Forward: solid, down. Gradient: dashed, up, with its shape, once both ends have run. */
function drawEdge(svg: Element, edge: Edge, scene: Drawing, tip: string, model: Model): Redraw {
  const to = scene.nodes.find((card) => card.id === edge.to) as Card;
  const target = edge.via?.[1] ?? edge.to;
  const line = s("path", { d: edge.d, class: "v-edge" });
  const back = s("path", { d: backwards(edge.d), class: "v-back", "marker-end": `url(#${tip})` });
  const [x, y] = edge.label;
  const said = s("text", { x, y, class: "v-halo" }, edge.shape);
  const gradient = s("g", {}, back, said);
  // What flows into a node is known as a whole: where one edge brings all of it, the edge can say the numbers.
  const alone = scene.edges.filter((one) => one.from === edge.from).length === 1 && edge.times === 1;
  const all = s("g", { "aria-hidden": "true" }, line, gradient);
  if (edge.times > 1) all.append(s("text", { x: x - 24, y, class: "v-end" }, `×${edge.times}`));
  svg.append(all);
  let last = -2;
  return (state, step) => {
    if (step !== last && state.nodes[target]?.ran === step) flow(back);
    last = step;
    const away = step < edge.born;
    toggle(all, "v-away", away);
    const ran = (id: string): boolean => !id.startsWith("n") || (state.nodes[id]?.ran ?? null) !== null;
    const taken = !arrives(edge.from, target, state, model);
    toggle(gradient, "v-away", away || taken || !ran(target) || (to.raised ?? Infinity) <= step);
    const label = edge.from.startsWith("t") ? edge.to : edge.from;
    const flows = alone ? [state.nodes[label]?.gradient] : edge.via ? [] : contributed(label, target, state, model);
    const numbers = flows.map((cells) => gist(cells, model.t("mean", "均值"))).join(" + ");
    const long = flows.some((cells) => cells && (!Array.isArray(cells) || cells.length > 4));
    const shape = edge.shape === "()" ? "" : edge.shape; // of one number there is nothing to say but the number
    said.textContent = numbers && long ? `${shape} ${numbers}` : numbers || shape;
  };
}

/** What one of several nodes sent to the one called `label`; nothing where the parts are not those of the gradient that it has now. */
function contributed(label: string, sender: string, { nodes }: State, model: Model): Cells[] {
  const { added = [], gradient } = nodes[label] ?? {};
  if (!Array.isArray(gradient)) return [];
  // Without parts it came from one node: of those that ran in the same backward there must be only this one.
  const began = model.trace.events[nodes[label]?.ran ?? -1]?.parent ?? Number.POSITIVE_INFINITY;
  const senders = Object.keys(nodes).filter((id) => nodes[id]?.next.includes(label) && (nodes[id]?.ran ?? -1) > began);
  if (!added.length) return senders.length === 1 && senders[0] === sender ? [gradient] : [];
  const number = (cell: unknown): number => (typeof cell === "number" ? cell : Number.NaN);
  const near = gradient.every((cell, at) => {
    const parts = added.map(({ cells }) => number(Array.isArray(cells) ? cells[at] : null));
    const most = Math.max(1e-9, ...parts.map(Math.abs));
    return Math.abs(parts.reduce((sum, one) => sum + one, 0) - number(cell)) <= 1e-4 * most;
  });
  return near ? added.filter(({ node }) => node === sender).map(({ cells }) => cells) : [];
}

function drawCard(svg: Element, card: Card, model: Model, box: HTMLElement, open?: (key: string) => void): Redraw {
  const hue = card.storage ? model.hue(card.storage) : "";
  const square = card.kind === "leaf";
  const face = s("rect", { class: "v-face", width: card.w, height: card.h, rx: square ? 0 : 7 });
  if (square) face.setAttribute("style", `stroke:${hue};stroke-width:2.4`);
  const g = s(
    "g",
    { class: "v-card", transform: `translate(${card.x} ${card.y})` },
    face,
    s("text", { x: 9, y: 18, class: "v-b" }, card.title),
  );
  const sub = s("g", {});
  let y = 37;
  const group = card.kind === "fold" || card.kind === "skip" || card.kind === "module";
  const between = model.t(card.count === 1 ? "1 node between" : `${card.count} nodes between`, `中间有 ${card.count} 个节点`);
  const text =
    card.kind === "skip"
      ? between
      : card.kind === "fold"
        ? model.t(`${card.count} nodes, the same again`, `${card.count} 个同样的节点`)
        : group
          ? model.t(`▸ ${card.count} nodes`, `▸ ${card.count} 个节点`)
          : card.sub;
  if (text) {
    if (card.storage) {
      sub.append(s("rect", { x: 8, y: y - 12, width: 17, height: 16, rx: 2, style: `fill:${hue};stroke:var(--pl-ink)` }));
    }
    sub.append(s("text", { x: card.storage ? 31 : 9, y, class: "v-sans v-sub" }, text));
    y += 20;
  }
  const badge = s("text", { x: card.w - 8, y: 37, class: "v-end v-dim" });
  const gradient = s("text", { x: 9, y: card.h - 9 });
  const numbers = Array.from({ length: card.numbers ?? 0 }, (_, at) => s("text", { x: 9, y: 57 + 18 * at }));
  g.append(...numbers);
  const cross = s("text", { x: card.w + 7, y: 17, class: "v-red" }, "✕");
  g.append(sub, badge, gradient, cross);
  const notches = card.saved.map((notch) => drawNotch(g, card, notch, y - 13 + notch.y, model));
  if (card.kind === "module") face.before(s("rect", { class: "v-face", x: 4, y: 4, width: card.w, height: card.h, rx: 7 }));
  if (group) pressable(g, "", () => (card.opens && open ? open(card.opens) : (model.step = card.born)));
  else {
    pressable(g, "", () => (model.focus = card.id));
    g.addEventListener("pointerenter", () => (model.focus = card.id));
  }
  svg.append(g);
  let focused = false;
  return (state, step) => {
    const node = state.nodes[card.id];
    const ran = (node?.ran ?? null) !== null;
    const past = card.kind === "node" && !!card.output && state.tensors[card.output]?.grad_fn !== card.id;
    toggle(g, "v-away", step < card.born);
    toggle(g, "v-now", isNow(card, model, step));
    toggle(g, "v-bad", (card.raised ?? Infinity) <= step);
    toggle(cross, "v-away", (card.raised ?? Infinity) > step);
    toggle(sub, "v-past", past);
    const came = card.received?.findLast(([at]) => at <= step)?.[1];
    gradient.textContent = came ? `∇ ${came}` : "";
    toggle(gradient, "v-away", !ran || step < card.born);
    const version = card.counter ? state.counters[card.counter] : undefined;
    const held = numbers.length ? leafNumbers(card, state, arriving(card.id, step, model) ?? state, model.t("mean", "均值")) : [];
    numbers.forEach((line, at) => {
      line.textContent = held[at] ?? ""; // a step back may leave the leaf without a gradient
    });
    badge.textContent = version === undefined || past || !card.sub ? "" : `v${version}`;
    const said = notches.map((notch) => notch(state, step));
    describe(g, [...said, ran ? model.t("ran in backward", "已在反向中运行") : ""].filter(Boolean).join(", "));
    const focus = model.focus !== "" && [card.id, card.output, card.storage, card.counter, ...(card.inside ?? [])].includes(model.focus);
    toggle(g, "v-focus", focus);
    const named = focus && [card.id, card.output].includes(model.focus);
    if (named && !focused && step >= card.born && !box.matches(":hover")) reveal(box, g);
    focused = named;
  };
}

/** The state that still has a leaf's old gradient: before the backward that runs in this step, while its node has not run. */
function arriving(leaf: string, step: number, model: Model): State | null {
  const last = model.stateAt(model.trace.events.length - 1);
  const arrives = (one: TraceEvent): boolean =>
    one.effects.some(([path]) => {
      const [, label = "", what] = path.split(".");
      return what === "ran" && last.nodes[label]?.name === "AccumulateGrad" && last.nodes[label]?.output === leaf;
    });
  const next = model.trace.events.slice(step + 1).find((one) => one.kind === "node" && arrives(one));
  const began = next?.parent ?? step + 1;
  return began <= step ? model.stateAt(began - 1) : null;
}

/** What a leaf holds now, and its gradient in the state `old`. */
function leafNumbers(card: Card, state: State, old: State, mean: string): string[] {
  const one = state.tensors[card.id]?.shape.length === 0; // a single number is no list
  const said = ({ storages }: State, storage: string | null | undefined, name: string): string[] => {
    const cells = storage ? storages[storage]?.cells : null;
    const numbers = gist(cells, mean, storage ? storages[storage]?.dtype : undefined);
    return numbers ? [one ? `${name}${numbers}` : `${name}[${numbers}]`] : [];
  };
  const gradient = old.tensors[card.id]?.grad;
  return [...said(state, state.tensors[card.id]?.storage, ""), ...said(old, gradient ? old.tensors[gradient]?.storage : null, ".grad ")];
}

/** Written or run by the current event. */
function isNow(card: Card, model: Model, step: number): boolean {
  const event = model.trace.events[step];
  if (!event) return false;
  if (card.until !== undefined) return card.born <= step && step < card.until;
  const ids = card.inside ?? [card.id];
  return (
    event.effects.some(([path]) => path.startsWith("nodes.") && ids.includes(path.split(".")[1] as string)) ||
    event.results.some((one) => ids.includes(one)) ||
    ids.includes(event.error?.node ?? "")
  );
}

/** A saved tensor: a tab with a cut corner. Struck out when its counter moved on, hollow when freed, ≠ when it was silently wrong. */
function drawNotch(g: Element, card: Card, notch: Notch, y: number, model: Model): (state: State, step: number) => string {
  const hue = notch.storage ? model.hue(notch.storage) : "var(--pl-dim)";
  const { x, w } = notch;
  const strike = s("line", { x1: x + 3, y1: y + 17, x2: x + w - 4, y2: y + 3 });
  const mark = s("text", { x: x + w - 14, y: y + 14, class: "v-red" });
  const tab = s(
    "g",
    { class: "v-notch" },
    s("path", { d: `M${x} ${y}h${w - 7}l7 7v13h${-w}z`, style: `stroke:${hue}` }),
    s("text", { x: x + 5, y: y + 14 }, cut(notch.text, 18)),
    strike,
    mark,
  );
  g.append(tab);
  return (state, step) => {
    const now = notch.counter ? state.counters[notch.counter] : undefined;
    const stale = now !== undefined && now !== notch.version;
    const broken = (notch.broken ?? Infinity) <= step;
    const wrong = (notch.wrong ?? Infinity) <= step;
    toggle(strike, "v-away", step < card.born || !stale);
    toggle(tab, "v-bad", broken);
    toggle(tab, "v-freed", !!state.nodes[card.id]?.freed);
    mark.textContent = broken ? "✕" : wrong ? "≠" : "";
    const fate = stale ? model.t(` is stale, now v${now}`, ` 已失效，现为 v${now}`) : "";
    return model.t(
      `saved ${notch.text} of ${model.called(notch.tensor ?? notch.storage)}${fate}`,
      `保存了 ${model.called(notch.tensor ?? notch.storage)} 的 ${notch.text}${fate}`,
    );
  };
}
