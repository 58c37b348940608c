"""The exceptions of the shadow engine, and the exact messages of torch's errors.

There are two kinds of failure: :class:`ShadowError` is a prediction ("torch raises this here"), and :class:`Unmodelled`
says that the shadow engine does not know what torch does here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pitfall_lab.shadow.applied import Applied
    from pitfall_lab.shadow.graph import Node, Saved
    from pitfall_lab.shadow.storage import ShadowTensor


class Unmodelled(Exception):
    """Raised for a call that the shadow engine has no model for; ``reason`` says why in one line."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Absent(AttributeError):
    """Raised for a name that the stand-alone engine has no function for."""


class ShadowError(Exception):
    """The error that torch will raise: its type, its message, and the objects that it is about.

    ``type_name`` is the name of the class (``RuntimeError``), ``message`` torch's message, and ``kind`` one of the
    kinds of :class:`pitfall_lab.trace.Failure`. ``node`` is the node of the graph at which it is raised, ``saved`` the
    saved tensor that is freed or modified, ``tensor`` the tensor that is refused, ``expected`` the version that was
    saved, and ``found`` the current one. Each of these five is None if it does not apply to the error.
    """

    def __init__(
        self,
        type_name: str,
        message: str,
        kind: str = "other",
        *,
        node: Node | None = None,
        saved: Saved | None = None,
        tensor: ShadowTensor | None = None,
        expected: int | None = None,
        found: int | None = None,
    ) -> None:
        super().__init__(message)
        self.type_name = type_name
        self.message = message
        self.kind = kind
        self.node = node
        self.saved = saved
        self.tensor = tensor
        self.expected = expected
        self.found = found
        self.applied: Applied | None = None
        """What had been done before the error (set by the engine)."""


def runtime(message: str, kind: str = "other", **facts: object) -> ShadowError:
    """A RuntimeError, which nearly all of torch's errors are."""
    return ShadowError("RuntimeError", message, kind, **facts)  # type: ignore[arg-type]


def no_kernel(kernel: str, scalar_name: str) -> ShadowError:
    """Return torch's error for a dtype that a kernel is not compiled for: ``"abs_cpu" not implemented for 'Bool'``."""
    return ShadowError("NotImplementedError", f"\"{kernel}\" not implemented for '{scalar_name}'", "dtype")


MODIFIED = (
    "one of the variables needed for gradient computation has been modified by an inplace operation: [{type} "
    "{shape}]{origin} is at version {found}; expected version {expected} instead. {hint}"
)
HINT = (
    "Hint: enable anomaly detection to find the operation that failed to compute its gradient, "
    "with torch.autograd.set_detect_anomaly(True, check_nan=False)."
)
OLD_HINT = HINT.replace(", check_nan=False", "")
ANOMALY_HINT = (
    "Hint: the backtrace further above shows the operation that failed to compute its gradient. "
    "The variable in question was changed in there or anywhere later. Good luck!"
)
TWICE = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already "
    "been freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). "
    "Specify retain_graph=True if you need to backward through the graph a second time or if you need to access saved "
    "tensors after calling backward."
)
CYCLE = (
    "Using backward() with create_graph=True will create a reference cycle between the parameter and its gradient "
    "which can cause a memory leak. We recommend using autograd.grad when creating the graph to avoid this. If you "
    "have to use this function, make sure to reset the .grad fields of your parameters to None after use to break the "
    "cycle and avoid the leak."
)
DETACHED = (
    "Trying to use a saved tensor that has been detached in-place, i.e. with .detach_()."
    "This is not supported, please use out-of-place `.detach()` instead"
)
LEAF = "a leaf Variable that requires grad is being used in an in-place operation."
NO_LEAF = "leaf variable has been moved into the graph interior"
VIEW_OF_LEAF = "a view of a leaf Variable that requires grad is being used in an in-place operation."
MULTI = (
    " This view is the output of a function that returns multiple views. Such functions do not allow the output views "
    "to be modified inplace. You should replace the inplace operation by an out-of-place one."
)
CUSTOM = (
    " This view was created inside a custom Function (or because an input was returned as-is) and the autograd logic "
    "to handle view+inplace would override the custom backward associated with the custom Function, leading to "
    "incorrect gradients. This behavior is forbidden. You can fix this by cloning the output of the custom Function."
)
AMBIGUOUS = (
    " Given that this use case is ambiguous and error-prone, it is forbidden. You can clarify your code by moving "
    "both the view and the inplace either both inside the {mode} block (if you don't want the inplace to be tracked) "
    "or both outside (if you want the inplace to be tracked)."
)
OVERLAP_SELF = (
    "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
    "Please clone() the tensor before performing the operation."
)
OVERLAP_INPUT = (
    "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory "
    "location. Please clone() the tensor before performing the operation."
)
INFERENCE_FLAG = "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed."
INFERENCE_WRITE = (
    "Inplace update to inference tensor outside InferenceMode is not allowed."
    "You can make a clone to get a normal tensor before doing inplace update."
    "See https://github.com/pytorch/rfcs/pull/17 for more details."
)
INFERENCE_SAVED = (
    "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in "
    "computation tracked by autograd. To work around this, you can make a clone to get a normal tensor and use it in "
    "autograd, or use `torch.no_grad()` instead of `torch.inference_mode()`."
)
DETACH_VIEW = (
    "Can't detach views in-place. Use detach() instead. If you are using DistributedDataParallel (DDP) for training, "
    "and gradient_as_bucket_view is set as True, gradients are views of DDP buckets, and hence detach_() cannot be "
    "called on these gradients. To fix this error, please refer to the Optimizer.zero_grad() function in "
    "torch/optim/optimizer.py as the solution."
)
DEEPCOPY = (
    "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.  If you "
    "were attempting to deepcopy a module, this may be because of a torch.nn.utils.weight_norm usage, see "
    "https://github.com/pytorch/pytorch/pull/103001"
)
NONLEAF_FLAG = "you can only change requires_grad flags of leaf variables."
NO_GRAPH = "element {index} of tensors does not require grad and does not have a grad_fn"
UNUSED = "{which} appears to not have been used in the graph. Set allow_unused=True if this is the desired behavior."
