"""Writes: fill_, zero_, copy_, random fills; and setting attributes of a tensor (requires_grad, grad)."""

# ruff: noqa: ARG001, ARG005, D103 - signatures and names are torch's; every vjp takes (g, s); what an entry does is its torch name

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pitfall_lab.shadow import errors
from pitfall_lab.shadow.dtypes import BOOL, FLOAT64, INT64, DType
from pitfall_lab.shadow.engine import Engine
from pitfall_lab.shadow.errors import ShadowError, Unmodelled, no_kernel, runtime
from pitfall_lab.shadow.gradient import converted, without_imaginary, zeros_like
from pitfall_lab.shadow.layout import preserved
from pitfall_lab.shadow.memory_format import strides, suggests
from pitfall_lab.shadow.ops.building import (
    NUMBERS,
    OpRule,
    as_shape,
    broadcast,
    check_history,
    check_overlap,
    decline_overlap,
    in_place,
    no_room_to_fill,
    pure,
    refusing,
    tensor_only,
)
from pitfall_lab.shadow.registry import add, op
from pitfall_lab.shadow.storage import ShadowTensor, contiguous_strides

SCALAR_OF_A_GRADIENT = (
    "Converting a tensor with requires_grad=True to a scalar may lead to unexpected behavior.\n"
    "Consider using tensor.detach() first."
)
ZERO = OpRule("ZeroBackward0", np.zeros_like, (), lambda g, s: (zeros_like(g),))
COPY = OpRule("CopyBackwards", lambda a, b: b, (), lambda g, s: (np.zeros_like(g, order="C"), g))


def _fill_rule(value: Any) -> OpRule:
    return OpRule(
        "FillBackward2", lambda a: np.asarray(value).astype(a.dtype), (), lambda g, s: (zeros_like(g),), edges=1
    )


@op(".zero_", "torch.zero_", kind="inplace", samples=("h.zero_()", "h[0].zero_()", "p.zero_()"))
def zero_(e: Engine, self: Any) -> ShadowTensor:
    return in_place(e, ZERO, (self,), elementwise=False, overwrites=True)


@op(".fill_", "torch.fill_", kind="inplace", samples=("h.fill_(2)", "h[0].fill_(2.5)", "p.fill_(1)"))
def fill_(e: Engine, self: Any, value: Any) -> ShadowTensor:
    if isinstance(value, ShadowTensor):
        if value.ndim:
            raise runtime(
                f"fill_ only supports 0-dimension value tensor but got tensor with {value.ndim} dimensions.", "shape"
            )
        e.graph.check_inplace(self, e.grad_enabled and (self.requires_grad or value.requires_grad))
        check_history(e, self, value)
        check_overlap(self)
        rule = OpRule("FillBackward3", lambda a, v: v.astype(a.dtype), (), lambda g, s: (zeros_like(g), g.sum()))
        return in_place(e, rule, (self, value), elementwise=False, overwrites=True)
    if not isinstance(value, NUMBERS):
        raise Unmodelled("fill_ with something that is not a number or a 0-dim tensor")
    refused = no_room_to_fill(self.dtype, value, self.numel)
    return in_place(e, refusing(_fill_rule(value), refused), (self,), elementwise=False, overwrites=True)


@op(
    ".copy_",
    kind="inplace",
    samples=("h.copy_(b)", "h.copy_(c)", "h[0].copy_(c)", "p.copy_(a)", "n.copy_(p)", "h.copy_(h)"),
    traits=("elementwise",),
)
def copy_(e: Engine, self: Any, src: Any, non_blocking: bool = False) -> ShadowTensor:
    tensor_only(self, src)
    e.graph.check_inplace(
        self, e.grad_enabled and self.dtype.category > 1 and (self.requires_grad or src.requires_grad)
    )
    check_history(e, self, src)
    if src is self or _same_place(self, src):
        # Copied onto itself: no check and no copy, but version and grad_fn change.
        return in_place(e, COPY, (self, src), elementwise=False, overwrites=True)
    check_overlap(self, (src,))
    _fits(self, src)
    decline_overlap(self, src)
    return in_place(e, COPY, (self, src), elementwise=False, overwrites=True)


def _same_place(a: ShadowTensor, b: ShadowTensor) -> bool:
    """Whether two windows are the same elements in the same order."""
    return a.storage is b.storage and (a.offset, a.shape, a.stride, a.dtype) == (b.offset, b.shape, b.stride, b.dtype)


def _fits(self: ShadowTensor, src: ShadowTensor) -> None:
    """Raise torch's error unless ``src`` broadcasts to the shape of ``self``."""
    extra = len(src.shape) - self.ndim
    if extra > 0:
        raise runtime(
            f"output with shape {list(self.shape)} doesn't match the broadcast shape "
            f"{list(broadcast(self.shape, src.shape))}",
            "shape",
            tensor=self,
        )
    shape = broadcast(self.shape, src.shape)
    if shape != self.shape:
        raise runtime(
            f"output with shape {list(self.shape)} doesn't match the broadcast shape {list(shape)}",
            "shape",
            tensor=self,
        )


def _random_fill(name: str, node: str, kernel: str | None, draw: Any) -> None:
    def run(e: Engine, self: Any, *parameters: Any, generator: Any = None, **named: Any) -> ShadowTensor:
        tensor_only(self)
        if any(isinstance(p, ShadowTensor) for p in parameters):
            raise Unmodelled(f"{name} with a tensor as parameter of the distribution")
        if kernel is None and self.dtype.category < 2:
            raise Unmodelled(f"{name} on an integer or bool tensor")
        if kernel and self.dtype.category < 2:
            raise no_kernel(kernel, self.dtype.scalar_name)
        values = None if e.random is None or named else draw(e.random, self.shape, *parameters)
        rule = OpRule(node, lambda a: values if values is not None else a, (), lambda g, s: (zeros_like(g),))
        result = in_place(e, rule, (self,), elementwise=False, overwrites=True, separate=True)
        if values is None:
            result.storage.data = None
        return result

    add(f".{name}", run, "inplace")


_random_fill(
    "normal_", "NormalBackward0", "normal_kernel_cpu", lambda r, shape, mean=0.0, std=1.0: r.normal(mean, std, shape)
)
_random_fill(
    "uniform_",
    "UniformBackward0",
    "check_uniform_bounds",
    lambda r, shape, low=0.0, high=1.0: r.uniform(low, high, shape),
)
_random_fill("bernoulli_", "BernoulliBackward2", "", lambda r, shape, p=0.5: r.random(shape) < p)
_random_fill("exponential_", "ExponentialBackward0", None, lambda r, shape, lambd=1.0: r.exponential(1 / lambd, shape))
_random_fill("geometric_", "GeometricBackward0", "", lambda r, shape, p: r.geometric(p, shape))
_random_fill(
    "log_normal_",
    "LogNormalBackward0",
    "log_normal_cpu",
    lambda r, shape, mean=1.0, std=2.0: r.lognormal(mean, std, shape),
)
_random_fill(
    "cauchy_",
    "CauchyBackward0",
    None,
    lambda r, shape, median=0.0, sigma=1.0: median + sigma * r.standard_cauchy(shape),
)


def _init(name: str, value: Any = None) -> None:
    """Register ``nn.init.<name>``: an in-place fill under no_grad.

    In lockstep the values of a random fill are unknown; stand-alone they are small normal
    numbers, whatever the distribution.
    """

    def run(e: Engine, tensor: Any, *parameters: Any, **named: Any) -> ShadowTensor:
        tensor_only(tensor)
        if name.startswith("kaiming") and 0 in tensor.shape:
            answer: ShadowTensor = tensor  # torch warns, and writes nothing
            return answer
        before = e.grad_enabled
        e.grad_enabled = False
        try:
            if value is not None or name == "constant_":
                return fill_(e, tensor, value if value is not None else (*parameters, *named.values())[0])
            result = in_place(e, OpRule("", lambda a: a), (tensor,), elementwise=False, separate=True)
        finally:
            e.grad_enabled = before
        result.storage.data = (
            None
            if e.random is None
            else (e.random.standard_normal(result.storage.size) * 0.1).astype(result.dtype.numpy)
        )
        return result

    add(f"torch.nn.init.{name}", run, "inplace", traits=("unchecked",))


# Not trunc_normal_: it draws again until all numbers fit, and how often it writes is a matter of luck.
for _init_name in ("uniform_", "normal_", "kaiming_uniform_", "kaiming_normal_", "xavier_uniform_", "xavier_normal_"):
    _init(_init_name)
_init("zeros_", 0.0)
_init("ones_", 1.0)
_init("constant_")


# -- requires_grad, grad and other attributes


@op(".requires_grad_", kind="other")
def requires_grad_(e: Engine, self: Any, requires_grad: bool = True) -> ShadowTensor:
    tensor_only(self)
    if requires_grad and self.dtype.category < 2:
        raise runtime("only Tensors of floating point dtype can require gradients", "dtype", tensor=self)
    _set_flag(e, self, bool(requires_grad))
    result: ShadowTensor = self
    return result


def _set_flag(e: Engine, self: ShadowTensor, value: bool) -> None:
    if self.received and value:
        raise Unmodelled("requires_grad_() on a tensor returned by autograd.grad: whether it is a view is not modelled")
    if self.inference and value and not e.inference:
        raise runtime(errors.INFERENCE_FLAG, "inference-tensor", tensor=self)
    if not self.is_leaf and not value and e.policy.non_leaf_flag_can_be_cleared:
        self.node = None
    elif not self.is_leaf and not value:
        text = errors.NONLEAF_FLAG + (
            " If you want to use a computed variable in a subgraph that doesn't require differentiation use "
            "var_no_grad = var.detach()."
        )
        raise runtime(text, tensor=self)
    self.flag = value if self.is_leaf else self.flag


@op(".requires_grad.__set__", kind="other")
def set_requires_grad(e: Engine, self: Any, value: Any) -> None:
    tensor_only(self)
    if not self.is_leaf and value:
        raise runtime(errors.NONLEAF_FLAG, tensor=self)
    if value and self.dtype.category < 2:
        raise runtime("only Tensors of floating point and complex dtype can require gradients", "dtype", tensor=self)
    _set_flag(e, self, bool(value))


@op(".detach_", "torch.detach_", kind="inplace", traits=("unchecked",))
def detach_(e: Engine, self: Any) -> ShadowTensor:
    tensor_only(self)
    if e.inference or self.inference:  # autograd, which does it, is left out
        result: ShadowTensor = self
        return result
    if self.view is not None:
        raise runtime(errors.DETACH_VIEW, tensor=self)
    if self.received:
        raise Unmodelled("detach_() on a tensor returned by autograd.grad: whether it is a view is not modelled")
    self.node, self.flag, self.output_nr = None, False, 0
    answer: ShadowTensor = self
    return answer


@op(".grad.__get__", kind="other")
def get_grad(e: Engine, self: Any) -> ShadowTensor | None:
    tensor_only(self)
    result: ShadowTensor | None = self.gradient
    return result


@op(".grad.__set__", kind="other")
def set_grad(e: Engine, self: Any, value: Any) -> None:
    tensor_only(self)
    if value is None:
        self.gradient = None
        return
    if not isinstance(value, ShadowTensor):
        raise Unmodelled("assigning something that is not a tensor to .grad")
    if value is self:
        raise runtime("can't assign Variable as its own grad")
    if value.dtype != self.dtype:
        text = (
            f"attempting to assign a gradient with dtype '{value.dtype.c_name}' to a tensor with grad_dtype "
            f"'{self.dtype.scalar_name}'. The gradient must match the tensor's grad_dtype (defaults to the tensor's "
            "dtype). You can set the tensor's grad_dtype attribute with a specific dtype, or None to allow any "
            "dtype. Set grad_dtype with caution. Diverging the dtypes of a tensor and its gradient may break "
            "downstream systems that assume they match."
        )
        raise runtime(text, "dtype", tensor=self)
    if value.shape != self.shape:
        text = (
            f"attempting to assign a gradient of size '{list(value.shape)}' to a tensor of size '{list(self.shape)}'. "
            "Please ensure that the gradient and the tensor are the same size"
        )
        raise runtime(text, "shape", tensor=self)
    self.gradient = value


@op(".grad.__delete__", kind="other")
def delete_grad(e: Engine, self: Any) -> None:
    tensor_only(self)
    self.gradient = None


@op(".set_", kind="inplace", samples=("p.set_(torch.ones(2))", "a.set_(torch.ones(2))"), traits=("unchecked",))
def set_(e: Engine, self: Any, source: Any) -> ShadowTensor:
    """``set_``: take over another tensor's storage and strides; the version counter stays, and is increased.

    Raises ``Unmodelled``, among others, for views, tensors that require grad (unless grad mode is off), inference
    tensors outside of inference mode, and a source of another dtype; ``ShadowError`` (torch's error) where autograd
    refuses a write.
    """
    tensor_only(self, source)
    if self.dtype != source.dtype:
        raise Unmodelled("set_ to a source of another dtype")
    recording = e.grad_enabled and (self.requires_grad or source.requires_grad)
    e.graph.check_inplace(self, recording)
    if recording or self.view is not None:
        raise Unmodelled("set_ on a view, or with a tensor that requires grad")
    if self.inference and not e.inference:
        raise Unmodelled("set_ on an inference tensor outside inference_mode")
    self.storage, self.offset, self.shape, self.stride = source.storage, source.offset, source.shape, source.stride
    if not e.inference:
        self.accumulator = None
    e.graph.bump(self.counter)
    result: ShadowTensor = self
    return result


@op(
    ".resize_",
    kind="inplace",
    samples=("p.resize_(2, 3)", "p.resize_(2)", "h.resize_(4)"),
    traits=("deterministic", "unchecked"),
)
def resize_(e: Engine, self: Any, *size: Any) -> ShadowTensor:
    """Give the tensor another shape (row-major, on the same memory) and return it; the same size changes nothing and
    does not increase the version.

    Where the memory is too small, it grows, and the values become unknown. Raises ``ShadowError`` (torch's error) for a
    tensor that requires grad, and ``Unmodelled``, among others, in inference mode, for inference tensors, and where
    memory that a NumPy array shares, or that of a tensor without dimensions, would have to grow.
    """
    tensor_only(self)
    if e.inference:
        raise Unmodelled("resize_ inside inference_mode")
    if self.requires_grad and not self.inference:
        raise runtime("cannot resize variables that require grad", tensor=self)
    wanted = as_shape(size)
    if wanted == self.shape:
        result: ShadowTensor = self
        return result
    need = self.offset + math.prod(wanted)
    if self.inference or (need > self.storage.size and (not self.ndim or self.storage.shared)):
        raise Unmodelled("resize_ of an inference tensor, or beyond a storage that a NumPy array shares")
    if need > self.storage.size:
        self.storage.size, self.storage.data = need, None  # the values of uninitialised memory are unknown
    self.shape, self.stride = wanted, contiguous_strides(wanted)
    e.graph.bump(self.counter)
    answer: ShadowTensor = self
    return answer


@op(".share_memory_", kind="other")
def share_memory_(e: Engine, self: Any) -> ShadowTensor:
    tensor_only(self)
    if self.storage.shared:
        raise Unmodelled("resize_ that reallocates memory which a NumPy array shares")
    result: ShadowTensor = self
    return result


@op("torch.autograd.graph.increment_version", kind="other")
def increment_version(e: Engine, tensor: Any) -> None:
    tensor_only(tensor)
    e.graph.bump(tensor.counter)


# -- conversion to Python


def _number(e: Engine, self: Any) -> Any:
    tensor_only(self)
    if self.numel != 1:
        raise runtime(f"a Tensor with {self.numel} elements cannot be converted to Scalar", "shape", tensor=self)
    seen = self.window()
    if seen is None:
        raise Unmodelled("a value that is not modelled")
    return seen.reshape(-1)[0].item()


@op(".item", kind="other", samples=("a.sum().item()", "n[0].item()"))
def item(e: Engine, self: Any) -> Any:
    return self if e.policy.item_keeps_graph else _number(e, self)


def _one_number(e: Engine, self: Any) -> Any:
    """The value of a one-element tensor for ``int(tensor)`` and ``float(tensor)``; ``item`` has another error message
    for other tensors, for which this raises.
    """
    tensor_only(self)
    if self.numel != 1:
        raise ShadowError(
            "ValueError", "only one element tensors can be converted to Python scalars", "shape", tensor=self
        )
    return _number(e, self)


@op(".__float__", kind="other", samples=("float(a.sum())", "float(a)"))
def to_float(e: Engine, self: Any) -> float:
    if e.grad_enabled and isinstance(self, ShadowTensor) and self.requires_grad:
        e.warnings.append(SCALAR_OF_A_GRADIENT)
    return float(_one_number(e, self))


@op(".__int__", kind="other", samples=("int(a.sum())", "int(a)"))
def to_int(e: Engine, self: Any) -> int:
    return int(_one_number(e, self))


@op(".__index__", kind="other", samples=("n[0].__index__()", "n.__index__()", "a.sum().__index__()"))
def to_index(e: Engine, self: Any) -> int:
    tensor_only(self)
    if self.numel != 1 or self.dtype.is_floating_point or self.dtype.is_complex:
        raise ShadowError(
            "TypeError", "only integer tensors of a single element can be converted to an index", "shape", tensor=self
        )
    return int(_number(e, self))


@op(".__bool__", kind="other")
def to_bool(e: Engine, self: Any) -> bool:
    tensor_only(self)
    if self.numel != 1:
        word = "no values" if self.numel == 0 else "more than one value"
        raise runtime(f"Boolean value of Tensor with {word} is ambiguous", "shape", tensor=self)
    return bool(_number(e, self))


@op(".tolist", kind="other", samples=("a.tolist()",))
def tolist(e: Engine, self: Any) -> Any:
    tensor_only(self)
    seen = self.window()
    if seen is None:
        raise Unmodelled("values that are not modelled")
    return seen.tolist()


# -- changing the element type


def cast(e: Engine, self: ShadowTensor, dtype: DType, copy: bool = False, memory_format: Any = None) -> ShadowTensor:
    """``Tensor.to(dtype)``: a converted copy; without ``copy``, the tensor itself if it has the dtype and
    the ``memory_format`` already.
    """
    keeps = memory_format is None or "preserve" in str(memory_format)
    if self.dtype == dtype and not (copy or e.policy.to_always_copies) and (keeps or suggests(self, memory_format)):
        return self
    source = self.dtype
    rule = OpRule(
        "ToCopyBackward0",
        lambda a: without_imaginary(a, dtype.numpy).astype(dtype.numpy),
        (),
        lambda g, s: (converted(g, source.numpy),),
    )
    result = pure(
        e, rule, (self,), self.shape, dtype, stride=preserved(self) if keeps else strides(self.shape, memory_format)
    )
    if self.inference and result.counter is not None:
        result.counter.version = 1  # torch copies into new memory, which is counted where autograd does not look
    return result


@op(
    ".to",
    kind="pure",
    samples=(
        "a.to(torch.float64)",
        "a.to(torch.float32)",
        "n.to(torch.float32)",
        "a.to('cpu')",
        "a.t().to(torch.float64)",
        "img.to(memory_format=torch.channels_last)",
        "cl.to(torch.float64)",
        "cl.to(memory_format=torch.channels_last)",
        "img.to(torch.float64, memory_format=torch.channels_last)",
    ),
    traits=("fresh",),
)
def to(e: Engine, self: Any, *args: Any, dtype: Any = None, device: Any = None, non_blocking: bool = False,
       copy: bool = False, memory_format: Any = None) -> ShadowTensor:  # fmt: skip
    tensor_only(self)
    for a in args:
        if isinstance(a, DType):
            dtype = a
        elif isinstance(a, ShadowTensor):
            dtype = a.dtype
        elif isinstance(a, str):
            device = a
        elif isinstance(a, bool) or a is None:
            continue  # non_blocking, or nothing: as Module.to calls it
        else:
            raise Unmodelled(f"to({a!r})")
    if device is not None and str(device).split(":")[0] != "cpu":
        raise Unmodelled(f"to({device})")
    return cast(e, self, DType(dtype) if dtype is not None else self.dtype, copy, memory_format)


def _cast_method(name: str, dtype: DType) -> None:
    def run(e: Engine, self: Any) -> ShadowTensor:
        tensor_only(self)
        return cast(e, self, dtype)

    add(f".{name}", run, samples=(f"a.{name}()", f"n.{name}()"), traits=("fresh",))


for _name, _dtype in {
    "float": DType("float32"),
    "double": FLOAT64,
    "half": DType("float16"),
    "long": INT64,
    "int": DType("int32"),
    "bool": BOOL,
}.items():
    _cast_method(_name, _dtype)


@op(".cpu", kind="other", samples=("a.cpu()",))
def cpu(e: Engine, self: Any) -> ShadowTensor:
    tensor_only(self)
    result: ShadowTensor = self
    return result


@op(".type_as", samples=("a.type_as(b)", "a.type_as(n)"), traits=("fresh",))
def type_as(e: Engine, self: Any, other: Any) -> ShadowTensor:
    tensor_only(self, other)
    return cast(e, self, other.dtype)
