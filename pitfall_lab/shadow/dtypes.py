"""Torch's dtypes: their names, the corresponding NumPy dtypes, and type promotion.

Source: torch documentation, "Tensor Attributes", and ``c10/core/ScalarType.h``. bfloat16 and the quantized types
have no NumPy counterpart: tensors of these dtypes are modelled without values.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import numpy as np


class DType(str):
    """A dtype as a string: its name without ``torch.`` in front.

    >>> DType("float32") == "float32", repr(DType("float32"))
    (True, 'torch.float32')
    """

    __slots__ = ()

    def __new__(cls, name: str) -> Self:
        """Take a name, with or without ``torch.``, or another DType."""
        return name if type(name) is cls else super().__new__(cls, str(name).removeprefix("torch."))

    def __repr__(self) -> str:
        return f"torch.{self[:]}"

    __str__ = __repr__
    __hash__ = str.__hash__

    @property
    def category(self) -> int:
        """0 bool, 1 integer, 2 floating point (also float8 and quantized types), 3 complex:
        promotion compares these first.
        """
        return _CATEGORY.get(self[:], 2)

    @property
    def is_floating_point(self) -> bool:
        """Whether the dtype is a real floating-point one."""
        return self.category == 2

    @property
    def is_complex(self) -> bool:
        """Whether the dtype is complex."""
        return self.category == 3

    @property
    def numpy(self) -> np.dtype[Any] | None:
        """Return the corresponding NumPy dtype; None if there is none (bfloat16, float8,
        complex32 and the quantized types).
        """
        return _NUMPY.get(self[:])

    @property
    def itemsize(self) -> int:
        """Return the number of bytes per element; 2 for every quantized type, whatever its size."""
        numpy_dtype = self.numpy
        return (
            numpy_dtype.itemsize
            if numpy_dtype is not None
            else 4
            if self == "complex32"
            else 1
            if self.startswith("float8")
            else 2
        )

    @property
    def scalar_name(self) -> str:
        """Return the word for the dtype in torch's messages: ``Float``, ``Long``, ``BFloat16`` ..."""
        return _SCALAR.get(self[:], self[:])

    @property
    def c_name(self) -> str:
        """Return the C++ type for the dtype, which some messages name: ``long int``, ``c10::Half`` ..."""
        return _C_NAME.get(self[:], self[:])


class Device(str):
    """A device such as ``cpu``; the shadow models the CPU."""

    __slots__ = ()

    @property
    def type(self) -> str:
        """Return the device type without the index: ``cuda`` for ``cuda:0``."""
        return self.split(":")[0]


CPU = Device("cpu")
FLOAT32, FLOAT64, INT64, BOOL = DType("float32"), DType("float64"), DType("int64"), DType("bool")

_INTEGERS = ("uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64")
_FLOATS = ("float16", "bfloat16", "float32", "float64")
_COMPLEX = ("complex64", "complex128")
_CATEGORY = (
    {"bool": 0} | dict.fromkeys(_INTEGERS, 1) | dict.fromkeys(_FLOATS, 2) | dict.fromkeys((*_COMPLEX, "complex32"), 3)
)
_NUMPY = {name: np.dtype(name) for name in ("bool", *_INTEGERS, "float16", "float32", "float64", *_COMPLEX)}
_C_NAME = {
    "float32": "float", "float64": "double", "float16": "c10::Half", "bfloat16": "c10::BFloat16", "int64": "long int",
    "int32": "int", "int16": "short int", "int8": "signed char", "uint8": "unsigned char",
    "complex64": "c10::complex<float>", "complex128": "c10::complex<double>",
}  # fmt: skip
_SCALAR = {
    "bool": "Bool", "uint8": "Byte", "int8": "Char", "int16": "Short", "int32": "Int", "int64": "Long",
    "float16": "Half", "bfloat16": "BFloat16", "float32": "Float", "float64": "Double", "complex64": "ComplexFloat",
    "complex128": "ComplexDouble", "complex32": "ComplexHalf", "uint16": "UInt16", "uint32": "UInt32",
    "uint64": "UInt64", "float8_e4m3fn": "Float8_e4m3fn", "float8_e5m2": "Float8_e5m2",
}  # fmt: skip
_TYPED = {"Byte", "Char", "Short", "Int", "Long", "Half", "Float", "Double"}
_COMPLEX_OF = {
    "float16": DType("complex32"),
    "bfloat16": DType("complex64"),
    "float32": DType("complex64"),
    "float64": DType("complex128"),
}
_ALONE = frozenset({"uint16", "uint32", "uint64", "complex32", "float8_e4m3fn", "float8_e5m2"})
"""Dtypes that torch promotes with few others; their promotion is not modelled."""
_default = FLOAT32


def default_float() -> DType:
    """The default floating point dtype; each engine sets its own before a call (``torch.set_default_dtype``)."""
    return _default


def set_default_float(dtype: DType) -> None:
    """Make ``dtype`` the default floating point dtype."""
    global _default  # noqa: PLW0603 - torch's own is one for the whole process
    _default = dtype


def type_name(dtype: DType) -> str:
    """The class name of tensors of a dtype in error messages: ``torch.FloatTensor`` for the dtypes that have such a
    class, ``CPUBoolType`` and the like for the others.
    """
    scalar = dtype.scalar_name
    return f"torch.{scalar}Tensor" if scalar in _TYPED else f"CPU{scalar}Type"


def from_numpy(dtype: np.dtype[Any]) -> DType:
    """The torch dtype of a NumPy dtype; raises TypeError when torch has none."""
    if dtype.name not in _NUMPY:
        raise TypeError(f"can't convert np.ndarray of type {dtype}.")
    return DType(dtype.name)


def of_number(value: complex) -> DType:
    """The dtype that torch gives a Python number: bool, int64, the default float dtype, or for a complex number the
    complex dtype that goes with the default float dtype.
    """
    if isinstance(value, bool | np.bool_):
        return BOOL
    if isinstance(value, int | np.integer):
        return INT64
    if isinstance(value, float | np.floating):
        return _default
    return _COMPLEX_OF[_default[:]]


def promote(a: DType, b: DType) -> DType:
    """The dtype that torch promotes two dtypes to (``torch.promote_types``); unlike in NumPy, int64 with float16 gives
    float16. ValueError is raised for two types of one category of which one is float8, quantized, uint16 to uint64, or
    complex32.

    >>> promote(DType("int64"), DType("float16")), promote(DType("uint8"), DType("int8")), promote(DType("float16"), DType("bfloat16"))
    (torch.float16, torch.int16, torch.float32)
    """  # noqa: E501
    if a == b:
        return a
    if a.category != b.category:
        low, high = (a, b) if a.category < b.category else (b, a)
        double = high == "complex64" and low == "float64"
        return DType("complex128") if double else high
    if {a[:], b[:]} == {"float16", "bfloat16"}:
        return FLOAT32
    if a.category == 1 and "uint8" in (a, b) and "int8" in (a, b):
        return DType("int16")
    order = ("uint8", "int8", "int16", "int32", "int64", *_FLOATS, *_COMPLEX)
    return max(a, b, key=order.index)


def result_type(operands: Iterable[tuple[DType, int, bool]]) -> DType:
    """The result dtype (``torch.result_type``) of operands given as (dtype, ndim, is a Python number).

    Tensors with dimensions decide; 0-dim tensors and numbers change the type only by a higher *category*. Raises
    ValueError for types whose promotion is not modelled, and without operands.

    >>> result_type([(INT64, 1, False), (FLOAT32, 0, True)]), result_type([(INT64, 1, False), (FLOAT64, 0, False)])
    (torch.float32, torch.float64)
    """
    operands = list(operands)
    if len({dtype for dtype, _, _ in operands}) > 1 and any(
        dtype[:] in _ALONE for dtype, _, number in operands if not number
    ):
        raise ValueError("types that torch hardly promotes")
    found: list[DType | None] = [None, None, None]
    for dtype, ndim, number in operands:
        rank = 2 if number else (1 if ndim == 0 else 0)
        kept = found[rank]
        found[rank] = dtype if kept is None else promote(kept, dtype)
    result: DType | None = None
    for kept in found:
        if kept is None:
            continue
        if result is None:
            result = kept
        elif kept.category > result.category:
            if kept.category == 3 and result == "bfloat16":
                raise ValueError("complex numbers of bfloat16, a type that torch has only since 2.15")
            # a complex number beside floats gives the complex type of their precision
            result = _COMPLEX_OF.get(result[:], kept) if kept.category == 3 else kept
    if result is None:
        raise ValueError("result_type needs an operand")
    return result


def can_cast(source: DType, target: DType) -> bool:
    """Whether an in-place operation may store a result of dtype ``source`` in a tensor of dtype ``target``
    (``torch.can_cast``): unless that is of a lower category.
    """
    return source.category <= target.category and not (target.category == 0 and source.category != 0)


C_TYPES: dict[str, str] = {
    "float32": "float", "float64": "double", "float16": "c10::Half", "bfloat16": "c10::BFloat16", "int64": "long int",
    "int32": "int", "int16": "short int", "int8": "signed char", "uint8": "unsigned char", "bool": "bool",
    "complex64": "c10::complex<float>", "complex128": "c10::complex<double>",
}  # fmt: skip
"""What C++ calls the types: ``mm`` compares them in its message."""
