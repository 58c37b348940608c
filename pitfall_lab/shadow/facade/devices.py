"""Parts of torch that are not operations: ``torch.cuda`` without a GPU, anomaly mode, ``broadcast_shapes``."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from pitfall_lab.shadow.errors import ShadowError
from pitfall_lab.shadow.facade.tensors import Size, Tensor, engine, raise_as_torch
from pitfall_lab.shadow.ops.building import broadcast


class cuda:  # noqa: N801 - torch's name
    """``torch.cuda`` on a machine without a GPU, with a torch that was built for the CPU."""

    @staticmethod
    def is_available() -> bool:
        """Return False: there is no GPU."""
        return False

    @staticmethod
    def is_initialized() -> bool:
        """Return False: CUDA is never initialised."""
        return False

    @staticmethod
    def device_count() -> int:
        """Return 0: there is no GPU."""
        return 0

    @staticmethod
    def empty_cache() -> None:
        """Do nothing: no CUDA memory is cached."""

    @staticmethod
    def memory_allocated() -> int:
        """Return 0: no CUDA memory is allocated."""
        return 0

    memory_reserved = max_memory_allocated = memory_allocated

    @staticmethod
    def synchronize() -> None:
        """Raise ``AssertionError``, as torch does when it was built without CUDA."""
        raise AssertionError("Torch not compiled with CUDA enabled")


class set_detect_anomaly:  # noqa: N801 - torch's name
    """Switch anomaly mode on or off (``mode``), for good or until the end of a ``with`` block.

    In anomaly mode, a failing backward gives a warning about the forward call, and its message has another hint. With
    ``check_nan``, backward fails if a node returns NaN.
    """

    def __init__(self, mode: bool = True, check_nan: bool = True) -> None:
        self.before = engine().anomaly, engine().checks_nan
        engine().anomaly, engine().checks_nan = mode, mode and check_nan

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        engine().anomaly, engine().checks_nan = self.before


class detect_anomaly(set_detect_anomaly):  # noqa: N801 - torch's name
    """Switch anomaly mode on in a ``with`` block; with ``check_nan``, backward fails if a node returns NaN."""

    def __init__(self, check_nan: bool = True) -> None:
        super().__init__(mode=True, check_nan=check_nan)


class _unsafe_preserve_version_counter:  # noqa: N801 - torch's name
    """A context manager that resets the versions of the tensors, on exit, to those at the creation of this object."""

    def __init__(self, tensors: Any) -> None:
        self.tensors = (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)
        self.before = [t.shadow.version for t in self.tensors]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for tensor, version in zip(self.tensors, self.before, strict=True):
            if tensor.shadow.counter is not None:
                tensor.shadow.counter.version = version


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """Return the shape to which tensors of these shapes (at least one) broadcast; a number is a shape of one dimension.

    Raises RuntimeError, as torch does, if there is none.
    """
    try:
        return Size(broadcast(*((s,) if isinstance(s, int) else tuple(s) for s in shapes)))
    except ShadowError as error:
        raise_as_torch(error)


__all__ = ["_unsafe_preserve_version_counter", "broadcast_shapes", "cuda", "detect_anomaly", "set_detect_anomaly"]
