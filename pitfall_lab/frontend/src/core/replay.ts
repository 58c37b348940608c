/** Replaying a trace: the fold of `pitfall_lab/trace/replay.py` in the browser, so that a trace means the same in both. */

import type { Effect, State } from "./contract";

export function emptyState(): State {
  return { tensors: {}, storages: {}, counters: {}, nodes: {}, mode: { grad: true, inference: false } };
}

/** A trace may come from anywhere: these names would reach JavaScript's own machinery instead of the state. */
const FORBIDDEN = new Set(["__proto__", "prototype", "constructor"]);

/**
 * Write one effect into `state`. Objects on the way are copied before they are changed, so a state that was handed
 * out earlier keeps its content; `owned` holds the objects that were already copied for this state.
 */
export function apply(state: State, [path, value]: Effect, owned: Set<object>): void {
  const keys = path.split(".");
  if (keys.some((key) => FORBIDDEN.has(key))) return;
  const last = keys.pop() as string;
  let place = state as unknown as Record<string, unknown>;
  for (const key of keys) {
    let inner = place[key] as Record<string, unknown> | undefined;
    if (typeof inner !== "object" || inner === null || !owned.has(inner)) {
      inner = { ...(inner as object) };
      owned.add(inner);
      place[key] = inner;
    }
    place = inner;
  }
  place[last] = value;
}
