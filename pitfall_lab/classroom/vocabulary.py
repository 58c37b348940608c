"""The names of attributes that an answer may need: what torch, NumPy and Python document for programs like those of the
course. :func:`words` returns them.

A list of what is forbidden is never complete: libraries have some hundred thousand names, and one of them hands out
another module, a frame, or all memory. So it is a list of what is there for use, made from the libraries as they are
installed: public names of the classes and modules below. Every other attribute that a cell reads and has not made
itself is named to the teacher (:mod:`pitfall_lab.classroom.unneeded`, which names a few attributes of this list as
well).
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
import types
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import numpy as np


def _split(names: str) -> tuple[str, ...]:
    return tuple(names.split())


PUBLIC = _split(
    "torch.nn torch.nn.functional torch.nn.init torch.nn.utils torch.nn.utils.rnn torch.optim torch.optim.lr_scheduler "
    "torch.linalg torch.fft torch.special torch.func torch.autograd torch.autograd.functional torch.autograd.graph "
    "torch.autograd.forward_ad torch.utils.data torch.utils.checkpoint torch.amp torch.testing torch.distributions "
    "torch.random torch.functional math cmath random itertools functools operator collections copy typing dataclasses "
    "contextlib statistics string time warnings decimal fractions abc enum re textwrap io numpy.random numpy.linalg "
    "numpy.fft numpy.testing __future__"
)
"""Modules that say what is theirs, or of which all that they define is for use."""
_BEHIND = {"torch.nn": "torch.nn.", "torch.optim": "torch.optim."}
"""Where the classes of a module are defined that has them from elsewhere."""
_KINDS: tuple[type, ...] = (
    *(int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset, range, slice, bool, property),
    *(BaseException, OSError, StopIteration, ImportError, SyntaxError, KeyError, UnicodeError),
    *(np.ndarray, np.generic, np.float64, np.dtype, np.random.Generator, np.random.RandomState, np.finfo, np.iinfo),
)
_OF_TORCH = _split(
    "Tensor Generator dtype device layout memory_format finfo iinfo Size Stream no_grad enable_grad set_grad_enabled "
    "inference_mode autocast is_grad_enabled manual_seed seed initial_seed get_rng_state set_rng_state is_tensor "
    "is_floating_point set_default_dtype set_default_device get_default_device typename set_printoptions compile vmap "
    "use_deterministic_algorithms are_deterministic_algorithms_enabled get_default_dtype sym_int inf nan pi e newaxis "
    "is_autocast_enabled get_autocast_dtype "
    "FloatTensor LongTensor DoubleTensor IntTensor BoolTensor ByteTensor nn optim linalg fft special func autograd amp "
    "utils data cuda backends mps cudnn mkldnn distributions testing random version compiler checkpoint accelerator"
)
_SPOKEN = _split(
    "weight bias in_proj_weight out_proj weight_ih_l0 weight_hh_l0 bias_ih_l0 bias_hh_l0 running_mean running_var "
    "num_batches_tracked param_groups state defaults last_epoch base_lrs grad_fn next_functions saved_tensors "
    "needs_input_grad save_for_backward mark_dirty mark_non_differentiable set_materialize_grads ctx forward backward "
    "setup_context jvp vjp apply variable in_features out_features in_channels out_channels kernel_size stride padding "
    "dilation groups num_embeddings embedding_dim padding_idx num_features eps momentum affine normalized_shape p "
    "inplace training batch_first hidden_size input_size num_layers num_heads embed_dim head_dim dropout sampler "
    "deterministic benchmark enabled allow_tf32 is_available device_count synchronize empty_cache memory_allocated "
    "max_memory_allocated current_device matmul is_built utils rnn init functional parallel lr_scheduler "
    "value name message category lineno filename args kwargs return_value typing sqrt pi e inf nan tau newaxis linalg "
    "fft random testing float16 float32 float64 int8 int16 int32 int64 uint8 bool_ str_ complex64 complex128 integer "
    "floating number ndarray c_ r_ s_ dtype cache_info cache_clear cache_parameters __wrapped__ func keywords "
    "plot show figure subplots title xlabel ylabel legend grid imshow scatter hist bar axhline axvline semilogy loglog "
    "subplot savefig tight_layout set_title set_xlabel set_ylabel set_xlim set_ylim close axes xlim ylim yscale xscale "
    "set_yscale set_xscale colorbar errorbar fill_between text annotate suptitle tqdm trange update set_description "
    "graph swap_tensors set_postfix write pprint pformat nested gradcheck gradgradcheck hessian jacobian hvp vhp"
)
"""Attributes of objects that no class lists, and what is used of matplotlib and tqdm."""
LEFT_OUT = frozenset(
    _split(
        "load loads load_state_dict_from_url from_file from_dlpack to_dlpack from_buffer frombuffer fromfile fromregex "
        "loadtxt genfromtxt savetxt savez savez_compressed memmap dump dumps set_ untyped_storage storage "
        "_typed_storage share_memory_ set_extra_state get_extra_state setfield getfield import_ir_module fork wait "
        "showwarning "
        "sparse_coo_tensor sparse_csr_tensor sparse_csc_tensor sparse_bsr_tensor sparse_bsc_tensor ctc_loss "
        "segment_reduce sparse_compressed_tensor nested_tensor_from_jagged add_module register_module "
        "coalesce crow_indices col_indices ccol_indices row_indices spdiags obj multiprocessing_context "
        "formatwarning register get_file_path parse_schema tb_frame __wrapped__ set_module "
        "ndarray recarray resize set_state bit_generator MT19937 Philox"
    )
)
"""Public names among them that no answer needs: what reads and writes files, shares memory, takes any state, or uses
memory without checking that it is a tensor's (as with a sparse tensor whose indices were not checked, or were changed
later: so what makes one is also left out), and what hands out a module as a value. NumPy makes objects of numbers by
the class of its arrays, frees memory that is used by ``resize``, and reads beyond random numbers by a state.
"""
_OF_SPARSE = ("to_sparse", "sparse_")
"""How the names of what makes sparse tensors begin."""


@cache
def words() -> frozenset[str]:
    """All names of attributes that an answer may need: some three thousand."""
    return frozenset(name for name in _all() if not is_left_out(name))


def is_left_out(name: str) -> bool:
    """Whether a documented name is not among those that answers may use: it is in :data:`LEFT_OUT`, where the reasons
    are, or begins like the names of what makes sparse tensors.

    >>> is_left_out("to_sparse_csr"), is_left_out("load"), is_left_out("relu")
    (True, True, False)
    """
    return name in LEFT_OUT or name.startswith(_OF_SPARSE)


@cache
def inside() -> frozenset[str]:
    """Names of attributes of Python's code objects, frames, tracebacks, closure cells, generators and coroutines: those
    with an underscore inside, such as ``gi_code``, that are not in :func:`words`.

    An attribute of such a name that an answer reads is named to the teacher, also if the answer has a variable or an
    attribute of its own with this name.
    """
    kinds: tuple[type, ...] = (types.CodeType, types.FrameType, types.TracebackType, types.CellType)
    kinds += (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
    return frozenset(name for kind in kinds for name in dir(kind) if "_" in name[1:-1] and name[0] != "_") - words()


@cache
def private() -> frozenset[str]:
    """Names with one leading underscore: those of attributes of torch's own objects (modules, optimizers, tensors,
    loaders), and those of modules inside the libraries that a cell may have as values.

    An attribute of such a name counts as theirs, whatever else the cell calls so.
    """
    torch = importlib.import_module("torch")
    layer, weight = torch.nn.Module(), torch.nn.Parameter(torch.ones(1))
    step = torch.optim.SGD([weight])
    kept = [layer, step, torch.optim.lr_scheduler.StepLR(step, 1), torch.utils.data.DataLoader([1])]
    kept.append(torch.nn.RNN(1, 1, device="meta"))  # there no random numbers are drawn
    kinds = (torch.nn.Module, torch.optim.Optimizer, torch.Tensor, torch.autograd.Function)
    found = {name for names in (*map(vars, kept), *map(dir, kinds)) for name in names}
    for module in [module for name, module in [*sys.modules.items()] if name.startswith(_AS_VALUES)]:
        found |= {name for name, value in vars(module).items() if isinstance(value, types.ModuleType)}
    return frozenset(name for name in found if name[:1] == "_" and name[:2] != "__")


_AS_VALUES = ("torch.nn.functional", "torch.optim")
"""Modules that are not named where a cell passes them on, and those inside them."""


def _all() -> Iterator[str]:
    """Yield the documented names that an answer might use, with repetitions, also those that :func:`is_left_out`
    removes.
    """
    yield from (*_OF_TORCH, *_SPOKEN)
    for kind in _KINDS:
        yield from _of_class(kind)
    torch = importlib.import_module("torch")
    yield from _of_class(torch.Tensor)
    for name in _OF_TORCH:
        yield from _of_class(getattr(torch, name, None))
    yield from (name for name, value in vars(torch).items() if _is_call(value) and not name.startswith("_"))
    for kind in vars(torch.return_types).values():
        yield from _of_class(kind)
    yield from (name for name, value in vars(np).items() if _is_numpys(value) and not name.startswith("_"))
    for name in PUBLIC:
        module = importlib.import_module(name)
        for inner in _of_module(module):
            yield inner
            yield from _of_class(getattr(module, inner, None))


def _of_module(module: types.ModuleType) -> Iterator[str]:
    if listed := getattr(module, "__all__", None):
        yield from (name for name in listed if not name.startswith("_"))
        if module.__name__ not in _BEHIND:
            return
    begin = _BEHIND.get(module.__name__, module.__name__)
    for name, value in vars(module).items():
        of = str(getattr(value, "__module__", None) or begin)
        theirs = of.startswith((begin, "torch._C")) and not isinstance(value, types.ModuleType)
        if not name.startswith("_") and theirs:
            yield name


def _of_class(kind: object) -> Iterable[str]:
    """The public names of a class's attributes, of those that it declares, and of the parameters of its ``__init__``,
    which many classes keep as attributes; empty if ``kind`` is no class.
    """
    if not isinstance(kind, type):
        return ()
    names = {*dir(kind)}
    for each in kind.__mro__:
        declared = vars(each).get("__annotations__", {})
        names |= {*declared} if isinstance(declared, dict) else set()
    with contextlib.suppress(ValueError, TypeError):
        names |= {*inspect.signature(kind.__init__).parameters}  # type: ignore[misc]
    return {name for name in names if not name.startswith("_")}


def _is_call(value: Any) -> bool:
    """Whether a value is a documented function of torch that is not written in Python, or a dtype, layout or memory
    format.

    Functions without documentation are for torch's own use, and some do not check the sizes of their arguments.
    """
    is_documented = isinstance(value, types.BuiltinFunctionType) and bool(value.__doc__)
    return is_documented or type(value).__name__ in ("dtype", "layout", "memory_format")


def _is_numpys(value: Any) -> bool:
    return isinstance(value, (np.ufunc, types.BuiltinFunctionType)) or (
        callable(value) and str(getattr(value, "__module__", "")).startswith("numpy")
    )
