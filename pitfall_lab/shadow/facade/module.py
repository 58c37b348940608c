"""``torch.nn.Module`` for the facade: as in torch, what is assigned to an attribute becomes a
parameter, a buffer or a submodule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Self

from pitfall_lab.shadow.dtypes import DType
from pitfall_lab.shadow.errors import ShadowError
from pitfall_lab.shadow.facade.tensors import Parameter, Tensor, engine, no_grad, raise_as_torch, takes_zero_grad
from pitfall_lab.shadow.policy import Policy


class Keys(NamedTuple):
    """The result of :meth:`Module.load_state_dict`: ``missing_keys`` are in the module and were not given,
    ``unexpected_keys`` were given and are not in the module.
    """

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not any(self):
            return "<All keys matched successfully>"
        return f"_IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


def _loaded(kind: str, key: str, target: Tensor, source: Tensor) -> None:
    """Copy one entry of a state_dict into the parameter or buffer ``target``; an error gets the
    message that torch gives it.
    """
    try:
        target.copy_(source)
    except RuntimeError as error:
        sizes = [
            f"whose dimensions in the {where} are {tuple(t.shape)}"
            for where, t in (("model", target), ("checkpoint", source))
        ]
        what = f"While copying the parameter named {key!r}, {', '.join(sizes)}, an exception occurred : {error.args}."
        text = f"Error(s) in loading state_dict for {kind}:\n\t{what}"
        raise RuntimeError(text) from error


class Module:
    """The base class of modules: tensors and modules that are assigned to attributes become its
    parameters, buffers and submodules.
    """

    training = True

    def __init__(self) -> None:
        self._temporary: dict[str, bool] = {}
        self._hooks: dict[str, dict[int, Callable[..., Any]]] = {"before": {}, "after": {}}

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Module | Parameter) and "_hooks" not in vars(self):
            kind = "module" if isinstance(value, Module) else "parameters"
            raise AttributeError(f"cannot assign {kind} before Module.__init__() call")
        super().__setattr__(name, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call :meth:`forward`: the forward pre-hooks before it, the forward hooks after it. Return the result.

        Under the belief ``eval_stops_gradients``, a module in evaluation mode runs only ``forward``, under no_grad.
        """
        if not self.training and policy().eval_stops_gradients:
            with no_grad():
                return self.forward(*args, **kwargs)
        for hook in tuple(vars(self).get("_hooks", {}).get("before", {}).values()):
            changed = hook(self, args)
            args = args if changed is None else changed if isinstance(changed, tuple) else (changed,)
        result = self.forward(*args, **kwargs)
        for hook in tuple(vars(self).get("_hooks", {}).get("after", {}).values()):
            changed = hook(self, args, result)
            result = result if changed is None else changed
        return result

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the module's result; each subclass defines it. Here it raises NotImplementedError."""
        text = f'Module [{type(self).__name__}] is missing the required "forward" function'
        raise_as_torch(ShadowError("NotImplementedError", text))

    # -- what it holds

    def add_module(self, name: str, module: Module) -> None:
        """Add a submodule under the name ``name``."""
        setattr(self, name, module)

    register_module = add_module

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter under the name ``name``."""
        setattr(self, name, param)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a buffer: a tensor (or None) that belongs to the module's state but is no parameter.

        With ``persistent=False`` it is not in the state_dict.
        """
        self._temporary[name] = not persistent
        setattr(self, name, tensor)

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Yield the direct submodules, each after its name."""
        for name, value in vars(self).items():
            if isinstance(value, Module):
                yield name, value

    def children(self) -> Iterator[Module]:
        """Yield the direct submodules."""
        for _, child in self.named_children():
            yield child

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """Yield this module, under the name ``prefix``, and all modules inside it, each with its dotted name.

        A module that occurs twice is yielded twice.
        """
        yield prefix, self
        for name, child in self.named_children():
            yield from child.named_modules(f"{prefix}.{name}" if prefix else name)

    def modules(self) -> Iterator[Module]:
        """Yield this module and all modules inside it; one that occurs twice, twice."""
        for _, module in self.named_modules():
            yield module

    def own(self, kind: str) -> Iterator[tuple[str, Tensor]]:
        """Yield this module's own parameters (``kind`` ``"parameter"``) or buffers (``"buffer"``), not those of
        submodules, each after its name.

        Under the belief ``tensor_attributes_are_parameters``, every tensor that is no buffer counts as a parameter.
        """
        wanted = Tensor if policy().tensor_attributes_are_parameters else Parameter
        for name, value in vars(self).items():
            is_buffer = name in vars(self).get("_temporary", {})
            if isinstance(value, Tensor if is_buffer else wanted) and (kind == "buffer") is is_buffer:
                yield name, value

    def _named(self, kind: str) -> Iterator[tuple[str, Tensor]]:
        seen: set[int] = set()
        for prefix, module in self.named_modules():
            for name, value in module.own(kind):
                if id(value) not in seen:
                    seen.add(id(value))
                    yield (f"{prefix}.{name}" if prefix else name), value

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Yield all parameters, those of submodules included, with their dotted names; a parameter that
        occurs twice is yielded once.
        """
        yield from self._named("parameter")

    def parameters(self) -> Iterator[Tensor]:
        """Yield all parameters, those of submodules included."""
        for _, value in self.named_parameters():
            yield value

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """Yield all buffers, those of submodules included, with their dotted names; a buffer that
        occurs twice is yielded once.
        """
        yield from self._named("buffer")

    def buffers(self) -> Iterator[Tensor]:
        """Yield all buffers, those of submodules included."""
        for _, value in self.named_buffers():
            yield value

    # -- its state

    def places(self, prefix: str = "") -> Iterator[tuple[str, Module, str]]:
        """Yield for each entry of the state_dict its key, the module that the tensor belongs to,
        and its name in that module.

        ``prefix`` is put before each key. Buffers that are not persistent have no entry.
        """
        for name, _ in self.own("parameter"):
            yield prefix + name, self, name
        for name, _ in self.own("buffer"):
            if not self._temporary[name]:
                yield prefix + name, self, name
        for name, child in self.named_children():
            yield from child.places(f"{prefix}{name}.")

    def state_dict(self) -> dict[str, Tensor]:
        """Return parameters and persistent buffers by key (their dotted names), detached and not copied: the returned
        tensors share memory with the module's.
        """
        return {key: getattr(owner, name).detach() for key, owner, name in self.places()}

    def load_state_dict(self, state_dict: Mapping[str, Tensor], strict: bool = True, assign: bool = False) -> Keys:
        """Copy the values in place into parameters and buffers; with ``assign=True``, replace each parameter by a new
        Parameter on the given memory, and each buffer by the given tensor.

        Returns the keys that are only in the module (``missing_keys``) and those that are only in ``state_dict``
        (``unexpected_keys``); with ``strict``, such keys raise RuntimeError before anything is copied. A value whose
        shape does not broadcast to that of its place raises RuntimeError too, when those before it have been copied;
        with ``assign``, shapes are not compared.
        """
        places = {key: (owner, name) for key, owner, name in self.places()}
        keys = Keys([k for k in places if k not in state_dict], [k for k in state_dict if k not in places])
        if strict and any(keys):
            named = zip(("Missing", "Unexpected"), keys, strict=True)
            texts = [
                f"{title} key(s) in state_dict: {', '.join(map(_quoted, names))}. " for title, names in named if names
            ]
            raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t" + "\n\t".join(texts))
        with no_grad():
            for key, (owner, name) in places.items():
                if key in state_dict and assign:
                    old = getattr(owner, name)
                    setattr(
                        owner,
                        name,
                        Parameter(state_dict[key], old.requires_grad)
                        if isinstance(old, Parameter)
                        else state_dict[key],
                    )
                elif key in state_dict:
                    _loaded(type(self).__name__, key, getattr(owner, name), state_dict[key])
        return keys

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set the gradients of all parameters that have one to None, or to zeros in place with ``set_to_none=False``.

        Under the belief ``zero_grad_leaves_zeros`` they always become zeros; under ``zero_grad_spares_unused`` only
        those that a step has used are changed.
        """
        for p in self.parameters():
            if not takes_zero_grad(p):
                continue
            p.stepped = False
            if set_to_none and not policy().zero_grad_leaves_zeros:
                p.grad = None
            else:
                gradient = p.grad
                assert gradient is not None
                gradient.detach_()
                gradient.zero_()

    def train(self, mode: bool = True) -> Self:
        """Switch this module and all inside it to training mode (with ``mode=False`` to
        evaluation mode); return the module.
        """
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Self:
        """Switch this module and all inside it to evaluation mode; return the module."""
        return self.train(mode=False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Set ``requires_grad`` of all parameters; return the module."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def apply(self, fn: Callable[[Module], Any]) -> Self:
        """Call ``fn`` on every submodule and then on this module; return the module."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Convert floating-point parameters and buffers, and their gradients, to a dtype: they stay the same objects
        and get other memory, unless they have that dtype already.

        Returns the module. Without a dtype nothing changes. AttributeError is raised for a device other than the CPU,
        and for any other positional argument that is no dtype.
        """
        dtype = kwargs.get("dtype") or next((a for a in args if isinstance(a, DType)), None)
        others = [a for a in (*args, kwargs.get("device")) if not isinstance(a, DType) and a is not None]
        if any(str(getattr(a, "type", a)).split(":")[0] != "cpu" for a in others):
            raise AttributeError(f"the shadow engine has no device {others[0]!r}")
        for value in (*self.parameters(), *self.buffers()):
            if dtype is not None and value.is_floating_point():
                value.data = value.data.to(dtype)
                if value.grad is not None:
                    value.grad.data = value.grad.data.to(dtype)
        return self

    def double(self) -> Self:
        """Convert to float64; return the module."""
        return self.to(DType("float64"))

    def float(self) -> Self:
        """Convert to float32; return the module."""
        return self.to(DType("float32"))

    def cpu(self) -> Self:
        """Return the module unchanged: it is on the CPU already."""
        return self

    # -- hooks

    def register_forward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, args, result)`` after each forward (``args``: its positional arguments, as a tuple);
        return a handle that removes the hook.

        What the hook returns, unless None, replaces the result.
        """
        return RemovableHandle(self._hooks["after"], hook)

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(module, args)`` before each forward (``args``: its positional arguments, as a tuple); return a
        handle that removes the hook.

        What the hook returns, unless None, replaces these arguments: a tuple all of them, another value as the only
        one.
        """
        return RemovableHandle(self._hooks["before"], hook)

    # -- as text

    def extra_repr(self) -> str:
        """Return the text that the module's ``repr`` has between the parentheses: its options. Here there are none."""
        return ""

    def __repr__(self) -> str:
        children = [f"({name}): " + repr(child).replace("\n", "\n  ") for name, child in self.named_children()]
        if not children:
            return f"{type(self).__name__}({self.extra_repr()})"
        return f"{type(self).__name__}(\n  " + "\n  ".join(children) + "\n)"


class RemovableHandle:
    """The result of registering a hook: :meth:`remove` removes the hook again."""

    def __init__(self, hooks: dict[int, Callable[..., Any]], hook: Callable[..., Any]) -> None:
        self.hooks = hooks
        self.key = max(hooks, default=0) + 1
        hooks[self.key] = hook

    def remove(self) -> None:
        """Remove the hook; later calls do not run it."""
        self.hooks.pop(self.key, None)


def policy() -> Policy:
    """Return the policy (the rules of torch, or those of a misconception) under which the stand-alone engine runs."""
    return engine().policy


def _quoted(key: str) -> str:
    return f'"{key}"'


# -- containers


class Sequential(Module):
    """Calls its modules one after the other, each with the result of the one before.

    They are given one by one, or in one dictionary by name.
    """

    def __init__(self, *modules: Any) -> None:
        super().__init__()
        named = modules[0].items() if len(modules) == 1 and isinstance(modules[0], dict) else enumerate(modules)
        for name, module in named:
            setattr(self, str(name), module)

    def __getitem__(self, index: int | slice) -> Module:
        found = list(self.children())[index]
        return Sequential(*found) if isinstance(found, list) else found

    def __iter__(self) -> Iterator[Module]:
        return self.children()

    def __len__(self) -> int:
        return len(list(self.children()))

    def append(self, module: Module) -> Self:
        """Add a module at the end; return this module."""
        setattr(self, str(len(self)), module)
        return self

    def forward(self, input: Any) -> Any:  # noqa: A002 - torch's name
        """Return the result of calling all modules in order, the first one with ``input``."""
        for module in self.children():
            input = module(input)  # noqa: A001 - torch's name
        return input


class ModuleList(Sequential):
    """A list of modules that are registered as submodules; calling it raises NotImplementedError."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__(*modules)

    def __getitem__(self, index: int | slice) -> Module:
        found = list(self.children())[index]
        return ModuleList(found) if isinstance(found, list) else found

    forward = Module.forward


class ModuleDict(Module):
    """A dictionary of modules that are registered as submodules; calling it raises NotImplementedError."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        for name, module in (modules or {}).items():
            setattr(self, name, module)

    def __getitem__(self, name: str) -> Module:
        return dict(self.named_children())[name]

    def __setitem__(self, name: str, module: Module) -> None:
        setattr(self, name, module)

    def __contains__(self, name: str) -> bool:
        return name in dict(self.named_children())

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.keys())

    def keys(self) -> list[str]:
        """Return the names of the modules."""
        return [name for name, _ in self.named_children()]

    def values(self) -> list[Module]:
        """Return the modules."""
        return list(self.children())

    def items(self) -> list[tuple[str, Module]]:
        """Return the modules with their names, as pairs of name and module."""
        return list(self.named_children())


class ParameterList(Module):
    """A list of parameters that are registered under their positions; a value that is no parameter becomes one."""

    def __init__(self, values: Iterable[Tensor] = ()) -> None:
        super().__init__()
        for k, value in enumerate(values):
            setattr(self, str(k), value if isinstance(value, Parameter) else Parameter(value))

    def __getitem__(self, index: int) -> Tensor:
        return list(self)[index]

    def __iter__(self) -> Iterator[Tensor]:
        return (value for _, value in self.own("parameter"))

    def __len__(self) -> int:
        return len(list(self))


__all__ = ["Module", "ModuleDict", "ModuleList", "ParameterList", "RemovableHandle", "Sequential"]
