/** The how manyth time it is that an expression runs, and the round of a loop that a step is in. */

import type { Span, TraceEvent } from "./contract";
import type { ExplorerModel } from "./model";

/** The first and the last line of each statement of a loop that runs once in each round. */
type Statements = [number, number][];

/** A call in one of these statements, and its steps, one for each round. */
interface Counted {
  statement: number;
  steps: number[];
}

/** Whether a text is the call of this operation, or an operator: then it is computed once for each event. */
function isCallOf(op: string, text: string): boolean {
  const plain = (name: string): string => name.replace(/^_+|_+$/g, "").toLowerCase();
  if (!text.trimEnd().endsWith(")")) return true;
  const called = /^[\w.]*?(\w+)\(/.exec(text)?.[1] ?? /\.(\w+)\([^()]*\)$/.exec(text)?.[1];
  return called !== undefined && plain(called) === plain(op.split(".").pop() ?? "");
}

/** `1st`, `2nd`, `3rd`, `11th`. */
function ordinal(count: number): string {
  const tail = count % 100 > 10 && count % 100 < 14 ? "th" : (["th", "st", "nd", "rd"][count % 10] ?? "th");
  return `${count}${tail}`;
}

/** Where an expression begins and ends, as a key. */
export function ends(span: Span | null): string {
  return span ? `${span.line}:${span.utf16[0]}-${span.end_line}:${span.utf16[1]}` : "";
}

/** Which of the statements an expression is in, by its place; -1 if it is in none. */
function statementOf(statements: Statements, span: Span | null): number {
  return span ? statements.findIndex(([first, last]) => first <= span.line && span.line <= last) : -1;
}

export class Turns {
  readonly #model: ExplorerModel;
  readonly #turns = new Map<string, number[]>();
  readonly #counted = new Map<Statements, Counted[]>();

  constructor(model: ExplorerModel) {
    this.#model = model;
  }

  /** `round 2` or `2nd time`; empty where that is not known, or the line ran once. */
  brief(event: TraceEvent): string {
    const model = this.#model;
    const [round, rounds] = this.#roundOf(event) ?? [0, 0];
    if (rounds > 1) return model.t(`round ${round}`, `第 ${round} 轮`);
    const turns = this.#turnsOf(event);
    const at = turns.indexOf(event.step) + 1;
    return turns.length < 2 || model.isPartial ? "" : model.t(`${ordinal(at)} time`, `第 ${at} 次`);
  }

  /** The how manyth time it is that a line runs: a round, where each round of a loop runs it once. */
  say(event: TraceEvent): string {
    const model = this.#model;
    const [round, rounds] = this.#roundOf(event) ?? [0, 0];
    if (rounds > 1) return model.t(`round ${round} of ${rounds}`, `第 ${round} 轮，共 ${rounds} 轮`);
    const turns = this.#turnsOf(event);
    const [at, count] = [turns.indexOf(event.step) + 1, turns.length];
    if (count < 2) return "";
    if (model.isPartial)
      return model.t(`${ordinal(at)} of ${count} recorded times this line ran`, `这一行记录到 ${count} 次执行，这是第 ${at} 次`);
    if (this.#isCall(event)) return model.t(`${ordinal(at)} of ${count} times this line ran`, `这一行第 ${at} 次执行，共 ${count} 次`);
    return model.t(`${ordinal(at)} of ${count} such steps on this line`, `这一行的第 ${at} 个此类步骤，共 ${count} 个`);
  }

  /**
   * The round of a loop that a step is in, and how many there are; null where that is not known. A line that only calls a library may
   * leave no step in a round, as `zero_grad()` does where no gradient is. So the rounds are counted where the program itself calls torch.
   */
  #roundOf(event: TraceEvent): [at: number, count: number] | null {
    const { span } = event;
    const loops = this.#model.scene.runs?.rounds?.[span?.source ?? 0] ?? [];
    const loop = loops.find((one) => statementOf(one, span) >= 0);
    if (!span || !loop || event.kind !== "call" || this.#model.isPartial) return null;
    const counted = this.#countedIn(loop, span.source);
    const count = counted[0]?.steps.length ?? 0;
    const turns = this.#turnsOf(event);
    if (turns.length === count) return count ? [turns.indexOf(event.step) + 1, count] : null;
    const own = statementOf(loop, span);
    const other = counted.find(({ statement }) => statement !== own);
    if (!other) return null;
    const begun = other.steps.filter((step) => step < event.step).length;
    return [own < other.statement ? begun + 1 : begun, count];
  }

  /** The torch calls in the statements of a loop that were made most often: once in each round. */
  #countedIn(loop: Statements, source: number): Counted[] {
    const known = this.#counted.get(loop);
    if (known) return known;
    const found = new Map<string, Counted>();
    for (const event of this.#model.trace.events) {
      const statement = event.span?.source === source && event.kind === "call" ? statementOf(loop, event.span) : -1;
      const key = `${ends(event.span)}:${event.op}`;
      if (statement >= 0 && !found.has(key) && this.#isCall(event)) found.set(key, { statement, steps: this.#turnsOf(event) });
    }
    const most = Math.max(0, ...[...found.values()].map(({ steps }) => steps.length));
    const counted = [...found.values()].filter(({ steps }) => steps.length === most);
    this.#counted.set(loop, counted);
    return counted;
  }

  /**
   * The steps at which the same expression was computed, one for each time. Empty where the trace does not show them: a line of a library that
   * calls one operation for each parameter runs once, and a comprehension computes its expression several times.
   */
  #turnsOf(event: TraceEvent): number[] {
    const { events } = this.#model.trace;
    const { span } = event;
    if (!span || event.kind !== "call" || this.#model.scene.runs?.inner?.[span.source]?.includes(span.line)) return [];
    const place = ends(span);
    const key = `${span.source}:${place}:${event.op}`;
    const known = this.#turns.get(key);
    if (known) return known;
    const here = events.filter((one) => one.kind === "call" && one.span?.source === span.source && ends(one.span) === place);
    const steps = here.filter(({ op }) => op === event.op).map(({ step }) => step);
    const found = this.#isCall(event) || this.#isOncePerRun(here, steps) ? steps : [];
    this.#turns.set(key, found);
    return found;
  }

  /** Whether the expression of an event is the call of its operation. */
  #isCall({ span, op }: TraceEvent): boolean {
    if (!span) return false;
    const line = (this.#model.trace.sources[span.source]?.text ?? "").split(/\r\n|\r|\n/)[span.line - 1] ?? "";
    return isCallOf(op, span.end_line === span.line ? line.slice(...span.utf16) : line.slice(span.utf16[0]));
  }

  /** Whether of the events that one expression made, those at `steps` come from different times that it was computed: other lines ran between. */
  #isOncePerRun(here: TraceEvent[], steps: number[]): boolean {
    const { events } = this.#model.trace;
    const [first] = here;
    if (!first) return false;
    const deep = first.scope.length;
    const own = new Set(here.map(({ step }) => step));
    // What runs inside of the expression's own call has it on its stack.
    const other = (one: TraceEvent): boolean =>
      one.kind === "call" && one.parent === null && one.scope.length <= deep && !own.has(one.step);
    return steps.every((step, at) => at === 0 || events.slice((steps[at - 1] ?? 0) + 1, step).some(other));
  }
}
