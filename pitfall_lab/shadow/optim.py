"""``torch.optim`` for the facade: SGD and Adam in the in-place operations that torch's for-loop versions use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pitfall_lab.shadow.facade import Tensor, call, no_grad


class Optimizer:
    """Parameters, one dictionary of state for each, and ``step``."""

    def __init__(self, params: Iterable[Tensor], defaults: dict[str, Any]) -> None:
        self.params = list(params)
        for p in self.params:
            if not p.is_leaf:
                raise ValueError("can't optimize a non-leaf Tensor")
        self.param_groups = [{"params": self.params, **defaults}]
        self.state: dict[Tensor, dict[str, Any]] = {}

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop (or zero in place) all gradients."""
        for p in self.params:
            if p.shadow.gradient is None:
                continue
            if set_to_none:
                p.grad = None
            else:
                call("torch.Tensor.zero_", p.grad)

    def step(self) -> None:
        """Update every parameter that has a gradient, in place: one version each."""
        with no_grad():
            for p in self.params:
                if p.shadow.gradient is not None:
                    self.update(p, p.grad, self.state.setdefault(p, {}), self.param_groups[0])

    def update(self, p: Tensor, gradient: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        """Update one parameter; subclasses say how."""
        raise AttributeError(f"{type(self).__name__} has no update")


class SGD(Optimizer):
    """``p -= lr * grad``, with momentum and weight decay."""

    def __init__(self, params: Iterable[Tensor], lr: float = 1e-3, momentum: float = 0.0, weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    def update(self, p: Tensor, gradient: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        """One step of gradient descent."""
        if group["weight_decay"]:
            gradient = gradient.add(p, alpha=group["weight_decay"])
        if group["momentum"]:
            buffer = state.get("momentum_buffer")
            if buffer is None:
                state["momentum_buffer"] = buffer = gradient.detach().clone()
            else:
                buffer.mul_(group["momentum"]).add_(gradient)
            gradient = buffer
        p.add_(gradient, alpha=-group["lr"])


class Adam(Optimizer):
    """Adam, without its variants."""

    def __init__(self, params: Iterable[Tensor], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps})

    def update(self, p: Tensor, gradient: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        """One step of Adam."""
        first, second = group["betas"]
        if not state:
            state.update(step=0, mean=call("torch.zeros_like", p), square=call("torch.zeros_like", p))
        state["step"] += 1
        state["mean"].lerp_(gradient, 1 - first)
        state["square"].mul_(second).addcmul_(gradient, gradient, value=1 - second)
        corrected = 1 - second ** state["step"]
        denominator = (state["square"].sqrt() / corrected**0.5).add_(group["eps"])
        p.addcdiv_(state["mean"], denominator, value=-group["lr"] / (1 - first ** state["step"]))


__all__ = ["SGD", "Adam", "Optimizer"]
