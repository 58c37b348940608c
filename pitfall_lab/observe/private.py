"""The only module that uses private names of torch and NumPy; it lists what each is for, and what happens if a release
does not have it.

Each name is looked up once, when this module is imported, and is used without a wrapper, so that calls cost no more. If
a name is missing, one of three things happens. Another way gives the same result more slowly (``lost`` is None). Or
something cannot be observed: ``lost`` says what, and every trace contains that sentence as a note. Or nothing could be
recorded correctly (:data:`VITAL`): nothing is recorded, and the trace says why. ``tests/verify/test_private.py``
removes each name in turn, and finds private names that are not listed here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch

from pitfall_lab.trace import T


class Name(NamedTuple):
    """A private name of torch or NumPy: ``path`` is its dotted path, ``purpose`` what it is needed for, ``lost`` what
    cannot be observed without it, in English and Chinese (None: nothing is lost; :data:`VITAL`: without it nothing is
    recorded).
    """

    path: str
    purpose: str
    lost: T | None


NAMES: list[Name] = []
MISSING: list[Name] = []
"""The names that the installed releases do not have."""
VITAL = T("nothing that a program does can be observed", "无法观察程序所做的任何事")


def found(path: str) -> Any:
    """Return the object with this path in the installed releases, or None; nothing is imported.

    A module of the path counts only if it has been imported.
    """
    first, *rest = path.split(".")
    at: Any = sys.modules.get(first)
    for depth, part in enumerate(rest, 1):
        at = getattr(at, part, sys.modules.get(".".join((first, *rest[:depth]))))
    return at


def _name(path: str, purpose: str, lost: T | None = None, otherwise: Any = None) -> Any:
    """Add a name to the list; return its object, or ``otherwise`` if it is missing."""
    name, value = Name(path, purpose, lost), found(path)
    NAMES.append(name)
    if value is None:
        MISSING.append(name)
        return otherwise
    return value


# ------------------------------------------------------------------ tensors and storages: attributes, read where needed

_name("torch.Tensor._version", "the version counter", VITAL)
_name("torch.Tensor._is_view", "whether autograd knows a tensor as a view", VITAL)
_name("torch.Tensor._base", "what it is a view of", VITAL)
_name("torch.UntypedStorage._cdata", "which StorageImpl a tensor's memory belongs to", VITAL)
_name("torch.UntypedStorage._weak_ref", "a reference that keeps that number unique and the memory not alive", VITAL)
new_with_weak_ptr = _name("torch.UntypedStorage._new_with_weak_ptr", "the storage behind such a reference", VITAL)
#: Whether the storage behind a weak reference has been freed.
is_gone: Callable[[int], bool] = _name("torch.UntypedStorage._expired", "whether that storage has been freed", VITAL)
#: Ends a weak reference; afterwards another storage may get its number.
let_go: Callable[[int], None] = _name("torch.UntypedStorage._free_weak_ref", "ending such a reference", VITAL)
#: The places of all stored entries of a sparse tensor; ``indices()`` refuses where one is stored several times.
places_stored: Callable[[torch.Tensor], torch.Tensor] = _name(
    "torch.Tensor._indices",
    "which entries a sparse tensor stores several times",
    T("entries that a sparse tensor stores several times", "稀疏张量多次存储的元素"),
    lambda _tensor: torch.empty((0, 0)),
)
is_zerotensor: Callable[[torch.Tensor], bool] = _name(
    "torch.Tensor._is_zerotensor",
    "whether these are zeros that torch made without memory",
    T(
        "zeros that torch made without memory (they are taken for ordinary ones)",
        "torch 不分配内存的零张量（被当作普通张量）",
    ),
    lambda _tensor: False,
)
creation_meta: Callable[[torch.Tensor], Any] | None = _name(
    "torch._C._autograd._get_creation_meta",
    "how a view was made, which decides whether it may be changed in place",
    T(
        "how a view was made that came from outside of the recording (under no_grad, by an operation "
        "with several results)",
        "在记录之外产生的视图是怎样产生的（在 no_grad 下，或由有多个结果的运算产生）",
    ),
)
CreationMeta: Any = _name("torch._C._autograd.CreationMeta", "torch's words for that", NAMES[-1].lost)
set_versions: Callable[[Any, Any], None] | None = _name(
    "torch._C._autograd._unsafe_set_version_counter",
    "moving a version for a moment, to see which tensors count together",
    T(
        "which tensors that came from outside of the recording share a version counter, and at which version "
        "a stale one was saved",
        "在记录之外产生的张量中哪些共用版本计数器，以及失效的张量保存时的版本",
    ),
)

# ------------------------------------------------------------------ nodes; every kind has a
# class, which has these attributes

NODE = "torch._C._functions.ExpBackward0"
has_sequence = _name(f"{NODE}._sequence_nr", "a node's number, which no other node gets") is not None
next_sequence: Callable[[], int] | None = _name(
    "torch._C._autograd._get_sequence_nr", "the number that the next node will get"
)
has_metadata = _name(
    f"{NODE}._input_metadata", "the shape and type of what an operation without a model returned",
    T("in the graph, the shapes of operations that have no model", "图中没有模型的运算的形状"),
) is not None  # fmt: skip
_SAVED = T(
    "what the nodes of the graph have saved, and at which version (the trace shows only what the model has)",
    "图中各节点保存了什么、保存时的版本（记录中只有模型的说法）",
)
has_saved = (
    _name(f"{NODE}._saved_result", "the tensors that a node saved (torch's notes on autograd show them)", _SAVED)
    is not None
)
_name(
    f"{NODE}._raw_saved_result", "the same without unpacking them",
    T("in pictures of a live graph, what its nodes have saved", "实时计算图的图示中各节点保存了什么"),
)  # fmt: skip
saved_tensor_hooks: Callable[[bool], Any] | None = _name(
    "torch._C._autograd._top_saved_tensors_default_hooks",
    "whether saved-tensor hooks are on: reading a saved tensor runs them",
    _SAVED,
)
ENGINE = "_engine_run_backward"
_name(
    f"torch.autograd.graph.{ENGINE}",
    "the function in which the engine raises, by its frame's name",
    T(
        "whether torch's engine or the program's code raised an error in a backward",
        "backward 中的错误由引擎还是由程序的代码引发",
    ),
)
#: The exception with which ``torch.utils.checkpoint`` ends a recomputation early. The program never sees it.
ENOUGH_RECOMPUTED = "_StopRecomputationError"
_name(
    f"torch.utils.checkpoint.{ENOUGH_RECOMPUTED}", "the end of a recomputation, by the error's name",
    T("where torch.utils.checkpoint ends a recomputation early (the last call in it is shown as failed)",
      "torch.utils.checkpoint 在何处提前结束重计算（其中最后一次调用显示为失败）"),
)  # fmt: skip

# ------------------------------------------------------------------ function modes


without_functions: Callable[[], AbstractContextManager[Any]] = _name(
    "torch._C.DisableTorchFunction",
    "looking at tensors out of sight of the program's classes and modes",
    VITAL,
    nullcontext,
)
_MODES = T(
    "a function mode that the program entered and did not exit, and the slower path that attention "
    "takes while a mode is on",
    "程序进入后没有退出的函数模式，以及有模式时注意力层所走的另一条路径",
)
pop_mode: Callable[[], Any] = _name("torch.overrides._pop_mode", "taking the innermost function mode off", _MODES)
push_mode: Callable[[Any], None] = _name("torch.overrides._push_mode", "putting it on again", _MODES)
modes_on: Callable[[], int] = _name("torch._C._len_torch_function_stack", "how many function modes are on", _MODES)
mode_at: Callable[[int], Any] = _name("torch._C._get_function_stack_at", "which they are", _MODES)
has_modes = not any(name.lost is _MODES for name in MISSING)
#: Torch's table of names, read once, before a program runs: torch's own look-up (used if there is no table) enters
#: ``catch_warnings`` each time, which makes Python forget which warnings it has already shown.
_table = _name("torch.overrides._get_overridable_functions", "the names of all functions that a mode sees")
names_of_functions: dict[Any, str] = _table()[1] if _table else {
    function: torch.overrides.resolve_name(function)
    for functions in torch.overrides.get_overridable_functions().values() for function in functions
}  # fmt: skip
schemas_of: Callable[[str], list[Any]] = _name(
    "torch._C._jit_get_schemas_for_operator", "the names of the parameters of a function that torch refused to run",
    T("the parameter names of a call that raised an error", "被拒绝的调用的参数叫什么"),
    lambda _name: [],
)  # fmt: skip
dispatch: Any = _name(
    "torch.overrides.handle_torch_function.__code__", "the frame in which a function of torch's own asks the modes",
    T("arguments that some torch functions do not pass on to function modes", "torch 的函数忘记传给函数模式的参数"),
)  # fmt: skip

# ------------------------------------------------------------------ settings, read before every call

any_autocast: Callable[[], bool] = _name(
    "torch._C._is_any_autocast_enabled", "whether torch.autocast is on, in one question for all devices", None,
    lambda: torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"),
)  # fmt: skip
has_compiling_flag = (
    _name("torch.compiler._is_compiling_flag", "what is_compiling returns when dynamo does not run", None) is not None
)


class _Compiler:
    """A stand-in for ``torch.compiler`` in releases that lack one of its flags."""

    @property
    def _is_compiling_flag(self) -> bool:
        return torch.compiler.is_compiling()


compiler: Any = torch.compiler if has_compiling_flag else _Compiler()

# ------------------------------------------------------------------ transforms, compilers and tracers

fx_tracer: Callable[[], bool] = _name(
    "torch.fx._symbolic_trace.is_fx_symbolic_tracing",
    "whether torch.fx traces",
    None,
    found("torch.fx._symbolic_trace.is_fx_tracing"),
)
transform: Callable[[], Any] = _name(
    "torch._C._functorch.peek_interpreter_stack", "whether a function transform runs", None, lambda: None
)
jit_tracer: Callable[[], Any] = _name("torch._C._get_tracing_state", "whether torch.jit.trace runs")
dispatch_modes: Callable[[], int] = _name("torch._C._len_torch_dispatch_stack", "how many dispatch modes are on")
dispatch_mode: Callable[[Any], Any] = _name("torch._C._get_dispatch_mode", "whether one of torch's own kinds is on")
FAKE: Any = _name("torch._C._TorchDispatchModeKey.FAKE", "the kind that torch.export runs under")
has_switches = fx_tracer is not None and not set(NAMES[-5:]) & set(MISSING)
"""If False, torch's state may not show that a call is inside a region, so the frames of every call are searched."""
is_wrapped: Callable[[torch.Tensor], bool] = _name(
    "torch._C._functorch.is_functorch_wrapped_tensor", "whether a function transform has wrapped a tensor",
    T("whether a function transform has wrapped a tensor", "张量是否被函数变换包裹"), lambda _tensor: False,
)  # fmt: skip
has_storage: Callable[[torch.Tensor], bool] = _name(
    "torch._C._has_storage",
    "whether a tensor has memory: what the vmap of gradcheck(check_batched_grad=True) wraps has none",
    T("anything after gradcheck(check_batched_grad=True)", "gradcheck(check_batched_grad=True) 之后的内容"),
    lambda _tensor: True,
)


class _NoMode:
    """A dispatch mode that sees nothing."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        pass


DispatchMode: Any = _name(
    "torch.utils._python_dispatch.TorchDispatchMode",
    "how many results a function transform makes inside, for exercises about memory",
    T("how much memory a function transform takes inside", "函数变换在内部占用多少内存"),
    _NoMode,
)
leaves: Callable[[Any], list[Any]] = _name(
    "torch.utils._pytree.tree_leaves", "the tensors among the arguments of a call below a function transform",
    T("how much memory a function transform takes inside", "函数变换在内部占用多少内存"), lambda _tree: [],
)  # fmt: skip
_FILES = T("which tensors a program writes to a file (torch.save)", "程序把哪些张量写进文件（torch.save）")
file_writers: tuple[Any, ...] = tuple(
    _name(f"torch.serialization._open_zipfile_writer_{kind}", "that torch.save writes an object", _FILES)
    for kind in ("file", "buffer")
)
#: The functions that start transforms, compilers and tracers: end of the file name, start of the
#: qualified name, name to show.
ENTRIES = (
    ("torch/_functorch/apis.py", "", "torch.func.{}"),
    ("torch/_functorch/eager_transforms.py", "", "torch.func.{}"),
    ("torch/_vmap_internals.py", "", "torch.func.vmap"),
    ("torch/_dynamo/eval_frame.py", "_TorchDynamoContext.__call__.<locals>", "torch.compile"),
    ("torch/_dynamo/eval_frame.py", "OptimizedModule.", "torch.compile"),
    ("torch/jit/_trace.py", "trace", "torch.jit.trace"),
    ("torch/fx/_symbolic_trace.py", "symbolic_trace", "torch.fx.symbolic_trace"),
    ("torch/export/__init__.py", "export", "torch.export.export"),
)
_DISPATCH = T(
    "what a dispatch mode of the program changes (it also sees operations of this tool)",
    "程序的 dispatch 模式所改变的内容（它还会看到本工具的操作）",
)
pop_dispatch_mode: Any = _name(
    "torch._C._pop_torch_dispatch_stack", "taking a dispatch mode off while we look", _DISPATCH
)
push_dispatch_mode: Any = _name("torch._C._push_on_torch_dispatch_stack", "putting it on again", _DISPATCH)
has_dispatch_modes = dispatch_modes is not None and pop_dispatch_mode is not None and push_dispatch_mode is not None
swap: Callable[[Any, Any], None] | None = _name(
    "torch._C._swap_tensor_impl",
    "that two tensors swap what they are",
    T(
        "torch.utils.swap_tensors (it raises while a program is recorded)",
        "torch.utils.swap_tensors（记录期间会被拒绝）",
    ),
)


def swap_by(function: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Make torch swap tensors (``torch.utils.swap_tensors``) by calling ``function`` with the two; return the function
    that torch called for this before.
    """
    before, torch._C._swap_tensor_impl = torch._C._swap_tensor_impl, function  # type: ignore[assignment]
    return before


_eval_frame: Any = _name(
    "torch._C._dynamo.eval_frame.set_code_exec_strategy", "keeping torch.compile from compiling functions of ours",
    T(
        "what torch.compile compiles (it may compile functions of pitfall_lab along with the program's own)",
        "torch.compile 编译了什么（可能连同 pitfall_lab 的函数一起编译）",
    ),
)  # fmt: skip

_scripts: Any = _name(
    "torch.jit._state._python_cu",
    "the functions that torch.jit.script has compiled",
    T(
        "whether the program runs functions that torch.jit.script has compiled",
        "程序是否运行由 torch.jit.script 编译的函数",
    ),
)


def functions_scripted() -> int:
    """Return the number of functions that torch.jit.script has compiled, without those of torch itself; 0 if this
    release does not show them.
    """
    names = () if _scripts is None else [function.qualified_name for function in _scripts.get_functions()]
    return sum(not name.startswith("__torch__.torch.") for name in names)


def frames_compiled() -> int:
    """Return the number of frames that torch.compile has compiled; 0 if it has not been imported, 1 if this release
    does not show the number.
    """
    compiler = sys.modules.get("torch._dynamo.convert_frame")
    return 0 if compiler is None else getattr(compiler, "FRAME_COUNTER", 1)


def compiled_autograd() -> bool:
    """Whether compiled autograd is on, so that a backward is traced and not run."""
    return bool(getattr(sys.modules.get("torch._dynamo.compiled_autograd"), "compiled_autograd_enabled", False))


def leave_uncompiled(*functions: Callable[..., Any], alone: bool = False) -> None:
    """Keep torch.compile from compiling ``functions`` and, unless ``alone``, the functions that they call. Does nothing
    if this release lacks the private function for it.

    After a graph break torch compiles the functions that are called next, which may be those of this package.
    """
    if _eval_frame is not None:
        words = torch._C._dynamo.eval_frame
        skip = words._FrameAction.SKIP
        for function in functions:
            _eval_frame(
                function.__code__, words._FrameExecStrategy(skip, words._FrameAction.DEFAULT if alone else skip)
            )


# ------------------------------------------------------------------ NumPy

#: The addresses of an array's first byte and of the byte after its last. NumPy before 2.0 has the function elsewhere.
byte_bounds: Callable[[np.ndarray], tuple[int, int]] = getattr(np.lib, "array_utils", np).byte_bounds
