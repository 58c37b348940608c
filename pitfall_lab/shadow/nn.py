"""``torch.nn`` for the facade: the few modules that small programs are made of, as torch writes them in Python.

In torch: initial weights come from torch's generator; here from NumPy's, with the same bounds.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from pitfall_lab.shadow.facade import Namespace, Parameter, Tensor, call, engine, no_grad

functional = Namespace("torch.nn.functional", "torch.nn.functional")
init = Namespace("torch.nn.init", "torch.nn.init")
F = functional


class Module:
    """Parameters, buffers and children are whatever is assigned as an attribute."""

    training = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call :meth:`forward`."""
        if not self.training and engine().policy.eval_stops_gradients:
            with no_grad():
                return self.forward(*args, **kwargs)
        return self.forward(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes."""
        raise AttributeError(f"{type(self).__name__} has no forward")

    def children(self) -> Iterator[Module]:
        """The modules right below."""
        for value in vars(self).values():
            if isinstance(value, Module):
                yield value

    def modules(self) -> Iterator[Module]:
        """This module and all below."""
        yield self
        for child in self.children():
            yield from child.modules()

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
        """All parameters with their dotted names."""
        kind = Tensor if engine().policy.tensor_attributes_are_parameters else Parameter
        for name, value in vars(self).items():
            if isinstance(value, kind):
                yield f"{prefix}{name}", value
        for name, value in vars(self).items():
            if isinstance(value, Module):
                yield from value.named_parameters(f"{prefix}{name}.")

    def parameters(self) -> Iterator[Tensor]:
        """All parameters."""
        for _, value in self.named_parameters():
            yield value

    def state_dict(self) -> dict[str, Tensor]:
        """The parameters as detached aliases: they follow the weights."""
        return {name: value.detach() for name, value in self.named_parameters()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Copy values in place into the parameters."""
        with no_grad():
            for name, value in self.named_parameters():
                value.copy_(state[name])

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop (or zero) all gradients."""
        _zero(self.parameters(), set_to_none)

    def train(self, mode: bool = True) -> Module:
        """Switch to training mode."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Module:
        """Switch to evaluation mode."""
        return self.train(mode=False)


def _zero(parameters: Iterator[Tensor], set_to_none: bool) -> None:
    for p in parameters:
        if p.shadow.gradient is None:
            continue
        if set_to_none and not engine().policy.zero_grad_leaves_zeros:
            p.grad = None
        else:
            gradient = p.grad
            assert gradient is not None
            gradient.detach_()
            gradient.zero_()


class Linear(Module):
    """``x @ weight.t() + bias``."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        bound = 1 / math.sqrt(in_features) if in_features else 0.0
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(call("torch.empty", out_features, in_features))
        self.bias = Parameter(call("torch.empty", out_features)) if bias else None
        with no_grad():
            # The initialisation is an in-place fill: a fresh weight already has version 1.
            self.weight.uniform_(-bound, bound)
            if self.bias is not None:
                self.bias.uniform_(-bound, bound)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        """(N, in_features) to (N, out_features)."""
        return functional.linear(input, self.weight, self.bias)


class Sequential(Module):
    """One module after the other."""

    def __init__(self, *modules: Module) -> None:
        self.steps = list(modules)
        for k, module in enumerate(modules):
            setattr(self, str(k), module)

    def __getitem__(self, index: int) -> Module:
        return self.steps[index]

    def __iter__(self) -> Iterator[Module]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def forward(self, input: Any) -> Any:  # noqa: A002 - torch's name
        """Pass the input through all."""
        for module in self.steps:
            input = module(input)  # noqa: A001 - torch's name
        return input


class Identity(Module):
    """Returns its input: the very object."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        """The input."""
        return input


class Flatten(Module):
    """``input.flatten(1)``."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.dims = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        """(N, ...) to (N, product)."""
        return input.flatten(*self.dims)


class _Activation(Module):
    """A function with fixed options."""

    function: Callable[..., Tensor]

    def __init__(self, **options: Any) -> None:
        self.options = {k: v for k, v in options.items() if v is not False}

    def forward(self, *tensors: Tensor) -> Tensor:
        """Apply the function."""
        return type(self).function(*tensors, **self.options)


def _activation(name: str, function: str, *positional: str) -> type[_Activation]:
    def __init__(self: _Activation, *args: Any, **options: Any) -> None:  # noqa: N807 - becomes the method
        _Activation.__init__(self, **dict(zip(positional, args, strict=False)), **options)

    return type(
        name,
        (_Activation,),
        {"__init__": __init__, "function": staticmethod(getattr(functional, function)), "__doc__": f"``F.{function}``."},
    )


ReLU = _activation("ReLU", "relu", "inplace")
LeakyReLU = _activation("LeakyReLU", "leaky_relu", "negative_slope", "inplace")
ELU = _activation("ELU", "elu", "alpha", "inplace")
SiLU = _activation("SiLU", "silu", "inplace")
GELU = _activation("GELU", "gelu")
Sigmoid = _activation("Sigmoid", "sigmoid")
Tanh = _activation("Tanh", "tanh")
Softmax = _activation("Softmax", "softmax", "dim")
LogSoftmax = _activation("LogSoftmax", "log_softmax", "dim")
MSELoss = _activation("MSELoss", "mse_loss")
L1Loss = _activation("L1Loss", "l1_loss")
SmoothL1Loss = _activation("SmoothL1Loss", "smooth_l1_loss")
CrossEntropyLoss = _activation("CrossEntropyLoss", "cross_entropy")
NLLLoss = _activation("NLLLoss", "nll_loss")
BCELoss = _activation("BCELoss", "binary_cross_entropy")
BCEWithLogitsLoss = _activation("BCEWithLogitsLoss", "binary_cross_entropy_with_logits")


class Dropout(Module):
    """Random zeros in training; in evaluation the very input."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        self.p, self.inplace = p, inplace

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        """Apply F.dropout."""
        return functional.dropout(input, self.p, self.training, self.inplace)


class utils:  # noqa: N801 - torch's name
    """``torch.nn.utils``."""

    @staticmethod
    def clip_grad_norm_(parameters: Any, max_norm: float) -> Tensor:
        """Scale the gradients in place so that their common norm is at most ``max_norm``."""
        given = [parameters] if isinstance(parameters, Tensor) else parameters
        gradients: list[Any] = [p.grad for p in given if p.shadow.gradient is not None]
        with no_grad():
            total = call("torch.stack", [g.norm() for g in gradients]).norm()
            scale = (max_norm / (total + 1e-6)).clamp(max=1.0)
            for g in gradients:
                g.mul_(scale)
        return total


class parameter:  # noqa: N801 - torch's name
    """``torch.nn.parameter``."""

    Parameter = Parameter


__all__ = ["F", "Flatten", "Identity", "Linear", "Module", "Parameter", "Sequential", "functional", "init", "parameter", "utils"]
