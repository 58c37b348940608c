"""Recurrent layers: what torch builds of them on the CPU, step by step.

RNN and GRU (and every cell) are composed of linear maps, activations and products, one set of nodes a time step; an
LSTM in float32 without a projection is one ``MkldnnRnnLayerBackward0`` for each layer and direction, which keeps its
gates and cells for backward; any other LSTM is composed, too.
Source: ``aten/src/ATen/native/RNN.cpp`` and ``mkldnn/RNN.cpp``.
"""

# ruff: noqa: A001, A002, PLR0917 - signatures and names are torch's; every vjp takes (g, s)

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pitfall_lab.shadow.dtypes import FLOAT32
from pitfall_lab.shadow.engine import Engine
from pitfall_lab.shadow.errors import Unmodelled
from pitfall_lab.shadow.graph import Saved
from pitfall_lab.shadow.ops import pointwise, reduce, views
from pitfall_lab.shadow.ops.activation import sigmoid
from pitfall_lab.shadow.ops.building import arrays, edges, new, own, private, records, tensor_only
from pitfall_lab.shadow.ops.dropout import drop
from pitfall_lab.shadow.ops.indexing import getitem
from pitfall_lab.shadow.ops.matmul import linear, matmul
from pitfall_lab.shadow.registry import add
from pitfall_lab.shadow.storage import ShadowTensor

State = tuple[ShadowTensor, ...]
"""The hidden state: ``(h,)``, or ``(h, c)`` of an LSTM."""


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """The parameters of one layer in one direction: the weights for the input (``ih``) and for the hidden state
    (``hh``), each with its bias (None: there is none). ``hr`` is None without a projection.
    """

    ih: ShadowTensor
    hh: ShadowTensor
    bias_ih: ShadowTensor | None = None
    bias_hh: ShadowTensor | None = None
    hr: ShadowTensor | None = None
    """The projection of an LSTM's output."""

    def of_input(self, e: Engine, x: ShadowTensor) -> ShadowTensor:
        """The part of the gates that comes from the input."""
        return linear(e, x, self.ih, self.bias_ih)

    def of_hidden(self, e: Engine, h: ShadowTensor) -> ShadowTensor:
        """The part of the gates that comes from the hidden state."""
        return linear(e, h, self.hh, self.bias_hh)


Cell = Callable[[Engine, Callable[[], ShadowTensor], State, LayerWeights], State]
"""One time step: computes the next state from the input's part of the gates (called when torch computes
it), the state and the weights.
"""


def _act(name: str, *, inplace: bool) -> Callable[[Engine, ShadowTensor], ShadowTensor]:
    return pointwise.RUNS[name][int(inplace)]


def _simple(nonlinearity: str) -> Cell:
    def cell(e: Engine, gates: Callable[[], ShadowTensor], state: State, weights: LayerWeights) -> State:
        return (
            _act(nonlinearity, inplace=False)(e, pointwise.add_in_place(e, weights.of_hidden(e, state[0]), gates())),
        )

    return cell


def _lstm(e: Engine, gates: Callable[[], ShadowTensor], state: State, weights: LayerWeights) -> State:
    together = pointwise.add_in_place(e, weights.of_hidden(e, state[0]), gates())
    pieces = views.unsafe_chunk(e, together, 4, 1)
    kinds = ("sigmoid", "sigmoid", "tanh", "sigmoid")
    enter, forget, fresh, leave = (
        _act(kind, inplace=True)(e, piece) for kind, piece in zip(kinds, pieces, strict=True)
    )
    c = pointwise.add_in_place(e, pointwise.mul(e, forget, state[1]), pointwise.mul(e, enter, fresh))
    h = pointwise.mul(e, leave, _act("tanh", inplace=False)(e, c))
    return (h if weights.hr is None else matmul(e, h, views.t(e, weights.hr)), c)


def _gru(e: Engine, gates: Callable[[], ShadowTensor], state: State, weights: LayerWeights) -> State:
    of_input = views.unsafe_chunk(e, gates(), 3, 1)
    of_hidden = views.unsafe_chunk(e, weights.of_hidden(e, state[0]), 3, 1)
    reset, update = (
        _act("sigmoid", inplace=True)(e, pointwise.add_in_place(e, of_hidden[k], of_input[k])) for k in (0, 1)
    )
    fresh = _act("tanh", inplace=True)(
        e, pointwise.add_(e, of_input[2], pointwise.mul_in_place(e, of_hidden[2], reset))
    )
    return (pointwise.add_in_place(e, pointwise.mul_in_place(e, pointwise.sub(e, state[0], fresh), update), fresh),)


CELLS: dict[str, Cell] = {"rnn_tanh": _simple("tanh"), "rnn_relu": _simple("relu"), "lstm": _lstm, "gru": _gru}
GATES = {"rnn_tanh": 1, "rnn_relu": 1, "lstm": 4, "gru": 3}


# -- one step


def _register_cell(name: str) -> None:
    def run(e: Engine, input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
        state = tuple(hx) if name == "lstm" else (hx,)
        tensor_only(input, *state, w_ih, w_hh, *(x for x in (b_ih, b_hh) if x is not None))
        if (
            input.ndim != 2
            or w_hh.shape != (GATES[name] * state[0].shape[-1], state[0].shape[-1])
            or w_ih.shape != (w_hh.shape[0], input.shape[1])
        ):
            raise Unmodelled(f"{name}_cell with operands of incompatible shapes")
        if any(x.shape != (input.shape[0], state[0].shape[-1]) for x in state):
            raise Unmodelled(f"{name}_cell with a state of another shape")
        weights = LayerWeights(w_ih, w_hh, b_ih, b_hh)
        following = CELLS[name](e, lambda: weights.of_input(e, input), state, weights)
        return following if name == "lstm" else following[0]

    rows = 3 * GATES[name]
    state = "(waves(4, 3), waves(4, 3) * 2)" if name == "lstm" else "waves(4, 3)"
    weights = f"(waves({rows}, 6) * 0.25).requires_grad_(), (waves({rows}, 3) * 0.25).requires_grad_()"
    samples = (
        f"torch.{name}_cell(seq[0], {state}, {weights})",
        f"torch.{name}_cell(seq[0], {state}, {weights}, waves({rows}).requires_grad_(), waves({rows}))",
    )
    add(f"torch.{name}_cell", run, "pure", "as the parts", samples)


# -- all steps


def _the_same(gates: ShadowTensor) -> ShadowTensor:
    return gates


def _steps(
    e: Engine, cell: Cell, input: ShadowTensor, state: State, weights: LayerWeights, *, backwards: bool = False
) -> tuple[ShadowTensor, State]:
    """Run one layer over all time steps: (T, N, I) to (T, N, H), and the last state; ``backwards``:
    from the last step to the first.
    """
    gates = list(views.unbind(e, weights.of_input(e, input), 0))
    outputs = []
    for step in reversed(gates) if backwards else gates:
        state = cell(e, partial(_the_same, step), state, weights)
        outputs.append(state[0])
    return reduce.stack(e, outputs[::-1] if backwards else outputs, 0), state


@dataclass(frozen=True, slots=True)
class RecurrentOptions:
    """The options of a recurrent layer, and its parameters.

    ``layers`` has an entry for each layer, with the parameters of its one or two directions; ``dropout`` is the
    probability with which elements are zeroed between layers (0 in evaluation); ``batch_first`` whether the input is
    (batch, time, features).
    """

    layers: tuple[tuple[LayerWeights, ...], ...]
    dropout: float
    batch_first: bool

    def run(
        self, e: Engine, input: ShadowTensor, states: Sequence[State], layer: Callable[..., tuple[ShadowTensor, State]]
    ) -> tuple[ShadowTensor, list[State]]:
        """Run layer on layer, with dropout in between; return the last layer's output, and the last states.

        ``states`` (the first ones) and the last states have one entry for each layer and direction. ``layer(input,
        state, weights, backwards=...)`` runs one of them and returns its output and last state.
        """
        last: list[State] = []
        for number, directions in enumerate(self.layers):
            outputs = []
            for direction, weights in enumerate(directions):
                output, state = layer(input, states[len(last)], weights, backwards=bool(direction))
                outputs.append(output)
                last.append(state)
            input = outputs[0] if len(outputs) == 1 else reduce.cat(e, outputs, input.ndim - 1)
            if self.dropout and number < len(self.layers) - 1:
                input = drop(e, input, self.dropout, training=True, inplace=False)
        return input, last


def _plan(
    parameters: Any,
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    per: int,
) -> RecurrentOptions:
    directions = 2 if bidirectional else 1
    given = list(parameters)
    tensor_only(*given)
    if len(given) != per * num_layers * directions:
        raise Unmodelled("a recurrent layer with another number of parameters than its options require")
    each = [given[k : k + per] for k in range(0, len(given), per)]
    weights = [
        LayerWeights(*(g[:4] if has_biases else (*g[:2], None, None)), *(g[4 if has_biases else 2 :])) for g in each
    ]
    return RecurrentOptions(
        tuple(tuple(weights[k : k + directions]) for k in range(0, len(weights), directions)),
        dropout if train else 0.0,
        batch_first,
    )


def _register(name: str) -> None:
    cell = CELLS[name]

    def run(e: Engine, input: Any, hx: Any, params: Any, has_biases: Any = None, num_layers: Any = None,
            dropout: Any = None, train: Any = None, bidirectional: Any = None,
            batch_first: Any = None) -> Any:  # fmt: skip
        if isinstance(has_biases, tuple | list):
            raise Unmodelled("a recurrent layer on a PackedSequence")
        states = tuple(hx) if name == "lstm" else (hx,)
        tensor_only(input, *states, *params)
        projected = name == "lstm" and states[0].shape[-1] != states[1].shape[-1]
        per = (4 if has_biases else 2) + projected
        plan = _plan(params, has_biases, num_layers, dropout, train, bidirectional, batch_first, per)
        at = 0 if batch_first else 1
        batch = input.shape[at : at + 1]
        if (
            input.ndim != 3
            or 0 in input.shape
            or any(s.ndim != 3 or s.shape[:2] != (len(params) // per, *batch) for s in states)
        ):
            raise Unmodelled(f"{name} with operands of incompatible shapes or dtypes")
        if name == "lstm" and input.dtype == FLOAT32 and not projected:
            return _mkldnn_lstm(e, plan, input, states)
        source = views.transpose(e, input, 0, 1) if batch_first else input
        each = list(zip(*(views.unbind(e, s, 0) for s in states), strict=True))
        output, last = plan.run(
            e, source, each, lambda x, s, w, *, backwards: _steps(e, cell, x, s, w, backwards=backwards)
        )
        ends = [reduce.stack(e, column, 0) for column in zip(*last, strict=True)]
        turn = views.transpose if name == "lstm" else views.transpose_in_place
        results = (turn(e, output, 0, 1) if batch_first else output, *ends)
        e.graph.drop_unreached(results)
        return results

    rows = 3 * GATES[name]
    state = "(waves(1, 4, 3), waves(1, 4, 3) * 2)" if name == "lstm" else "waves(1, 4, 3)"
    two = "(waves(2, 2, 3), waves(2, 2, 3) * 2)" if name == "lstm" else "waves(2, 2, 3)"
    weights = f"(waves({rows}, 6) * 0.25).requires_grad_(), (waves({rows}, 3) * 0.25).requires_grad_()"
    samples = (
        (
            f"torch.{name}(seq, {state}, [{weights}, waves({rows}).requires_grad_(), waves({rows}).requires_grad_()], "
            "True, 1, 0.0, True, False, False)"
        ),
        f"torch.{name}(seq, {two}, [{weights}, {weights}], False, 1, 0.0, False, True, True)",
        (
            f"torch.{name}(seq.detach(), {state}, [{weights.replace('.requires_grad_()', '')}], False, 1, 0.0, "
            "False, False, False)"
        ),
    )
    add(
        f"torch.{name}",
        run,
        "pure",
        "as the parts; cx, hx, input, weights and results of a float32 LSTM",
        samples,
        traits=("recurrent",),
    )


# -- LSTM in float32


def _mkldnn_lstm(e: Engine, plan: RecurrentOptions, input: ShadowTensor, states: State) -> tuple[ShadowTensor, ...]:
    source = views.contiguous(e, views.transpose(e, input, 0, 1) if plan.batch_first else input)
    h, c = (views.contiguous(e, s) for s in states)
    each = [(getitem(e, h, k), getitem(e, c, k)) for k in range(h.shape[0])]
    output, last = plan.run(
        e, source, each, lambda x, s, w, *, backwards: _mkldnn_layer(e, x, s, w, backwards=backwards)
    )
    ends = [reduce.stack(e, column, 0) for column in zip(*last, strict=True)]
    return (views.transpose(e, output, 0, 1) if plan.batch_first else output, *ends)


def _lstm_forward(
    x: np.ndarray, h: np.ndarray, c: np.ndarray, w: Sequence[np.ndarray], order: Sequence[int]
) -> tuple[list[Any], list[Any]]:
    """For every step the four gates, and the states (h, c): the first, and that after every step."""
    gates, states = [], [(h.astype(np.float64), c.astype(np.float64))]
    for t in order:
        before, memory = states[-1]
        enter, forget, fresh, leave = np.split(
            x[t] @ w[0].T + before @ w[1].T + (w[2] + w[3] if len(w) == 4 else 0), 4, 1
        )
        enter, forget, fresh, leave = sigmoid(enter), sigmoid(forget), np.tanh(fresh), sigmoid(leave)
        memory = forget * memory + enter * fresh
        gates.append((enter, forget, fresh, leave))
        states.append((leave * np.tanh(memory), memory))
    return gates, states


def _mkldnn_layer(
    e: Engine, input: ShadowTensor, state: State, weights: LayerWeights, *, backwards: bool
) -> tuple[ShadowTensor, State]:
    """One direction of one LSTM layer as one ``MkldnnRnnLayerBackward0``: (T, N, I) to (T, N, H), and the last state.

    ``backwards``: from the last step to the first; the outputs stay in the order of the steps.
    """
    biases = [b for b in (weights.bias_ih, weights.bias_hh) if b is not None]
    matrices = [weights.ih, weights.hh, *biases]
    length, count, hidden = input.shape[0], *state[0].shape
    order = range(length - 1, -1, -1) if backwards else range(length)

    def vjp(gs: list[Any], s: Any) -> tuple[Any, ...]:
        if ran is None:
            raise Unmodelled("the backward of an LSTM whose gates have unknown values")
        # The workspace keeps gates and cells, and what a layer that runs backwards was given; the
        # rest is read when backward runs.
        rounded = s.inside or (
            lambda array: array
        )  # near 0 and 1 the derivative of a gate is little more than its rounding
        gates, states = ([tuple(map(rounded, part)) for part in parts] for parts in ran)
        w, x, h = (s.weight0, s.weight1), s.input if given is None else given, s.hx_ if given is None else states[0][0]
        to_input, to_ih, to_hh = np.zeros(s.input.shape), np.zeros(s.weight0.shape), np.zeros(s.weight1.shape)
        to_bias = np.zeros(4 * hidden)
        to_h, to_c = (np.zeros((count, hidden)) if g is None else g.astype(np.float64) for g in gs[1:3])
        for k in reversed(range(length)):
            (enter, forget, fresh, leave), after = gates[k], rounded(np.tanh(states[k + 1][1]))
            before, memory = (s.result0[order[k - 1]], states[k][1]) if k else (h, s.cx_)
            flow = to_h + (0 if gs[0] is None else gs[0][order[k]])
            through = to_c + flow * leave * (1 - after * after)
            d = np.concatenate(
                [
                    through * fresh * enter * (1 - enter),
                    through * memory * forget * (1 - forget),
                    through * enter * (1 - fresh * fresh),
                    flow * after * leave * (1 - leave),
                ],
                1,
            )
            to_bias += d.sum(0)
            to_input[order[k]] = d @ w[0]
            to_ih += d.T @ x[order[k]]
            to_hh += d.T @ before
            to_h, to_c = d @ w[1], through * forget
        return to_input, to_ih, to_hh, to_bias, to_bias.copy(), to_h, to_c

    operands = [input, *matrices, *[None] * (4 - len(matrices)), *state]
    node = None
    if records(e, *operands):
        node = e.graph.new_node("MkldnnRnnLayerBackward0", edges(e, operands), vjp)
        node.multiple = True
        node.keep(Saved("cx_", state[1]), Saved("hx_", state[0]), Saved("input", input))
        node.keep(*(Saved(f"weight{k}", x) for k, x in enumerate(matrices)))
        node.keep(
            *(
                Saved(f"weight{k}", private(e, np.zeros(0, np.float32), FLOAT32), own=True)
                for k in range(len(matrices), 4)
            )
        )
    found = arrays(e, (input, *state, *matrices))
    ran = None if found is None else _lstm_forward(found[0], found[1], found[2], found[3:], order)
    given = found[0].copy() if backwards and found is not None else None
    shapes = ((length, count, hidden), (count, hidden), (count, hidden))
    values: Sequence[Any] = (None, None, None)
    if ran is not None:
        reached = ran[1]
        seen = [h for h, _ in reached[1:]]
        values = (np.stack(seen[::-1] if backwards else seen), *reached[-1])
    results = [new(e, shape, FLOAT32, x) for shape, x in zip(shapes, values, strict=True)]
    if node is not None:
        own(node, *results)
        node.keep(*(Saved(f"result{k}", x, is_output=True) for k, x in enumerate(results)))
        node.keep(Saved("result3", private(e, np.zeros(0, np.uint8), FLOAT32), own=True))
    return results[0], (results[1], results[2])


for _name in CELLS:
    _register(_name)
    _register_cell(_name)
