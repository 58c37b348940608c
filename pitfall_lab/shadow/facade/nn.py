"""``torch.nn`` for the facade: the modules that small programs are made of, as torch writes them in Python.

In torch: initial weights come from torch's generator; here from NumPy's, with the same bounds.
"""

# ruff: noqa: PLR0917 - the signatures are torch's

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from pitfall_lab.shadow.errors import Absent
from pitfall_lab.shadow.facade.module import Module, ModuleDict, ModuleList, ParameterList, Sequential
from pitfall_lab.shadow.facade.tensors import Namespace, Parameter, Tensor, call, no_grad

functional = Namespace("torch.nn.functional", "torch.nn.functional")
init = Namespace("torch.nn.init", "torch.nn.init")
F = functional


class Linear(Module):
    """``x @ weight.t() + bias``, with a weight of shape (``out_features``, ``in_features``); with ``bias=False``
    without the second term.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, dtype: Any = None) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(call("torch.empty", out_features, in_features, dtype=dtype))
        self.bias = Parameter(call("torch.empty", out_features, dtype=dtype)) if bias else None
        _initialise(self, in_features)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        """Return (..., out_features) for an ``input`` of (..., in_features)."""
        result: Tensor = functional.linear(input, self.weight, self.bias)
        return result

    def extra_repr(self) -> str:
        """Return the numbers of input and output features and whether there is a bias, as the module's ``repr`` shows
        them.
        """
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


def _initialise(module: Any, fan_in: int) -> None:
    """Fill the parameters with random numbers in place, as torch does: this is why the version
    of a new weight is already 1.
    """
    bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
    with no_grad():
        module.weight.uniform_(-bound, bound)
        if module.bias is not None:
            module.bias.uniform_(-bound, bound)


class _Conv(Module):
    """The base class of convolutions in one to three dimensions: one kernel size, stride and padding
    may be given for all dimensions.
    """

    dimensions, function = 2, "conv2d"

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
                 dilation: Any = 1, groups: int = 1, bias: bool = True) -> None:  # fmt: skip
        super().__init__()
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride, self.dilation = (self.each(x) for x in (kernel_size, stride, dilation))
        self.padding = padding if isinstance(padding, str) else self.each(padding)
        self.weight = Parameter(call("torch.empty", out_channels, in_channels // groups, *self.kernel_size))
        self.bias = Parameter(call("torch.empty", out_channels)) if bias else None
        _initialise(self, in_channels // groups * math.prod(self.kernel_size))

    def each(self, value: Any) -> tuple[int, ...]:
        """Return one number per dimension: a single number is repeated, a tuple is returned as it is."""
        return tuple(value) if isinstance(value, tuple | list) else (value,) * self.dimensions

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        """Return (N, out_channels, ...) for an ``input`` of (N, in_channels, ...)."""
        result: Tensor = getattr(functional, self.function)(
            input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups
        )
        return result

    def extra_repr(self) -> str:
        """Return the options that differ from torch's defaults, as the module's ``repr`` shows them."""
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        text += f", padding={self.padding}" if self.padding != self.each(0) else ""
        text += f", dilation={self.dilation}" if self.dilation != self.each(1) else ""
        text += f", groups={self.groups}" if self.groups != 1 else ""
        return text + ("" if self.bias is not None else ", bias=False")


class Conv1d(_Conv):
    """``F.conv1d``."""

    dimensions, function = 1, "conv1d"


class Conv2d(_Conv):
    """``F.conv2d``."""


class Conv3d(_Conv):
    """``F.conv3d``."""

    dimensions, function = 3, "conv3d"


class _BatchNorm(Module):
    """Normalises each channel. In training mode it updates its running statistics without increasing their version.

    The statistics are the batch's in training mode, or with ``track_running_stats=False`` always; else the running
    ones. With ``affine`` each channel has a weight and a bias.
    """

    allowed: tuple[int, ...] = (2, 3)
    running_mean: Any
    running_var: Any
    num_batches_tracked: Any

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True,
                 track_running_stats: bool = True) -> None:  # fmt: skip
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        self.weight = _filled(num_features, 1.0) if affine else None
        self.bias = _filled(num_features, 0.0) if affine else None
        for name, value in (("running_mean", 0.0), ("running_var", 1.0), ("num_batches_tracked", 0)):
            made = call("torch.full", (num_features,) if isinstance(value, float) else (), value)
            self.register_buffer(name, made.fill_(value) if track_running_stats else None)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        """Return the normalised ``input``, of the same shape (N, C, ...).

        Raises ValueError for another number of dimensions than ``allowed``.
        """
        if input.ndim not in self.allowed:
            raise ValueError(f"expected {' or '.join(f'{n}D' for n in self.allowed)} input (got {input.ndim}D input)")
        if self.training and self.track_running_stats:
            self.num_batches_tracked.add_(1)
        batch = self.training or not self.track_running_stats
        result: Tensor = functional.batch_norm(
            input, self.running_mean, self.running_var, self.weight, self.bias, batch, self.momentum, self.eps
        )
        return result

    def extra_repr(self) -> str:
        """Return the options, as the module's ``repr`` shows them."""
        names = ("eps", "momentum", "affine", "track_running_stats")
        return ", ".join([str(self.num_features), *(f"{name}={getattr(self, name)}" for name in names)])


class BatchNorm1d(_BatchNorm):
    """Batch normalisation of an input of shape (N, C) or (N, C, L)."""


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of an input of shape (N, C, H, W)."""

    allowed = (4,)


def _filled(size: Any, value: float) -> Parameter:
    filled = Parameter(call("torch.empty", size))
    with no_grad():
        filled.fill_(value)
    return filled


class LayerNorm(Module):
    """Normalises over the last dimensions, those of ``normalized_shape`` (``eps`` is added to the variance); with
    ``elementwise_affine``, it then multiplies each element of these by a weight and adds a bias.
    """

    def __init__(self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True) -> None:
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self.weight = _filled(self.normalized_shape, 1.0) if elementwise_affine else None
        self.bias = _filled(self.normalized_shape, 0.0) if elementwise_affine else None

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        """Return the normalised ``input``, of the same shape."""
        result: Tensor = functional.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)
        return result

    def extra_repr(self) -> str:
        """Return the options, as the module's ``repr`` shows them."""
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class Embedding(Module):
    """Looks up rows of ``weight``, of shape (``num_embeddings``, ``embedding_dim``), by their numbers.

    The row ``padding_idx`` begins as zeros and gets no gradient. With ``max_norm``, rows with a larger norm are
    rescaled in place when they are looked up.
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, max_norm: float | None = None
    ) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim, self.padding_idx, self.max_norm = (
            num_embeddings,
            embedding_dim,
            padding_idx,
            max_norm,
        )
        self.weight = Parameter(call("torch.empty", num_embeddings, embedding_dim))
        with no_grad():
            self.weight.normal_()
            if padding_idx is not None:
                call("torch.Tensor.__getitem__", self.weight, padding_idx).fill_(0)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        """Return the rows for integers of shape (...,), as a tensor of shape (..., embedding_dim)."""
        result: Tensor = functional.embedding(input, self.weight, self.padding_idx, self.max_norm)
        return result

    def extra_repr(self) -> str:
        """Return the number of rows, their length and the options that are set, as the module's ``repr`` shows them."""
        options = "".join(
            f", {name}={value}" for name in ("padding_idx", "max_norm") if (value := getattr(self, name)) is not None
        )
        return f"{self.num_embeddings}, {self.embedding_dim}{options}"


class DataParallel(Module):
    """Calls the module inside it, as torch does on a machine without a GPU."""

    def __init__(self, module: Module) -> None:
        super().__init__()
        self.device_ids: list[int] = []
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the result of the module inside."""
        return self.module(*args, **kwargs)


class Identity(Module):
    """A module that returns its input: the same object, not a copy."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        """Return ``input`` itself."""
        return input


class Flatten(Module):
    """Joins the dimensions from ``start_dim`` to ``end_dim`` into one; by default all but the
    first, as in ``input.flatten(1)``.
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.dims = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        """Return ``input.flatten(start_dim, end_dim)``: by default (N, product of the other sizes)
        for an ``input`` of (N, ...).
        """
        result: Tensor = input.flatten(*self.dims)
        return result

    def extra_repr(self) -> str:
        """Return the first and the last joined dimension, as the module's ``repr`` shows them."""
        return "start_dim={}, end_dim={}".format(*self.dims)


class _Activation(Module):
    """The base class of activation modules: calls one function with the options given at construction."""

    function: Callable[..., Tensor]

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = {k: v for k, v in options.items() if v is not False}

    def forward(self, *tensors: Tensor) -> Tensor:
        """Return the function of the input."""
        return type(self).function(*tensors, **self.options)

    def extra_repr(self) -> str:
        """Return the options given at construction, as the module's ``repr`` shows them."""
        return ", ".join(f"{name}={value}" for name, value in self.options.items())


def _activation(name: str, function: str, *positional: str) -> type[_Activation]:
    def __init__(self: _Activation, *args: Any, **options: Any) -> None:  # noqa: N807 - becomes the method
        _Activation.__init__(self, **dict(zip(positional, args, strict=False)), **options)

    return type(
        name,
        (_Activation,),
        {
            "__init__": __init__,
            "function": staticmethod(getattr(functional, function)),
            "__doc__": f"``F.{function}``.",
        },
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


MaxPool1d = _activation("MaxPool1d", "max_pool1d", "kernel_size", "stride", "padding")
MaxPool2d = _activation("MaxPool2d", "max_pool2d", "kernel_size", "stride", "padding")
AvgPool2d = _activation("AvgPool2d", "avg_pool2d", "kernel_size", "stride", "padding")
AdaptiveAvgPool2d = _activation("AdaptiveAvgPool2d", "adaptive_avg_pool2d", "output_size")
Softplus = _activation("Softplus", "softplus")
HuberLoss = _activation("HuberLoss", "huber_loss")
KLDivLoss = _activation("KLDivLoss", "kl_div")


class Dropout(Module):
    """Sets elements to zero with probability ``p`` in training mode, and multiplies the others by 1 / (1 - p); in
    evaluation mode it returns its input, the same object.

    With ``inplace`` it writes its input.
    """

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        self.p, self.inplace = p, inplace

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        """Return ``F.dropout`` of the input."""
        result: Tensor = functional.dropout(input, self.p, self.training, self.inplace)
        return result

    def extra_repr(self) -> str:
        """Return the probability, as the module's ``repr`` shows it."""
        return f"p={self.p}, inplace={self.inplace}"


class utils:  # noqa: N801 - torch's name
    """``torch.nn.utils``."""

    @staticmethod
    def clip_grad_norm_(parameters: Any, max_norm: float) -> Tensor:
        """Scale the gradients in place so that their common Euclidean norm is at most ``max_norm``; return the norm
        that the gradients had before.

        Parameters without a gradient are left out; all others are written even if nothing changes. Raises RuntimeError
        if no parameter has a gradient.
        """
        given = [parameters] if isinstance(parameters, Tensor) else parameters
        gradients: list[Any] = [p.grad for p in given if p.shadow.gradient is not None]
        with no_grad():
            total = call("torch.stack", [g.norm() for g in gradients]).norm()
            scale = (max_norm / (total + 1e-6)).clamp(max=1.0)
            for g in gradients:
                g.mul_(scale)
        result: Tensor = total
        return result


class parameter:  # noqa: N801 - torch's name
    """``torch.nn.parameter``."""

    Parameter = Parameter


__all__ = [
    "F", "Flatten", "Identity", "Linear", "Module", "ModuleDict", "ModuleList", "Parameter", "ParameterList",
    "Sequential", "functional", "init", "parameter", "utils",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Raise an error that names the class of ``torch.nn`` that the shadow engine does not have."""
    raise Absent(f"the shadow engine has no torch.nn.{name}")
