"""Runs programs one after the other, each in a fresh namespace, and reports everything a learner could notice.

``python worker.py plain|recorded PROGRAM...`` prints one JSON object per program. Both ways run the same code under the
same file name; only the second one records.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import io
import json
import linecache
import random
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch._dynamo  # lazily imported otherwise, by whichever program comes first, and it patches torch
from torch.utils._python_dispatch import _len_torch_dispatch_stack

SCHEDULERS = (
    torch.optim.lr_scheduler.LRScheduler,
    torch.optim.lr_scheduler.ReduceLROnPlateau,
    torch.utils.data.DataLoader,
)
OWNERS = (
    torch,
    torch.Tensor,
    torch.nn.functional,
    torch.autograd,
    torch.nn.Module,
    torch.optim.Optimizer,
    torch.overrides,
    np,
    *SCHEDULERS,
)
LOGGED = re.compile(r"^[VIWE]\d{4} [\d:.]+ \d+ ", re.MULTILINE)
"""How torch's log begins a line: with the time and the process, which no two runs share."""


def main() -> None:
    mode, *paths = sys.argv[1:]
    if mode == "recorded":
        # Imported before anything is measured: what the import does is not an effect on the program.
        import pitfall_lab.verify  # noqa: F401
    if sys.platform == "linux":
        # A program of 10**9 elements without memory must stay one: what would fill the
        # machine ends here as a MemoryError.
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30, 6 * 2**30))
    report = sys.stdout
    # What the imports made stays: to go through it for each program again would take longer than the programs.
    gc.collect()
    gc.freeze()
    for path in paths:
        print(json.dumps(observe(mode, Path(path))), file=report, flush=True)


def observe(mode: str, path: Path) -> dict[str, Any]:
    """Run one program and collect what it printed, warned, raised, computed and left behind."""
    source, filename = path.read_text(encoding="utf-8"), f"<program:{path.stem}>"
    scope: dict[str, Any] = {"__name__": "__main__", "__builtins__": __builtins__, "__file__": filename}
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - the programs use the global generator, as learners do
    torch.manual_seed(0)
    gc.collect()
    tensors, patches = count_tensors(), fingerprint()
    printed, complained = io.StringIO(), io.StringIO()
    with (
        warnings.catch_warnings(record=True) as warned,
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(complained),
    ):
        warnings.simplefilter("always")
        filters = list(warnings.filters)
        error, trace = run(mode, source, filename, scope)
        same_filters = filters == list(warnings.filters)
    found = {
        "program": path.stem,
        "printed": printed.getvalue(),
        "complained": LOGGED.sub("", complained.getvalue()),
        "error": error,
        "warned": [[w.category.__name__, only_the_program(str(w.message)), w.filename, w.lineno] for w in warned],
        "random": [
            digest(torch.get_rng_state().numpy().tobytes()),
            digest(repr(random.getstate())),
            digest(repr(np.random.get_state())),  # noqa: NPY002 - the global one
        ],
        "values": {name: describe(tensor) for name, tensor in held(scope)},
        "names": sorted(name for name in scope if not name.startswith("__")),
        "state": {
            "grad": torch.is_grad_enabled(),
            "dtype": str(torch.get_default_dtype()),
            "warning filters kept": same_filters,
            "function modes": torch._C._len_torch_function_stack(),
            "dispatch modes": _len_torch_dispatch_stack(),
            "anomaly": torch.is_anomaly_enabled(),
            "trace function": sys.gettrace() is None,
            "profiler": sys.getprofile() is None,
            "patched": [name for name, value in fingerprint().items() if name in patches and patches[name] != value],
        },
    }
    scope.clear()
    del warned
    gc.collect()
    found["left alive"] = count_tensors() - tensors
    found["trace"] = None if trace is None else trace.to_json()
    return found


def run(mode: str, source: str, filename: str, scope: dict[str, Any]) -> tuple[list[Any] | None, Any]:
    """Run the program; return its error as [type, text, lines] and the trace, when there is one."""
    if mode == "recorded":
        from pitfall_lab.verify import trace_program

        trace = trace_program(source, name=filename, namespace=scope, filename=filename)
        failure = trace.outcome.failure
        return (
            None if failure is None else [failure.type, failure.message, [failure.span.line] if failure.span else []]
        ), trace
    try:
        exec(compile(source, filename, "exec", dont_inherit=True), scope)
    except BaseException as error:
        lines, step = [], error.__traceback__
        while step is not None:
            lines += [step.tb_lineno] if step.tb_frame.f_code.co_filename == filename else []
            step = step.tb_next
        return [type(error).__name__, str(error), lines], None
    return None, None


def only_the_program(text: str) -> str:
    """A warning's text without the stack frames of others.

    Anomaly mode prints the whole stack: the worker's frames are in it, and the one through which a recorded call goes
    (it bears the program's file name, so that warnings name the program's line, and a name of ours).
    """
    others = r'^ *File "(?:(?!<program:)[^\n]*|[^\n]* in _pitfall_lab_run)\n(?: {4,}[^\n]*\n)*'
    return re.sub(others, "", text + "\n", flags=re.MULTILINE).strip()


def count_tensors() -> int:
    return sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects())


def digest(data: str | bytes) -> str:
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()[:16]


def fingerprint() -> dict[str, int]:
    """Which function stands behind each public name of torch and NumPy: recording must leave no patch behind."""
    return {
        f"{owner.__name__}.{name}": id(value)
        for owner in OWNERS
        for name, value in list(vars(owner).items())
        if callable(value)
    }


def held(scope: dict[str, Any]) -> list[tuple[str, torch.Tensor]]:
    """All tensors that the program has names for, by themselves or in a container, a module or an optimizer."""
    found = []
    for name, value in sorted(scope.items()):
        parts: dict[Any, Any] = {"": value}
        if isinstance(value, torch.nn.Module):
            parts = {**dict(value.named_parameters()), **dict(value.named_buffers())}
        elif isinstance(value, torch.optim.Optimizer):
            parts = {f"{k} {key}": t for k, state in enumerate(value.state.values()) for key, t in state.items()}
        elif type(value) in {list, tuple, dict}:
            parts = value if isinstance(value, dict) else dict(enumerate(value))
        found += [(f"{name} {key}", part) for key, part in parts.items() if isinstance(part, torch.Tensor)]
    return found


def describe(tensor: torch.Tensor) -> list[str]:
    """All that can be asked of a tensor, as text; what torch refuses to say is said as its refusal."""
    asked = {
        "shape": lambda: tuple(tensor.shape),
        "stride": tensor.stride,
        "dtype": lambda: tensor.dtype,
        "device": lambda: tensor.device,
        "version": lambda: tensor._version,
        "leaf": lambda: tensor.is_leaf,
        "requires_grad": lambda: tensor.requires_grad,
        "grad_fn": lambda: tensor.grad_fn.name() if tensor.grad_fn else None,
        "values": lambda: values(tensor),
        "grad": lambda: (
            of_gradient(tensor.grad) if (tensor.is_leaf or tensor.retains_grad) and tensor.grad is not None else None
        ),
    }
    out = []
    for name, ask in asked.items():
        try:
            out.append(f"{name} {ask()}")
        except Exception as error:
            out.append(f"{name}: {type(error).__name__}")
    return out


def of_gradient(gradient: torch.Tensor) -> Any:
    """What can be seen of a ``.grad``: that it lies as it would alone, and is as new, shows who else has had it."""
    return tuple(gradient.shape), gradient.stride(), gradient._version, gradient.requires_grad, values(gradient)


def values(tensor: torch.Tensor) -> Any:
    return tensor.detach().tolist() if tensor.numel() <= 10_000 else "many"


if __name__ == "__main__":
    main()
