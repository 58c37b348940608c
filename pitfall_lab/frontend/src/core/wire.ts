/**
 * What Python sends, typed: written by `python -m pitfall_lab.reference.browser_types`, not by hand.
 *
 * The JSON of a trace leaves out fields that have their default value; `readTrace` (load.ts) puts them back.
 */

export type Language = "en" | "zh";

export type EventKind = "call" | "node" | "write" | "mode";

export type By = "observed" | "modelled" | "agreed";

export type Cause = "failure" | "limit" | "removed" | "never";

export type Origin = "" | "torch" | "program" | "library";

export type Cell = number | boolean | string;

export type Cells = Cell[] | Shortened;

export type BeatRole = "saved" | "changed" | "raised" | "wrong" | "other";

export type MarkKind = "saved" | "written" | "raised" | "silent" | "wrong";

export type FindingPicture = TimePicture | SumPicture | TablePicture | PathPicture | AxesPicture | CurvePicture | LooksPicture | PairsPicture;

export type Effect = [path: string, value: unknown, by: "o" | "m" | "a"];

/** A whole trace: the recorded events of one program, its sources, how it ended, and how far the recording reaches. */
export interface Trace {
  sources: Source[];
  events: Event[];
  outcome: Outcome;
  agreement: Agreement;
  disagreements: Disagreement[];
  notes: Note[];
  environment: [string, string][];
  optimizer_steps: OptimizerStep[];
  reach: Reach;
  optimizers: OptimizerMade[];
  beside: Beside;
  schema: number;
}

/** The memory and the graph of a program after a step: all effects up to it, by label. */
export interface State {
  tensors: Record<string, TensorState>;
  storages: Record<string, StorageState>;
  counters: Record<string, number>;
  nodes: Record<string, NodeState>;
  mode: ModeState;
}

/** One finding, or the error of the trace itself. */
export interface StoryScene {
  beats: Beat[];
  picture: FindingPicture | null;
  makers: [number, number][];
  slice: Slice;
  graph: Drawing | null;
  severity: "error" | "warning" | "info";
  rule: string;
  name: string;
  message: string | Text;
  explanation: string | Text;
  advice: string | Text;
  predicted: boolean;
  step: number | null;
  fixes: FixScene[];
}

/** What is drawn beside the views: sentences, display names, findings, the headline, and why observation stopped. */
export interface CommonScene {
  events?: SceneEvent[];
  names?: Record<string, string>;
  stories?: StoryScene[];
  head?: Text | null;
  why?: Text | null;
  worth?: Notable[];
  help?: Help;
  palette?: string[];
  story?: number[];
  jumps?: Jumps;
  touched?: Record<string, number[]>;
  folds?: Fold[];
  runs?: LineRuns;
  changes?: Offered[];
  trying?: boolean;
  trials?: Trials;
}

/** A view that raised: the type of its error. */
export interface FailedScene {
  failed: string;
}

/** Two compared programs. */
export interface ComparedRuns {
  first: number | null;
  same: Text;
  sides: ComparedSide[];
  gradients: [string, string, string][];
  peaks: string[];
}

/** What the browser draws of broadcasting; `play` if shapes can be changed there. */
export interface BroadcastScene {
  cases: BroadcastCase[];
  left_out?: number;
  play?: boolean;
}

/** The marks of the source, in its order. */
export interface CodeScene {
  marks: CodeMark[];
}

/** The whole graph: as cards, as a ladder, with its loops folded, and with modules as boxes. */
export interface GraphScene {
  nodes: Card[];
  edges: Edge[];
  width: number;
  height: number;
  by: string;
  count: number;
  ladder?: Ladder;
  folded?: Drawing;
  cards?: Card[];
  modules?: Boxes;
}

/** The live bytes of the program's storages over its steps. */
export interface MemoryScene {
  steps: number;
  total: [number, number][];
  peak: Peak | null;
  bands: Band[];
  others: number;
}

/** The storages in the order of their birth, of which `main` are drawn at first. */
export interface StorageScene {
  storages: Store[];
  main: number;
  left_out: number;
}

/** The version counters, and the steps that have a column. */
export interface VersionsScene {
  tracks: Track[];
  columns: number[];
  steps: number;
  left_out: number;
}

/** One file or cell: its display `name` and complete `text`; `parts`, in order, if the text is made of several cells. */
export interface Source {
  name: string;
  text: string;
  parts: Part[];
}

/** One step of the program. */
export interface Event {
  step: number;
  kind: EventKind;
  op: string;
  span: Span | null;
  scope: string[];
  parent: number | null;
  operands: Operand[];
  results: string[];
  writes: string[];
  effects: Effect[];
  by: By;
  reason: string;
  forecasts: Forecast[];
  harms: Harm[];
  error: Failure | null;
}

/** How the program ended: `finished`, or `raised` with the error. */
export interface Outcome {
  kind: "finished" | "raised";
  failure: Failure | null;
}

/** The number of calls that were compared, of those that agreed, of calls without a model, and of steps with a disagreement. */
export interface Agreement {
  checked: number;
  agreed: number;
  mirrored: number;
  disagreed: number;
}

/** A difference between torch (`observed`) and the shadow engine (`modelled`). Always shown; an error in CI. */
export interface Disagreement {
  step: number;
  path: string;
  observed: unknown;
  modelled: unknown;
}

/** A message for readers of the trace. */
export interface Note {
  kind: "limit" | "stopped" | "unseen";
  en: string;
  zh: string;
  step: number | null;
  span: Span | null;
  cause: Cause | null;
}

/** The `step()` of an `optimizer` (its class name) was called after `step` events; `holds` are the tensors that it had then. */
export interface OptimizerStep {
  step: number;
  optimizer: string;
  span: Span | null;
  holds: string[];
  made: number | null;
}

/** How far observation went. */
export interface Reach {
  lines: number;
  missed: number;
  later: number[];
  gaps: Gap[];
}

/** An `optimizer` (its class name) was created after `step` events; `holds` are the tensors that it received, then or later. */
export interface OptimizerMade {
  step: number;
  optimizer: string;
  span: Span | null;
  holds: string[];
  steps: number;
  rates: [number, number][];
  given: number[];
  apart: number;
  updates: number[];
  left: ([number, Span | null])[];
  cleared: Span[];
  begins: number[];
}

/** What the program did with objects of torch's beside the calls that the events describe; only the first ones of each kind. */
export interface Beside {
  schedulers: Scheduler[];
  loadings: Loading[];
  strays: Stray[];
  passes: DataPass[];
  savings: Saving[];
  unfinite: Unfinite[];
  losses: Lost[];
  compared: Compared[];
  drifts: Drift[];
  paired: Paired[];
  counted: Counted[];
  picked: Picked[];
  restored: Restored[];
  misplaced: MisplacedAverages[];
  skipped: Skipped[];
  loaded_again: LoadedAgain[];
  hashed: Hashed[];
  worker_copies: WorkerCopy[];
  written: FileWrite[];
}

/** A tensor or NumPy array: what the program calls it, its shape in elements, and the labels of what it belongs to. */
export interface TensorState {
  kind: "tensor" | "parameter" | "array";
  name: string | null;
  names: string[];
  shape: number[];
  stride: number[];
  offset: number;
  dtype: string;
  device: string;
  storage: string | null;
  counter: string | null;
  requires_grad: boolean;
  is_leaf: boolean;
  grad_fn: string | null;
  base: string | null;
  grad: string | null;
  born: number;
  alive: boolean;
}

/** A storage: its size in elements and in bytes, and its elements where they are known. */
export interface StorageState {
  size: number;
  dtype: string;
  nbytes: number;
  cells: Cells | null;
  alive: boolean;
}

/** A node of the graph; `ran` is the step in which backward ran it, `gradient` what it received there. */
export interface NodeState {
  name: string;
  next: (string | null)[];
  born: number;
  output: string | null;
  saved: SavedState[];
  freed: boolean;
  ran: number | null;
  gradient: Cells | null;
  gradient_shape: number[] | null;
  added?: SentGradient[];
}

/** The modes of autograd. */
export interface ModeState {
  grad: boolean;
  inference: boolean;
}

/** A beat with `was`, the role that the finding gave the line. */
export interface Beat {
  role: BeatRole;
  title: Text;
  step: number | null;
  line: number | null;
  source: number;
  place: Text;
  code: string;
  text: string | Text;
  was: string;
}

/** The picture of a finding as moments in time, one after another. */
export interface TimePicture {
  kind: "time";
  moments: PicturedBeat[];
  keeper: Keeper | null;
  about: string[];
}

/** A `.grad` to which one backward after another adds. */
export interface SumPicture {
  kind: "sum";
  leaf: string;
  name: string;
  rounds: Round[];
  first: number;
  cleared: boolean;
  left: number;
  moments: PicturedBeat[];
  about: string[];
}

/** Two operands that broadcast to a table, with the number computed from it (`came`) and the intended one (`meant`). */
export interface TablePicture {
  kind: "table";
  step: number;
  line: number | null;
  code: string;
  column: TableSide;
  row: TableSide;
  count: number;
  pairs: number | null;
  cells: number[][] | null;
  came: number | null;
  meant: number | null;
  moments: PicturedBeat[];
  about: string[];
}

/** The path from the loss to the call that cut the graph, and the leaves beyond it that get no gradient. */
export interface PathPicture {
  kind: "path";
  root: string;
  root_step: number;
  root_line: number | null;
  chips: Chip[];
  skipped: number;
  cut: CutPlace;
  ends: boolean;
  behind: string;
  lost: string[];
  more: number;
  moments: PicturedBeat[];
  about: string[];
  nodes: string[];
}

/** A tensor whose elements add up to 1 along one axis (`along`), and that a later call uses along another (`used`). */
export interface AxesPicture {
  kind: "axes";
  name: string;
  shape: number[];
  storage: string | null;
  along: number;
  used: number;
  made: CutPlace;
  then: CutPlace;
  cells: number[][] | null;
  moments: PicturedBeat[];
  about: string[];
}

/** The learning rate over the updates of an optimizer. */
export interface CurvePicture {
  kind: "curve";
  points: number[][];
  updates: number;
  places: CurvePlace[];
  moments: PicturedBeat[];
  about: string[];
}

/** Which positions an attention attends to. */
export interface LooksPicture {
  kind: "looks";
  of: [number, number];
  rows: number[];
  columns: number[];
  cells: string[];
  examples: boolean;
  places: CurvePlace[];
  moments: PicturedBeat[];
  about: string[];
}

/** Which rows of two tensors a call compared: each of `rows` has what it is of, what it met, and what was intended. */
export interface PairsPicture {
  kind: "pairs";
  heads: Text[];
  rows: string[][];
  more: number;
  places: CurvePlace[];
  moments: PicturedBeat[];
  about: string[];
}

/** The part of a trace that is shown for a finding: the labels of its storages, tensors, counters and nodes, and its steps. */
export interface Slice {
  storages: string[];
  tensors: string[];
  counters: string[];
  nodes: string[];
  steps: number[];
}

/** A drawing that represents `count` nodes. */
export interface Drawing {
  nodes: Card[];
  edges: Edge[];
  width: number;
  height: number;
  by: string;
  count: number;
}

/** A sentence in both languages. */
export interface Text {
  en: string;
  zh: string;
}

/** A way to repair the program; in `rows` the sign " " marks lines that stay, "−" removed and "+" added lines. */
export interface FixScene {
  title: string | Text;
  verified: boolean;
  printed: PrintedScene | null;
  rows: ([" " | "−" | "+", string])[];
  edits: EditScene[];
}

/** A step in a sentence; `matters` if a failure or a finding depends on it. A look at live tensors has no lines. */
export interface SceneEvent {
  step: number;
  sentence: Text;
  line?: number | null;
  code?: string;
  matters?: boolean;
}

/** What happened on a line. */
export interface Notable {
  step: number;
  line: number;
  place: Text;
  text: Text;
}

/** Keys and signs with what they mean, and what "agree" means. */
export interface Help {
  keys: [string, Text][];
  signs: [string, Text][];
  agreement: Text;
}

/** The steps to which the key E jumps. */
export interface Jumps {
  saved: number[];
  changed: number[];
  raised: number[];
}

/** A repeated run of events: its `first` step, the number of events in one iteration (`length`), and of iterations. */
export interface Fold {
  first: number;
  length: number;
  times: number;
}

/** For each source, line numbers of statements that run repeatedly. */
export interface LineRuns {
  rounds: [number, number][][][];
  inner: number[][];
}

/** A change of the program that the reader can let be tried: the `id` by which the browser requests it, and its title. */
export interface Offered {
  id: string;
  title: Text;
}

/** How many fixes have been tried; `said` is why they cannot be. */
export interface Trials {
  state: "trying" | "done" | "stopped" | "failed" | "refused";
  done: number;
  total: number;
  said: Text | null;
}

/** One of two programs from their first difference on. */
export interface ComparedSide {
  steps: SaidStep[];
  more: number;
  raised: string;
  wrong: boolean;
  stopped: Text | null;
}

/** One expression whose operands have different shapes; `sign` is the operator between them, `clash` are the dimensions that do not fit. */
export interface BroadcastCase {
  step: number;
  steps: number[];
  op: string;
  sign: string;
  line: number | null;
  code: string;
  result: BroadcastResult;
  clash: number[];
  operands: BroadcastOperand[];
  node: string | null;
  ran: number | null;
  crossed: boolean;
  wasteful: boolean;
  play?: boolean;
}

/** A span of the source at which something was saved, written, or found to be wrong. */
export interface CodeMark {
  kind: MarkKind;
  step: number;
  source: number;
  line: number;
  column: number;
  end_line: number;
  end_column: number;
  utf16: number[];
  text: Text;
}

/** A leaf, a node, or a box that represents several of them (`count`); `x` and `y` are its top left corner in px. */
export interface Card {
  id: string;
  kind: "leaf" | "node" | "fold" | "skip" | "module";
  title: string;
  sub: string;
  x: number;
  y: number;
  w: number;
  h: number;
  born: number;
  line: number | null;
  storage: string | null;
  counter: string | null;
  saved: Notch[];
  output?: string | null;
  gradient?: string;
  received?: [number, string][];
  ran?: number[];
  raised?: number | null;
  numbers?: number;
  count?: number;
  until?: number;
  inside?: string[];
  opens?: string;
}

/** Edge */
export interface Edge {
  from: string;
  to: string;
  via?: [string, string];
  times: number;
  born: number;
  d: string;
  label: [number, number];
  shape: string;
}

/** The rows of the ladder, the number of its lanes, and where each storage and step is. */
export interface Ladder {
  rows: Rung[];
  lanes: number;
  lane_of: Record<string, number>;
  row_of: number[];
  crowded: number;
}

/** The modules as cards, and a drawing for each module that can be opened; that of "" has none open. */
export interface Boxes {
  boxes: Card[];
  pictures: Record<string, OpenedModule>;
}

/** The first step with the most live bytes. */
export interface Peak {
  step: number;
  bytes: number;
}

/** One storage; `base` is the lower edge of its band, as (step, bytes) from which it is at that height. */
export interface Band {
  id: string;
  nbytes: number;
  born: number;
  died: number | null;
  base: [number, number][];
}

/** A storage; `columns` are the flat indices that are drawn. */
export interface Store {
  id: string;
  size: number;
  dtype: string;
  nbytes: number | null;
  born: number;
  died: number | null;
  columns: number[];
  values: Values[];
  writes: Write[];
  brushes: Brush[];
  left_out: number;
  counters: string[];
  main: boolean;
}

/** One version counter, with the tensors that count with it and its storage: `bumps` are the steps that increased it, `pins` the saved tensors that remember one of its versions, and `silent` the steps that wrote its storage without increasing it. */
export interface Track {
  counter: string;
  storage: string | null;
  tensors: string[];
  born: number;
  start: number;
  bumps: Bump[];
  pins: Pin[];
  silent: number[];
  shared: string[];
  arrays: boolean;
  end: number | null;
  main: boolean;
}

/** The lines of a program that come from one cell: those from `line` on, which is line `own` of the cell called `name`. */
export interface Part {
  name: string;
  line: number;
  own: number;
  cell: string;
}

/** A range in a source. Lines count from 1, columns from 0; the end column is exclusive, as in Python slices. */
export interface Span {
  line: number;
  column: number;
  end_line: number;
  end_column: number;
  utf16: [number, number];
  source: number;
}

/** One argument of a call: a tensor's `label`, or the `text` of a plain value. `name` is the parameter, if known. */
export interface Operand {
  label: string | null;
  text: string;
  name: string;
}

/** An error that the shadow engine has predicted, and the `step` at which it did so. */
export interface Forecast {
  step: number;
  failure: Failure;
  came_true: number | null;
}

/** A wrong gradient without an error: what torch put into `leaf`'s `.grad`, and the intended gradient. */
export interface Harm {
  step: number;
  leaf: string;
  torch: unknown;
  meant: unknown;
  causes: StaleRead[];
}

/** An error as typed facts. They are not parsed from the message, which is only quoted. */
export interface Failure {
  type: string;
  message: string;
  kind: string;
  step: number | null;
  span: Span | null;
  node: string | null;
  saved: string | null;
  tensor: string | null;
  storage: string | null;
  counter: string | null;
  expected: number | null;
  found: number | null;
  saved_at: number | null;
  changed_at: number[];
  origin: Origin;
  op: string;
  given: Given[];
  earlier: boolean;
}

/** At least so many `calls`, in rounds of a loop that repeat recorded ones, were made before `step` and after the step before it. */
export interface Gap {
  step: number;
  calls: number;
}

/** A learning-rate `scheduler` (its class name) was created after `step` events, for the optimizer with index `optimizer`. */
export interface Scheduler {
  step: number;
  scheduler: string;
  span: Span | null;
  made: boolean;
  optimizer: number | null;
  steps: number;
  first: SchedulerStep[];
  settings: [string, number][];
  count: string;
  shared: string[];
}

/** `load_state_dict` of a `module` (its class name) was called after `step` events. */
export interface Loading {
  step: number;
  module: string;
  span: Span | null;
  parameters: number;
  holds: string[];
  plain: [string, string][];
  fit: number;
  apart: [string, string][];
  unsaved: [string, string][];
}

/** An attribute that the program set on an object of torch's, and that torch never reads; noticed after `step` events. */
export interface Stray {
  step: number;
  kind: "tensor" | "module" | "optimizer";
  owner: string;
  attribute: string;
  meant: string;
  value: unknown;
  actual: unknown;
  holds: string[];
}

/** The program began to iterate over a `DataLoader` after `step` events. */
export interface DataPass {
  step: number;
  span: Span | null;
  workers: number;
  dataset: number;
  kind: string;
  generators: string[];
  still: string[];
  examples: number | null;
  weights: number | null;
  undivided: boolean;
}

/** `state_dict` of a `module` (its class name) was called after `step` events; `plain` and `unsaved` as for `Loading`. */
export interface Saving {
  step: number;
  module: string;
  span: Span | null;
  plain: [string, string][];
  unsaved: [string, string][];
}

/** The call at `step` made NaN or infinity (`kind`) of finite numbers; read from torch by a recording that looks for it. */
export interface Unfinite {
  step: number;
  kind: "nan" | "inf";
  tensor: string | null;
  node: string | null;
  why: string;
  at: number[];
  given: ([string | null, unknown])[];
  source: number | null;
  spread: number;
  noticed: boolean;
  backward: number | null;
  came: unknown;
  hidden: boolean;
  numbers: unknown;
}

/** The call at `step` lost numbers without an error, `lost` of the `of` that were looked at; an example. */
export interface Lost {
  step: number;
  sign: "+" | "-" | "*" | "@" | "to" | "=" | "cut" | "#";
  one: number;
  other: number;
  meant: number;
  got: number;
  lost: number;
  of: number;
}

/** The call at `step` compared a prediction with `of` numbers from `least` to `most`, some of them outside of 0 to 1. */
export interface Compared {
  step: number;
  of: number;
  least: number;
  most: number;
  whole: boolean;
  beyond: [number, number][];
}

/** A line changed numbers that a data set keeps, while it made an example of them, and not for the first time. */
export interface Drift {
  step: number;
  span: Span;
  kind: string;
  name: string;
  before: number[];
  after: number[];
  reader: Span | null;
}

/** The call at `step` stretched a column `(N, 1)` and a list `(N,)` to a table, which became one number. */
export interface Paired {
  step: number;
  number: number;
  came: number;
  meant: number;
  count: number;
}

/** What the numbers show that the call at `step` was given. */
export interface Counted {
  step: number;
  kind: "empty" | "weights" | "kept" | "blank" | "parts" | "renumbered" | "middle" | "tied" | "zeroed" | "unread" | "several" | "unsorted" | "uncentred" | "cancelled" | "ranked" | "correlated" | "cumulated" | "hermitian";
  count: number;
  of: number;
  numbers: number[];
  names: string[];
}

/** The calls at `steps` picked `rows` of a table by an array or a list; only rows that are multiples of `every` are noted. */
export interface Picked {
  steps: number[];
  every: number;
  rows: number[];
}

/** `load_state_dict` of the optimizer with index `optimizer`, which had made no step yet, replaced its option `name` (`lr`) after `step` events. */
export interface Restored {
  step: number;
  optimizer: number;
  name: string;
  given: number;
  loaded: number;
  span: Span | null;
  usual: number | null;
  began: number | null;
  earlier: number[];
}

/** `load_state_dict` gave the optimizer with index `optimizer` averages of other parameters than it holds at their places, after `step` events. */
export interface MisplacedAverages {
  step: number;
  optimizer: number;
  number: number;
  entry: string;
  loaded: number[];
  shape: number[];
  count: number;
  of: number;
  groups: number[];
  names: string[];
  span: Span | null;
  parameter: string | null;
}

/** The call at `step` computed a layer in one piece, and did not call a function that the program wrote for it. */
export interface Skipped {
  step: number;
  part: string;
  kind: string;
  function: string;
  asks: "" | "branch" | "mode";
  own: string[];
  weight: string | null;
}

/** `load_state_dict` gave the optimizer with index `optimizer`, after `step` events, a state that had been loaded before, at `first`, and whose tensors an optimizer has written since: it keeps those that it is given. */
export interface LoadedAgain {
  step: number;
  optimizer: number;
  entry: string;
  count: number;
  span: Span | null;
  first: Span | null;
}

/** At `span` the program used tensors as keys of a dictionary or as elements of a set, first after `step` events. */
export interface Hashed {
  step: number;
  span: Span;
  objects: number;
  values: number;
  repeated: number;
  shown: (number | boolean)[];
  names: string[];
  label: string | null;
  last: boolean;
}

/** The program began, after `step` events, another pass over a `DataLoader` whose `workers` worker processes stay, and its dataset was not as it was when they were started, at `started`. */
export interface WorkerCopy {
  step: number;
  kind: string;
  name: string;
  workers: number;
  span: Span | null;
  started: Span | null;
  before: string;
  after: string;
}

/** `torch.save` was called after `step` events. `tensors` are pairs of labels: of a tensor that it wrote (None if that has no label), and of its storage; tensors on other storages than those of the trace are left out. */
export interface FileWrite {
  step: number;
  span: Span | null;
  tensors: ([string | null, string])[];
}

/** Many elements: their number, and the few that are shown, as (index, element); where they are known, the mean, the lowest and the highest of all. */
export interface Shortened {
  count: number;
  shown: [number, Cell][];
  mean?: number;
  low?: number;
  high?: number;
}

/** A tensor that a node saved, with the version that its counter had then. */
export interface SavedState {
  name: string;
  tensor: string | null;
  storage: string | null;
  counter: string | null;
  version: number;
}

/** What a node sent to another one. */
export interface SentGradient {
  node: string;
  cells: Cells;
}

/** A beat with the storages that it is about. */
export interface PicturedBeat {
  role: BeatRole;
  title: Text;
  step: number | null;
  line: number | null;
  source: number;
  place: Text;
  code: string;
  text: string | Text;
  memory: StorageThen[];
  between: Between[];
  skipped: number;
}

/** Keeper */
export interface Keeper {
  node: string;
  name: string;
  slot: string | null;
  from: number;
  to: number;
  freed: number | null;
  expected: number | null;
  found: number | null;
}

/** One backward that added to a `.grad`: the values before, the gradient added, and the values after. */
export interface Round {
  step: number;
  line: number | null;
  code: string;
  before: Cells | null;
  flowed: Cells | null;
  after: Cells | null;
}

/** One operand of a broadcast. */
export interface TableSide {
  name: string;
  shape: number[];
  storage: string | null;
  cells: Cells | null;
}

/** A node on a path. */
export interface Chip {
  node: string;
  name: string;
  step: number;
  line: number | null;
}

/** A call: its step, line and code, such as the one at which the graph ends. */
export interface CutPlace {
  step: number;
  line: number | null;
  code: string;
}

/** A line that is listed beside a picture, with its role in the story; `step` is None if no call was seen there. */
export interface CurvePlace {
  role: BeatRole;
  title: Text;
  step: number | null;
  line: number | null;
  place: Text;
  code: string;
}

/** What a fix changes in the output: a printed line, or the final value of the variable `name`. */
export interface PrintedScene {
  name: string;
  before: string;
  after: string;
  note: Text | null;
}

/** An edit that a fix makes in the program's first source: it replaces lines `line` to `end_line` (from 1). */
export interface EditScene {
  line: number;
  end_line: number;
  text: string;
  cell?: string;
  name?: string;
  own?: number;
}

/** A step of a trace: its number, its line and code in the program, and a sentence that says what it did. */
export interface SaidStep {
  step: number;
  line: number | null;
  code: string;
  sentence: Text;
}

/** The result of a broadcast call, with the common shape. */
export interface BroadcastResult {
  label: string | null;
  shape: number[];
  reduced: boolean;
  cells: (Cell | null)[] | null;
  ends?: [number, Cell][];
}

/** An operand of a broadcast call. */
export interface BroadcastOperand {
  label: string;
  storage: string | null;
  shape: number[];
  dims: Dim[];
  summed: number[];
  cells: (Cell | null)[] | null;
  ends?: [number, Cell][];
}

/** A saved tensor, drawn as a notch at the foot of its node's card. */
export interface Notch {
  name: string;
  text: string;
  x: number;
  y: number;
  w: number;
  tensor: string | null;
  storage: string | null;
  counter: string | null;
  version: number;
  broken: number | null;
  wrong: number | null;
  stale: number | null;
}

/** One row: a step with the lanes that it reads and makes. */
export interface Rung {
  step: number;
  line: number | null;
  op: string;
  code: string;
  reads: number[];
  makes: number[];
  storages: string[];
  writes: boolean;
  error: boolean;
  times?: number;
  length?: number;
}

/** A drawing of cards that other drawings use, too: each of `places` has the number of a card and its x and y. */
export interface OpenedModule {
  places: [number, number, number][];
  edges: Edge[];
  width: number;
  height: number;
  by: string;
}

/** The drawn cells after a step that changed them. */
export interface Values {
  step: number;
  cells: (Cell | null)[];
}

/** A step that wrote a storage: which of the drawn cells it wrote (positions in `columns`), `by` which tensor (its label; None if not known), and on which line. */
export interface Write {
  step: number;
  cells: number[];
  by: string | null;
  line: number | null;
}

/** A tensor or array over a storage. */
export interface Brush {
  tensor: string;
  kind: string;
  base: string | null;
  history: Stroke[];
}

/** Bump */
export interface Bump {
  step: number;
  from: number;
  to: number;
}

/** A tensor that a node saved at a version of a counter. */
export interface Pin {
  step: number;
  node: string;
  changed: number | null;
  title: string;
  slot: string;
  tensor: string | null;
  version: number;
  stale: number | null;
  freed: number | null;
  broken: number | null;
  wrong: number | null;
  level: number;
}

/** A backward node used a saved tensor whose memory was written since, without a change of its version. */
export interface StaleRead {
  node: string;
  saved: string;
  storage: string;
  saved_at: number | null;
  changed_at: number[];
}

/** One argument of a call that raised, or one tensor in the frame of the program that raised an error itself. */
export interface Given {
  name: string;
  text: string;
  kind: string;
  label: string | null;
  value: string;
  dtype: string;
  shape: number[] | null;
  device: string;
  requires_grad: boolean;
  low: unknown;
  high: unknown;
  part_of: string;
}

/** The `step()` of a learning-rate scheduler was called after `step` events and `after` steps of its optimizer. */
export interface SchedulerStep {
  step: number;
  span: Span | null;
  after: number;
}

/** A storage as it was after a step; `changed` if its elements differ from the moment before. */
export interface StorageThen {
  storage: string;
  names: string[];
  more: number;
  shape: number[] | null;
  stride: number[] | null;
  offset: number;
  size: number | null;
  dtype: string | null;
  cells: Cells | null;
  version: number | null;
  changed: boolean;
}

/** A call between two moments: its line, its source number, and the operation. */
export interface Between {
  line: number;
  source: number;
  op: string;
}

/** One dimension of an operand, aligned to the result's. */
export interface Dim {
  size: number | null;
  kind: "real" | "one" | "missing" | "clash";
  stride: number;
}

/** Which cells of a storage a tensor reads from a step on; with `gone`, none any more. */
export interface Stroke {
  shape: number[];
  stride: number[];
  offset: number;
  cover: string[][];
  step: number;
  gone?: boolean;
  counter: string | null;
  alive: boolean;
}

/** The views' parts of a scene. */
export interface Views {
  broadcast: BroadcastScene;
  code: CodeScene;
  graph: GraphScene;
  memory: MemoryScene;
  storage: StorageScene;
  versions: VersionsScene;
}

export type Scene = CommonScene & { [View in keyof Views]?: Views[View] | FailedScene };
