"""Parts of torch that programs use beside tensors: ``torch.cuda`` without a GPU, anomaly mode, ``broadcast_shapes``."""

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
        """No."""
        return False

    @staticmethod
    def is_initialized() -> bool:
        """No."""
        return False

    @staticmethod
    def device_count() -> int:
        """None."""
        return 0

    @staticmethod
    def empty_cache() -> None:
        """There is nothing to give back."""

    @staticmethod
    def memory_allocated() -> int:
        """Nothing."""
        return 0

    memory_reserved = max_memory_allocated = memory_allocated

    @staticmethod
    def synchronize() -> None:
        """As torch refuses it."""
        raise AssertionError("Torch not compiled with CUDA enabled")


class set_detect_anomaly:  # noqa: N801 - torch's name
    """Anomaly mode: a failing backward warns of the forward call, its message has another hint, and NaN makes it fail."""

    def __init__(self, mode: bool = True, check_nan: bool = True) -> None:
        self.before = engine().anomaly, engine().checks_nan
        engine().anomaly, engine().checks_nan = mode, mode and check_nan

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        engine().anomaly, engine().checks_nan = self.before


class detect_anomaly(set_detect_anomaly):  # noqa: N801 - torch's name
    """:class:`set_detect_anomaly`, switched on."""

    def __init__(self, check_nan: bool = True) -> None:
        super().__init__(mode=True, check_nan=check_nan)


class _unsafe_preserve_version_counter:  # noqa: N801 - torch's name
    """At the end of the block, the versions are set back to what they were at its beginning."""

    def __init__(self, tensors: Any) -> None:
        self.tensors = (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)
        self.before = [t.shadow.version for t in self.tensors]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        for tensor, version in zip(self.tensors, self.before, strict=True):
            if tensor.shadow.counter is not None:
                tensor.shadow.counter.version = version


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The common shape."""
    try:
        return Size(broadcast(*((s,) if isinstance(s, int) else tuple(s) for s in shapes)))
    except ShadowError as error:
        raise_as_torch(error)


__all__ = ["_unsafe_preserve_version_counter", "broadcast_shapes", "cuda", "detect_anomaly", "set_detect_anomaly"]
