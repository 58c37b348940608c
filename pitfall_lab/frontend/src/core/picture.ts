/** The one picture of a finding, drawn from what Python cut out of the trace; without a finding, what is worth a look. */

import { type Child, h, s } from "./dom";
import { isInOrder } from "./layout";
import { mark } from "./marks";
import type { ExplorerModel } from "./model";
import { brief, cellRow, gist, known, shape, telling, value } from "./numbers";
import { labels, prose } from "./prose";
import type {
  AxesPicture,
  Beat,
  CurvePicture,
  Keeper,
  LooksPicture,
  Memory,
  Moment,
  PairsPicture,
  PathPicture,
  Picture,
  Place,
  Role,
  Round,
  Side,
  SumPicture,
  TablePicture,
  TimePicture,
} from "./story";
import { say } from "./words";
import { wrapped } from "./wrap";

/** The methods that brackets call. */
const BRACKETS: Record<string, string> = { getitem: "[…]", setitem: "[…] =" };

/** The operation as the program writes it: `t[0] = 1` calls `Tensor.__setitem__`. */
export function called(op: string): string {
  const last = op.split(".").pop() ?? op;
  const method = /^__([a-z]+)__$/.exec(last)?.[1];
  return method ? (BRACKETS[method] ?? method) : last;
}

type Go = (step: number | null) => void;

/** The picture of the finding in the model; null when it has none. */
export function drawPicture(model: ExplorerModel, go: Go): HTMLElement | null {
  const { story } = model;
  if (!story) return null;
  const drawn = draw(story.picture, story.beats, model, go);
  const name = model.t("What happened, along time", "按时间：发生了什么");
  return h("section", { class: `pl-picture pl-${story.picture?.kind ?? "time"}`, group: name }, drawn);
}

/** A damaged picture costs only itself: its beats are still drawn. */
function draw(picture: Picture | null, beats: Beat[], model: ExplorerModel, go: Go): HTMLElement {
  const plain: TimePicture = {
    kind: "time",
    moments: beats.slice(0, 4).map((beat) => ({ ...beat, memory: [], between: [], skipped: 0 })),
    keeper: null,
    about: [],
  };
  try {
    if (picture?.kind === "sum") return sum(picture, model, go);
    if (picture?.kind === "table") return table(picture, model, go);
    if (picture?.kind === "path") return path(picture, model, go);
    if (picture?.kind === "axes") return axes(picture, model, go);
    if (picture?.kind === "curve") return curve(picture, model, go);
    if (picture?.kind === "looks") return looks(picture, model, go);
    if (picture?.kind === "pairs") return pairs(picture, model, go);
    return time(picture?.kind === "time" && picture.moments.length ? picture : plain, model, go);
  } catch {
    return time(plain, model, go);
  }
}

/** The head of a column: what happens there, and where. It goes to that step. */
function column(role: Role, title: string, where: string, code: string, step: number | null, go: Go, ...rest: Child[]): HTMLElement {
  const head = h("span", { class: "pl-role" }, mark(role), h("b", {}, title), where && h("span", { class: "pl-place" }, where));
  const button = h(
    "button",
    { "data-step": step ?? "", "data-role": role, click: () => go(step) },
    head,
    h("code", {}, ...wrapped(code)),
    ...rest,
  );
  button.disabled = step === null;
  return h("li", {}, button);
}

/** Whether the order of the cards is known, and not only guessed from their lines: then they are numbered. */
function isNumbered(moments: Moment[]): boolean {
  return moments.length > 1 && moments.every((one) => one.step !== null);
}

/** The number of a beat's card; 0 where it has none. */
export function numberOf(beat: Beat, picture: Picture | null): number {
  if (picture?.kind !== "time" || !isNumbered(picture.moments)) return 0;
  return picture.moments.findIndex((one) => one.step === beat.step && one.line === beat.line && one.role === beat.role) + 1;
}

function time({ moments, keeper }: TimePicture, model: ExplorerModel, go: Go): HTMLElement {
  const before = new Map<string, Memory>();
  const [counted, summed] = [counting(moments, keeper), changedOutOfSight(moments)];
  const box = (one: Memory, old: Memory | undefined, moment: Moment, tight: boolean): HTMLElement =>
    memoryBox(one, old, keeper, model, {
      tight,
      also: places(one, moment, moments),
      written: moment.role === "changed",
      summed: summed.has(one.storage),
    });
  const columns = moments.map((moment, at) => {
    const tight = moment.memory.length > 2 && moments.length === 2;
    const shown = moment.memory.map((one) => ({ ...one, version: counted.has(one.storage) ? one.version : null }));
    const memory = h(
      "span",
      // Three in a wide card are two rows and not three: the fix has to be in sight below.
      { class: tight ? "pl-memories pl-tight" : "pl-memories" },
      ...shown.map((one) => box(one, before.get(one.storage), moment, tight)),
    );
    for (const one of moment.memory) before.set(one.storage, one);
    const card = column(
      moment.role,
      say(moment.title, model.language),
      [say(moment.place, model.language), turnOf(moment, moments, model)].filter(Boolean).join(", "),
      moment.code,
      moment.step,
      go,
      memory,
      keeperPart(keeper, at, moment, model),
    );
    const way = leading(moment, model);
    if (way) card.prepend(way);
    // The notes in the code have the same numbers: there, a line that runs later may stand above.
    if (isNumbered(moments)) card.querySelector(".pl-role")?.prepend(h("span", {}, String(at + 1)));
    return card;
  });
  return h("ol", { class: "pl-story", style: `--pl-n:${columns.length}` }, ...columns);
}

/** Where other cards are on the same line at another step, which time or round this one is. */
function turnOf(moment: Moment, moments: readonly Moment[], model: ExplorerModel): string {
  const { line, source, step } = moment;
  const event = step === null ? undefined : model.trace.events[step];
  const others = moments.some((one) => one.line === line && one.source === source && one.step !== null && one.step !== step);
  return event && others && event.span?.line === line ? model.turns.brief(event) : "";
}

/** Beside the arrow: the lines that lead here from the card before, with what they call. */
function leading({ between, skipped }: Moment, model: ExplorerModel): HTMLElement | null {
  if (!between?.length) return null;
  const lines = between.map(({ line, source, op }) => `${model.place(line, source)}: ${called(op)}`);
  if (skipped) lines.splice(1, 0, model.t(`${skipped} more`, `另外 ${skipped} 行`));
  const text = model.t(`via ${lines.join(", ")}`, `经由${lines.join("，")}`);
  return h("small", { class: "pl-between", title: model.t("what leads here from a card before", "从前面的卡片到这里经过的行") }, text);
}

/** The larger memories whose numbers change, but not those that are shown: their mean and extremes are shown then. */
function changedOutOfSight(moments: readonly Moment[]): Set<string> {
  const all = moments.flatMap(({ memory }) => memory).filter(({ size }) => (size ?? 0) > WHOLE);
  const of = (storage: string): Memory[] => all.filter((one) => one.storage === storage);
  // Two parts of a memory have other numbers, and none of them needs to have changed.
  const parts = (storage: string): Set<string> => new Set(of(storage).map((one) => JSON.stringify([one.shape, one.stride, one.offset])));
  const hidden = (storage: string): boolean =>
    parts(storage).size === 1 &&
    telling(of(storage).map(({ cells }) => cells)).length === 0 &&
    new Set(of(storage).map(({ cells }) => gist(cells, ""))).size > 1;
  return new Set(all.map(({ storage }) => storage).filter(hidden));
}

/** The memories of which the version counter tells something: torch compares it, or a write came past it. */
function counting(moments: readonly Moment[], keeper: Keeper | null): Set<string> {
  const all = moments.flatMap(({ memory }) => memory);
  const past = (one: Memory, at: number): boolean => {
    const before = all.slice(0, at).findLast(({ storage }) => storage === one.storage);
    return one.changed && before !== undefined && one.version === before.version;
  };
  return new Set((keeper?.expected != null ? all : all.filter(past)).map(({ storage }) => storage));
}

/** The cells of a memory that have to be seen beside its ends. */
function places(one: Memory, moment: Moment, moments: readonly Moment[]): number[] {
  const through = moments.flatMap(({ memory }) => memory.filter(({ storage }) => storage === one.storage));
  const beside = moment.memory.filter(({ size }) => size === one.size);
  return telling(
    through.map(({ cells }) => cells),
    beside.map(({ cells }) => cells),
  );
}

/** So many numbers are shown all, in as many rows as the card needs; of more, so many: the first ones and the last. */
const WHOLE = 8;
const ENDS = 3;

interface Looks {
  tight?: boolean;
  /** Cells that are shown beside the ends. */
  also?: readonly number[];
  /** Whether what has changed was written at this very moment. */
  written?: boolean;
  /** Whether mean and extremes are shown in place of cells. */
  summed?: boolean;
}

/** One storage: who looks at it, how often it was written, what is in it. */
export function memoryBox(
  one: Memory,
  before: Memory | undefined,
  keeper: Keeper | null,
  model: ExplorerModel,
  { tight = false, also = [], written: now = true, summed = false }: Looks = {},
): HTMLElement {
  // With commas: the names may be those of several tensors on this memory, of different shapes.
  const last = one.names.length - 1;
  const names = one.names.map((name, at) => h("code", {}, ...wrapped(name), at < last ? "," : ""));
  const off = keeper?.expected != null && one.version !== null && one.version > keeper.expected;
  const counts = model.t(
    `version ${one.version} of the counter: it counts the writes in place to this memory`,
    `版本计数器的值 ${one.version}：它记录这块内存被原地写入的次数`,
  );
  const version =
    one.version === null
      ? null
      : h("span", { class: off ? "pl-version pl-off" : "pl-version", title: counts }, numbered(one.version, model));
  const head = h(
    "span",
    { class: "pl-named" },
    ...names,
    one.more ? ` +${one.more}` : "",
    " ",
    version,
    one.shape?.length
      ? h("small", { title: one.cells === null ? unrecorded(model) : "" }, shape(one.shape))
      : one.shape === null && one.size !== null
        ? h("small", {}, counted(one.size, model))
        : "",
    !tight && laid(one, model),
  );
  const sums = summed ? gist(one.cells, model.t("mean", "均值")) : "";
  const layout = one.stride && { stride: one.stride, offset: one.offset };
  const row = cellRow(one.cells, one.shape, before?.cells ?? null, tight || (one.size ?? 0) > WHOLE ? ENDS : WHOLE, also, layout);
  const cells = sums ? h("span", { class: "pl-cells pl-many" }, sums) : row;
  const written = one.changed && before ? writtenOver(one, before, model, now, summed) : null;
  return h("span", { class: "pl-memory", style: `--v-hue:${model.hueNow(one.storage)}` }, head, tight && laid(one, model), cells, written);
}

/** What the pointer says of a memory whose numbers are not drawn. */
function unrecorded(model: ExplorerModel): string {
  return model.t("its numbers were not recorded", "未记录它的数值");
}

/** How a tensor reads a memory whose cells are not its elements in this order. */
function laid({ shape: size, stride, offset }: Memory, model: ExplorerModel): HTMLElement | null {
  if (!size || !stride) return null;
  const steps = !isInOrder(size, stride);
  const text = [steps && `stride ${shape(stride)}`, offset > 0 && `offset ${offset}`].filter(Boolean).join(", ");
  const how = model.t(
    "stride: how many cells of the memory one step along each dimension goes on, 0: to the same cell; offset: the cell of the first element",
    "stride：沿每个维度走一步在内存中前进几个单元，0 表示仍是同一个单元；offset：第一个元素所在的单元",
  );
  return text ? h("small", { title: how }, text) : null;
}

/** The size of a memory that tensors of different shapes read. */
function counted(size: number, model: ExplorerModel): string {
  return model.t(size === 1 ? "1 cell" : `${size.toLocaleString("en")} cells`, `${size} 个单元`);
}

function numbered(version: number, model: ExplorerModel): string {
  return model.t(`version ${version}`, `版本 ${version}`);
}

/** That a memory was written; where its counter has not moved, that the write came past it. */
function writtenOver(one: Memory, before: Memory, model: ExplorerModel, now: boolean, summed: boolean): HTMLElement {
  const past = one.version !== null && one.version === before.version; // without a version, the story is about something else
  const seen = summed || telling([before.cells, one.cells]).length > 0;
  const again = !now && before.changed;
  const text = past
    ? model.t(
        `written${again ? " again" : ""}, but its version counter still says ${one.version}`,
        `${again ? "又" : ""}被改写，但版本计数器仍为 ${one.version}`,
      )
    : again
      ? model.t("overwritten again", "又被改写")
      : !now
        ? model.t("overwritten earlier", "此前已被改写")
        : seen
          ? model.t("overwritten", "被改写")
          : model.t("overwritten, by little", "被改写，变化很小");
  const how = model.t(
    "The numbers changed, but the version counter did not: it sees no write by NumPy, through .data or from outside of torch.",
    "数值变了，版本计数器却没变：它看不到 NumPy、.data 或 torch 之外的写入。",
  );
  return h("small", { class: "pl-written", title: past ? how : "" }, text);
}

/** The node's bar under a column: it begins where it saved, and ends where it needs. */
function keeperPart(keeper: Keeper | null, at: number, moment: Moment, model: ExplorerModel): HTMLElement {
  const part = h("span", { class: "pl-keep" });
  if (!keeper || at < keeper.from || at > keeper.to) return part;
  // In a narrow card a long name goes on in the next line with its last word.
  const node = h("code", {}, ...keeper.name.split(/(?=Backward\d*$)/).flatMap((word, place) => (place ? [h("wbr", {}), word] : [word])));
  part.classList.add("pl-holds");
  if (at === keeper.from) part.append(h("span", {}, node, " ", keeps(keeper, model)));
  if (keeper.freed !== null && at === keeper.freed) part.append(h("span", {}, model.t("frees what was kept", "释放保留的值")));
  if (keeper.freed !== null && at > keeper.freed) part.classList.add("pl-gone");
  if (at === keeper.to) {
    part.classList.add("pl-needs");
    const raised = moment.role === "raised";
    part.append(h("span", {}, mark(raised ? "raised" : "wrong"), " ", node, " ", needs(keeper, raised, model)));
  }
  return part;
}

function keeps(keeper: Keeper, model: ExplorerModel): string {
  if (keeper.slot === null) return model.t("keeps what backward needs", "保留反向传播所需的值");
  const { expected } = keeper;
  if (expected === null) return model.t("keeps it for backward", "为反向传播保留它");
  return model.t(`keeps it for backward, at version ${expected}`, `为反向传播保留它，版本 ${expected}`);
}

function needs(keeper: Keeper, raised: boolean, model: ExplorerModel): string {
  const { expected, found } = keeper;
  if (keeper.freed !== null && keeper.slot === null) return model.t("needs that again", "又需要这些值");
  if (keeper.freed !== null) return model.t("needs it again", "又需要它");
  if (expected === null && raised) return model.t("needs it here", "在此需要它");
  if (expected === null) return model.t("uses the changed numbers", "用了改变后的数");
  return model.t(`needs version ${expected}, finds version ${found ?? "?"}`, `需要版本 ${expected}，却是版本 ${found ?? "?"}`);
}

/** A longer name of a gradient is shown by its last two parts: the numbers need the room. */
const LONGEST = 14;

/** A gradient that grows: what was there + what flows in = what is there now. All bars have one scale. */
function sum({ name, rounds, first, left, cleared }: SumPicture, model: ExplorerModel, go: Go): HTMLElement {
  const numbers = rounds
    .flatMap((round) => [round.before, round.flowed, round.after])
    .flatMap((cells) => known(cells, 3).map((one) => (one && typeof one[1] === "number" ? Math.abs(one[1]) : 0)));
  const most = Math.max(1e-12, ...numbers);
  const columns = rounds.map((round, at) => {
    const of = rounds.length + left;
    const seen = model.isPartial ? model.t(" seen", "（看到的）") : "";
    const title = model.t(`backward ${first + at + 1} of ${of}${seen}`, `第 ${first + at + 1} 次反向，共 ${of} 次${seen}`);
    return column(
      at ? "wrong" : "other",
      title,
      model.place(round.line),
      round.code,
      round.step,
      go,
      addition(name, round, most, cleared && at === 1, model),
    );
  });
  return h("ol", { class: "pl-story", style: `--pl-n:${columns.length}` }, ...columns);
}

function addition(name: string, { before, flowed, after }: Round, most: number, cleared: boolean, model: ExplorerModel): HTMLElement {
  const gradient = `${name}.grad`;
  const short = gradient.length > LONGEST ? `…${gradient.split(".").slice(-2).join(".")}` : gradient;
  const rows: [sign: string, text: string, cells: Round["after"], kind: string][] = [
    ["", short, before, "pl-before"],
    ["+", model.t("flows in", "流入"), flowed, "pl-flow"],
    ["=", short, after, before ? "pl-total" : "pl-flow"],
  ];
  if (cleared) rows.push(["", model.t("meant", "本应"), flowed, "pl-flow pl-ok"]);
  const lines = rows.map(([sign, text, cells, kind]) => {
    const values = known(cells, 3);
    const shown = values.length
      ? values.map((one) => (one ? bar(one[1], most) : h("i", { class: "pl-gap" }, "…")))
      : [h("i", { class: "pl-gap" }, cells === null && text === short ? "None" : "…")];
    return h(
      "span",
      { class: `pl-sum-row ${kind}` },
      h("b", {}, sign),
      h("code", { title: text === short ? gradient : "" }, text),
      h("span", { class: "pl-bars" }, ...shown),
    );
  });
  return h("span", { class: "pl-sum-rows" }, ...lines);
}

function bar(cell: number | boolean | string, most: number): HTMLElement {
  const size = typeof cell === "number" ? Math.min(1, Math.abs(cell) / most) : 0;
  return h("span", { class: "pl-bar" }, h("i", { style: `inline-size:${(size * 100).toFixed(1)}%` }), h("span", {}, short(cell)));
}

/** Three digits at most: several numbers stand in a row. */
function short(cell: number | boolean | string): string {
  const small = typeof cell === "number" && cell !== 0 && Math.abs(cell) < 0.001;
  return small ? cell.toExponential(1) : brief(cell);
}

/** Two shapes, the table that they make, and the number that came beside the one that was meant. */
function table(picture: TablePicture, model: ExplorerModel, go: Go): HTMLElement {
  const { column: one, row: other, count } = picture;
  const text = model.t(`${(count * count).toLocaleString("en")} pairs instead of ${count}`, `${count * count} 对，而不是 ${count} 对`);
  const shapes = h(
    "table",
    { class: "pl-shapes" },
    ...[one, other].map((side) =>
      h(
        "tr",
        { style: `--v-hue:${side.storage ? model.hue(side.storage) : ""}` },
        h("th", { scope: "row" }, h("code", {}, side.name)),
        h("td", {}, h("code", {}, shape(side.shape))),
      ),
    ),
    h(
      "tr",
      {},
      h("th", { scope: "row" }, model.t("together", "合在一起")),
      h("td", {}, h("code", { class: "pl-bad" }, shape(together(one, other)))),
    ),
  );
  const line = h(
    "button",
    { class: "pl-goto", "data-step": picture.step, "data-role": "wrong", click: () => go(picture.step) },
    h("span", { class: "pl-role" }, mark("wrong"), model.place(picture.line)),
    h("code", {}, ...wrapped(picture.code)),
  );
  // Two numbers in two colours have to differ to the eye; where all pairs give the same number as the right ones, that is chance.
  const both = picture.came !== null && picture.meant !== null;
  const close = both && Math.abs((picture.came ?? 0) - (picture.meant ?? 0)) <= 1e-6 * Math.abs(picture.meant ?? 0);
  const digits = (one: number): string => (both && value(picture.came) === value(picture.meant) ? one.toPrecision(7) : value(one));
  const came =
    picture.came === null || close
      ? null
      : h("p", {}, model.t("torch gave", "torch 给出"), h("b", { class: "pl-bad" }, digits(picture.came)));
  const meant =
    picture.meant === null
      ? null
      : close
        ? h("p", {}, model.t("with these numbers both ways give", "对这些数，两种算法都得"), h("b", {}, value(picture.meant)))
        : h("p", {}, model.t("meant", "本应"), h("b", { class: "pl-ok" }, digits(picture.meant)));
  const note = h("p", { class: "pl-nothing" }, h("i", { class: "pl-own" }), model.t("the pairs that belong together", "真正对应的配对"));
  return h(
    "div",
    { class: "pl-board" },
    h("div", {}, line, shapes),
    grid(picture, model),
    h("div", { class: "pl-came" }, h("p", { class: "pl-pairs-text" }, text), came, meant, note),
  );
}

function together(one: Side, other: Side): number[] {
  const rank = Math.max(one.shape.length, other.shape.length);
  const size = (side: Side, at: number): number => side.shape[side.shape.length - rank + at] ?? 1;
  return Array.from({ length: rank }, (_, at) => Math.max(size(one, at), size(other, at)));
}

/** A table whose numbers are not shown is drawn whole up to so many rows and columns; of a larger one, one less and a row of dots. */
const PATTERN = 10;

/**
 * The table itself: with its differences where they are known, else as a pattern of as many cells as can be seen. Where these are not all,
 * a row and a column of dots go on, and a sentence says how many are drawn.
 */
function grid({ column: one, row: other, count, cells }: TablePicture, model: ExplorerModel): HTMLElement {
  const shown = cells || count <= PATTERN ? count : PATTERN - 1;
  const part = shown < count;
  const left = known(one.cells, 7);
  const top = known(other.cells, 7);
  const dots = (sign: string): HTMLElement => h("td", { class: "pl-end pl-more" }, sign);
  const rows = Array.from({ length: shown }, (_, r) =>
    h(
      "tr",
      {},
      cells && h("th", { scope: "row" }, left[r] ? brief(left[r][1]) : ""),
      ...Array.from({ length: shown }, (_, c) => h("td", { class: r === c ? "pl-own" : "" }, cells ? brief(cells[r]?.[c] ?? 0) : "")),
      part && dots("…"),
    ),
  );
  if (part) rows.push(h("tr", {}, ...Array.from({ length: shown }, () => dots("⋮")), dots("⋱")));
  const head = cells
    ? [h("tr", {}, h("td", {}, "−"), ...top.slice(0, shown).map((cell) => h("th", { scope: "col" }, cell ? brief(cell[1]) : "…")))]
    : [];
  const caption = h("caption", {}, h("code", {}, other.name), " → ", ` · ${count} × ${count}`);
  const drawn = model.t(
    `first ${shown} of ${count} rows, ${shown} of ${count} columns`,
    `${count} 行中的前 ${shown} 行，${count} 列中的前 ${shown} 列`,
  );
  const named = model.t(`${one.name} against ${other.name}: ${count} by ${count}`, `${one.name} 对 ${other.name}：${count} × ${count}`);
  const label = part ? model.t(`${named}; ${drawn}`, `${named}；${drawn}`) : named;
  return h(
    "div",
    { class: "pl-grid-box" },
    h("span", { class: "pl-upright" }, h("code", {}, one.name), " ↓"),
    h(
      "div",
      {},
      h("table", { class: cells ? "pl-grid" : "pl-grid pl-dots", label: label }, caption, ...head, ...rows),
      part && h("small", { class: "pl-part pl-nothing" }, drawn),
    ),
  );
}

/** So many rows and columns of a large table are drawn. */
const DRAWN = 6;

/** A tensor as a table: what adds up to 1, and what is taken together in its place. */
function axes({ name, shape: size, along, used, made, then, cells }: AxesPicture, model: ExplorerModel, go: Go): HTMLElement {
  const [down, across] = along < used ? [along, used] : [used, along];
  const [rows, columns] = [size[down] ?? 0, size[across] ?? 0];
  const [shownRows, shownColumns] = [cells ? rows : Math.min(rows, DRAWN), cells ? columns : Math.min(columns, DRAWN)];
  const kind = (r: number, c: number): string =>
    [(along === down ? c : r) === 0 ? "pl-along" : "", (used === down ? c : r) === 0 ? "pl-used" : ""].filter(Boolean).join(" ");
  const total = (numbers: number[]): string => `${Number(numbers.reduce((sum, one) => sum + one, 0).toPrecision(3))}`;
  // What follows from the softmax's definition, and, of the other axis, what the numbers say where all of them are known.
  const end = (axis: number, at: number): HTMLElement => {
    const sum = cells ? total(axis === down ? cells.map((row) => row[at] ?? 0) : (cells[at] ?? [])) : at === 0 && axis === along ? "1" : "";
    const sign = sum ? `Σ = ${sum}` : at === 0 ? "Σ ≠ 1" : "";
    return h("td", { class: `pl-end ${axis === used ? "pl-bad" : ""}` }, sign);
  };
  const more = (many: boolean): HTMLElement[] => (many ? [h("td", { class: "pl-end" }, "…")] : []);
  const body = Array.from({ length: shownRows }, (_, r) =>
    h(
      "tr",
      {},
      ...Array.from({ length: shownColumns }, (_, c) => h("td", { class: kind(r, c) }, cells ? brief(cells[r]?.[c] ?? 0) : "")),
      ...more(shownColumns < columns),
      end(across, r),
    ),
  );
  const sums = cells ? Array.from({ length: columns }, (_, c) => end(down, c)) : [end(down, 0)];
  if (shownRows < rows) sums[0]?.prepend("⋮ ");
  if (!cells) sums[0]?.setAttribute("colspan", String(shownColumns));
  body.push(h("tr", {}, ...sums));
  const caption = h("caption", {}, model.t(`axis ${across} → · ${rows} × ${columns}`, `第 ${across} 轴 → · ${rows} × ${columns}`));
  const label = model.t(`${name}: ${rows} by ${columns}`, `${name}：${rows} × ${columns}`);
  const table = h("table", { class: cells ? "pl-grid" : "pl-grid pl-dots", label }, caption, ...body);
  const way = (axis: number): string => (axis === down ? model.t("each column", "每一列") : model.t("each row", "每一行"));
  const line = (role: Role, place: AxesPicture["made"]): HTMLElement =>
    h(
      "button",
      { class: "pl-goto", "data-step": place.step, "data-role": role, click: () => go(place.step) },
      h("span", { class: "pl-role" }, mark(role), model.place(place.line)),
      h("code", {}, ...wrapped(place.code)),
    );
  const said = (key: string, text: string): HTMLElement => h("p", { class: "pl-taken" }, h("i", { class: key }), text);
  return h(
    "div",
    { class: "pl-board" },
    h(
      "div",
      {},
      line("other", made),
      said("pl-along", model.t(`${way(along)} adds up to 1 (axis ${along})`, `${way(along)}加起来为 1（第 ${along} 轴）`)),
      line("wrong", then),
      said("pl-used", model.t(`combines ${way(used)} (axis ${used})`, `把${way(used)}放在一起用（第 ${used} 轴）`)),
    ),
    h("div", { class: "pl-grid-box" }, h("span", { class: "pl-upright" }, model.t(`axis ${down} ↓`, `第 ${down} 轴 ↓`)), table),
    h(
      "div",
      { class: "pl-came" },
      h("p", {}, h("code", {}, name), h("code", {}, shape(size))),
      h("p", { class: "pl-pairs-text" }, model.t(`meant: ${way(used)} adds up to 1`, `本应：${way(used)}加起来为 1`)),
    ),
  );
}

/** So many rates are drawn as steps; the corners of more would run together. */
const STEPS = 20;
const [WIDE, HIGH] = [420, 120];

/** The learning rate of each update. */
function curve({ points, updates, places }: CurvePicture, model: ExplorerModel, go: Go): HTMLElement {
  const rates = points.map(([, rate]) => rate ?? 0);
  const most = Math.max(...rates, 0);
  const at = (update: number, rate: number): string =>
    `${((update / updates) * WIDE).toFixed(1)},${(HIGH - (most ? Math.max(0, rate / most) : 0) * HIGH).toFixed(1)}`;
  const corners = points.flatMap(([update = 0, rate = 0], i) => {
    const until = points[i + 1]?.[0] ?? updates;
    return points.length <= STEPS || i === points.length - 1 ? [at(update, rate), at(until, rate)] : [at(update, rate)];
  });
  const low = Math.min(...rates);
  const lowest = points.find(([, rate]) => rate === low)?.[0] ?? 0;
  const label = model.t(
    `learning rate of ${updates} updates: first ${value(rates[0] ?? 0)}, lowest ${value(low)} from update ${lowest + 1} on, highest ${value(most)}, last ${value(rates.at(-1) ?? 0)}`,
    `${updates} 次更新的学习率：起初 ${value(rates[0] ?? 0)}，最低 ${value(low)}（从第 ${lowest + 1} 次更新起），最高 ${value(most)}，最后 ${value(rates.at(-1) ?? 0)}`,
  );
  const line = s("polyline", { points: corners.join(" "), class: "pl-rate" });
  const chart = s("svg", { viewBox: `-4 -6 ${WIDE + 8} ${HIGH + 12}`, role: "img", label, preserveAspectRatio: "none" }, line);
  return h(
    "div",
    { class: "pl-board pl-curve-board" },
    h("div", {}, ...lines(places, model, go)),
    h(
      "figure",
      {},
      h("figcaption", {}, model.t("learning rate", "学习率"), " ", h("b", {}, value(most))),
      chart,
      h("p", {}, h("span", {}, model.t("update 1", "第 1 次更新")), h("span", {}, model.t(`update ${updates}`, `第 ${updates} 次更新`))),
    ),
  );
}

/** The lines that a picture without columns is about. */
function lines(places: readonly Place[], model: ExplorerModel, go: Go): HTMLElement[] {
  return places.map((one) =>
    h(
      "button",
      {
        class: "pl-goto",
        "data-step": one.step ?? "",
        "data-role": one.role,
        ...(one.step === null && { disabled: true }),
        click: () => go(one.step),
      },
      h(
        "span",
        { class: "pl-role" },
        mark(one.role),
        h("b", {}, say(one.title, model.language)),
        h("span", { class: "pl-place" }, say(one.place, model.language)),
      ),
      h("code", {}, ...wrapped(one.code)),
    ),
  );
}

/** What the signs of a picture of looks say. */
function meanings(model: ExplorerModel): Record<string, [sign: string, kind: string, text: string]> {
  return {
    x: ["✕", "pl-used pl-bad", model.t("looked at, but should not be", "看到了，但不该看")],
    o: ["○", "pl-used pl-bad", model.t("not looked at, but should be", "没有看到，但应该看")],
    "+": ["●", "pl-own", model.t("looked at, as it should be", "看到了，也应该看")],
    ".": ["·", "", model.t("left out, as it should be", "排除了，也应该排除")],
    "?": ["?", "", model.t("not known", "不清楚")],
  };
}

/** Where the numbers of neighbours are further apart than one, others are left out between them. */
function gap(all: readonly number[], at: number): boolean {
  return at > 0 && (all[at] as number) > (all[at - 1] as number) + 1;
}

/** Which positions an attention looks at: a row for each that looks, a column for each that is looked at. */
function looks({ of, rows, columns, cells, examples, places }: LooksPicture, model: ExplorerModel, go: Go): HTMLElement {
  const says = meanings(model);
  const dots = (tag: "td" | "th"): HTMLElement => h(tag, { class: "pl-end" }, "…");
  const head = columns.flatMap((column, at) => [...(gap(columns, at) ? [dots("th")] : []), h("th", { scope: "col" }, `${column}`)]);
  const body = rows.flatMap((row, r) => {
    const line = columns.flatMap((_, c) => {
      const [sign, kind, title] = says[cells[r]?.[c] ?? "?"] ?? ["", "", ""];
      return [...(gap(columns, c) ? [dots("td")] : []), h("td", { class: kind, title, label: title }, sign)];
    });
    return [...(gap(rows, r) ? [h("tr", {}, dots("th"))] : []), h("tr", {}, h("th", { scope: "row" }, `${row}`), ...line)];
  });
  const looking = examples ? model.t("example ↓", "样本 ↓") : model.t("position that looks ↓", "看的位置 ↓");
  const caption = h("caption", {}, model.t("position that is looked at →", "被看的位置 →"), ` · ${of[0]} × ${of[1]}`);
  const label = model.t(`who looks at what: ${of[0]} by ${of[1]}`, `谁看谁：${of[0]} × ${of[1]}`);
  const table = h("table", { class: "pl-grid", label }, caption, h("tr", {}, h("td", { class: "pl-end" }), ...head), ...body);
  const key = Object.entries(says).flatMap(([one, [sign, , text]]) => {
    const here = cells.join("").split(one).length - 1;
    return here ? [h("p", { class: one === "x" || one === "o" ? "pl-taken pl-bad" : "pl-taken" }, sign, " ", text)] : [];
  });
  return h(
    "div",
    { class: "pl-board" },
    h("div", {}, ...lines(places, model, go)),
    h("div", { class: "pl-grid-box" }, h("span", { class: "pl-upright" }, looking), table),
    h("div", {}, ...key),
  );
}

/** Which rows meet, and which belong together: the wrong one beside the one that was meant. */
function pairs({ heads, rows, more, places }: PairsPicture, model: ExplorerModel, go: Go): HTMLElement {
  const titles = [...heads.map((one) => prose(say(one, model.language))), [model.t("meant", "本应")]];
  const head = h("tr", {}, ...titles.map((one) => h("th", { scope: "col" }, ...one)));
  const body = rows.map(([own = "", met = "", meant = ""]) => {
    const wrong = met !== meant;
    return h(
      "tr",
      {},
      h("th", { scope: "row" }, own),
      h("td", { class: wrong ? "pl-end pl-bad" : "pl-end" }, wrong ? mark("wrong") : "", " ", met),
      h("td", { class: wrong ? "pl-end pl-ok" : "pl-end" }, meant),
    );
  });
  if (more) body.push(h("tr", {}, h("td", { class: "pl-end", colspan: 3 }, model.t(`and ${more} more`, `另有 ${more} 对`))));
  const label = model.t("what meets, and what was meant", "谁与谁相遇，本应如何");
  return h("div", { class: "pl-board" }, h("div", {}, ...lines(places, model, go)), h("table", { class: "pl-grid", label }, head, ...body));
}

/** The way back from the loss, to where it ends. */
function path(picture: PathPicture, model: ExplorerModel, go: Go): HTMLElement {
  const chip = (name: string, line: number | null, step: number, kind = ""): HTMLElement =>
    h(
      "li",
      {},
      h(
        "button",
        { class: `pl-chip-node ${kind}`, "data-step": step, "data-role": "other", click: () => go(step) },
        h("code", {}, ...wrapped(name)),
        h("small", {}, model.place(line)),
      ),
    );
  const chips = picture.chips.map((one) => chip(one.name.replace(/Backward\d*$/, ""), one.line, one.step));
  if (picture.skipped) chips.splice(-3, 0, h("li", { class: "pl-nothing" }, `… ${picture.skipped} …`));
  const cut = h(
    "li",
    { class: "pl-cut" },
    h(
      "button",
      { "data-step": picture.cut.step, "data-role": "changed", click: () => go(picture.cut.step) },
      h(
        "span",
        { class: "pl-role pl-bad" },
        "✂ ",
        picture.ends ? model.t("the graph ends here", "计算图到此为止") : model.t("the gradient is zero from here on", "从这里起梯度为零"),
        h("span", { class: "pl-place" }, model.place(picture.cut.line)),
      ),
      h("code", {}, ...wrapped(picture.cut.code)),
    ),
  );
  const lost = picture.lost.map((name) => h("code", {}, ...wrapped(name)));
  const more = picture.more ? model.t(` and ${picture.more} more`, ` 等 ${picture.more} 个`) : "";
  const names = lost.flatMap((one, at) => [at ? ", " : "", one]);
  const unreached =
    lost.length > 0 &&
    h("span", {}, picture.ends ? model.t("never reached: ", "到不了：") : model.t("gradient zero: ", "梯度为零："), ...names, more);
  const named = picture.behind && h("code", {}, picture.behind);
  const behind = (named || unreached) && h("li", { class: "pl-lost" }, named, unreached);
  return h("ol", { class: "pl-way" }, chip(picture.root, picture.root_line, picture.root_step, "pl-root-node"), ...chips, cut, behind);
}

/** The headline where no rule says anything and something is worth a look; empty otherwise. */
export function worthTitle(model: ExplorerModel): string {
  const { worth = [], why, head } = model.scene;
  const [first] = worth;
  if (model.stories.length || !first || why || !say(head, "en").startsWith("✓")) return "";
  const lines = new Set(worth.map((one) => one.line)).size;
  if (lines > 1) return model.t(`No mistake was found. ${lines} lines are worth a look.`, `没有发现错误。有 ${lines} 行值得一看。`);
  const place = say(first.place, model.language);
  return model.t(
    `No mistake was found. ${place.charAt(0).toUpperCase()}${place.slice(1)} is worth a look.`,
    `没有发现错误。${place}值得一看。`,
  );
}

/** What is seldom meant, where no rule says anything: a line each, that leads to its step. Null where there is nothing of the kind. */
export function worthALook(model: ExplorerModel, go: Go): HTMLElement | null {
  const { worth = [] } = model.scene;
  if (model.stories.length || !worth.length) return null;
  const rows = worth.map((one) =>
    h(
      "li",
      {},
      h(
        "button",
        { "data-step": one.step, "data-role": "other", click: () => go(one.step) },
        h("span", { class: "pl-role" }, mark("other"), h("b", {}, say(one.place, model.language))),
        h("span", {}, ...prose(say(one.text, model.language))),
      ),
    ),
  );
  const title = model.t("Worth a look", "值得一看");
  const note = model.t("These lines may be right.", "这些行可能是对的。");
  return h(
    "section",
    { class: "pl-picture pl-worth", group: title },
    h("h3", {}, title, " ", h("span", { class: "pl-untried" }, note)),
    h("ol", { class: "pl-others" }, ...rows),
  );
}

/** What a sentence says, with its names as buttons. */
export function sentence(model: ExplorerModel): Node[] {
  return prose(model.sentence(model.step), (part) => labels(part, model, model.stateAt(model.step)));
}
