/** Where the gradients of a backward pass go: into the nodes that run in it, or to `torch.autograd.grad`, which returns them. */

import type { Model, State, TraceEvent } from "./contract";

/** The call that started the pass of a node, if it is one of `torch.autograd.grad` and torch finished it. */
export function asked(event: TraceEvent | undefined, model: Model): TraceEvent | null {
  const started = event?.parent == null ? undefined : model.trace.events[event.parent];
  return started?.op === "torch.autograd.grad" && !started.error ? started : null;
}

/** Whether a node runs after this step, in the same pass. */
export function runsLater(label: string, event: TraceEvent, model: Model): boolean {
  for (const later of model.trace.events.slice(event.step + 1)) {
    if (later.parent === null || later.parent < (event.parent ?? 0)) return false;
    if (later.effects.some(([path]) => path === `nodes.${label}.ran`)) return true;
  }
  return false;
}

/** Whether an AccumulateGrad dropped what came to it when it ran last: its leaf did not require grad any more. */
export function dropped(label: string, state: State, model: Model): boolean {
  const { name, output, ran } = state.nodes[label] ?? {};
  if (name !== "AccumulateGrad" || !output || ran === null || ran === undefined) return false;
  return model.stateAt(ran).tensors[output]?.requires_grad === false;
}

/**
 * Whether the gradient that `sender` made last went into `label`: `grad` takes it before a leaf's AccumulateGrad, and a leaf that
 * does not require grad gets none.
 */
export function arrives(label: string, sender: string, state: State, model: Model): boolean {
  if (state.nodes[sender]?.output === label && dropped(sender, state, model)) return false;
  return state.nodes[label]?.name !== "AccumulateGrad" || !asked(model.trace.events[state.nodes[sender]?.ran ?? -1], model);
}
