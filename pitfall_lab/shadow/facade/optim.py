"""``torch.optim`` for the facade, in the in-place operations that torch's for-loop versions use.

With ``foreach=True`` the same operations run here, parameter by parameter (:class:`ASGD` and :class:`Rprop`: partly
other ones, as in torch's foreach form); ``fused=True`` does not increase the versions of the parameters. Source in
torch: the ``_single_tensor_*`` functions in ``torch/optim``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from pitfall_lab.shadow.errors import Absent, Unmodelled
from pitfall_lab.shadow.facade.tensors import (
    Tensor,
    call,
    enable_grad,
    engine,
    set_grad_enabled,
    speaking,
    takes_zero_grad,
)

State = dict[str, Any]
Group = dict[str, Any]


class Optimizer:
    """The base class of optimizers: ``param_groups``, ``state`` (for each parameter a dictionary), and :meth:`step`.

    Subclasses give their ``options`` with torch's defaults, say in ``begin`` what is put into the state of a parameter
    at its first step, and in ``update`` how one parameter is changed. The constructor raises what torch's does:
    ``TypeError`` for an unknown option, ``RuntimeError`` for ``fused`` together with ``differentiable`` or ``foreach``,
    ``ValueError`` without parameters, and what :meth:`add_param_group` raises. ``lr`` None means the default.
    """

    options: ClassVar[dict[str, Any]] = {}

    def __init__(self, params: Iterable[Any], lr: float | None = None, **given: Any) -> None:
        known = {**self.options, "maximize": False, "foreach": None, "differentiable": False}
        for name in given:
            if name not in known:
                raise TypeError(f"{type(self).__name__}.__init__() got an unexpected keyword argument {name!r}")
        if given.get("fused") and given.get("differentiable"):
            raise RuntimeError("`fused` does not support `differentiable`")
        if given.get("fused") and given.get("foreach"):
            raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
        self.defaults = {**known, **given} | ({} if lr is None else {"lr": lr})
        self.param_groups: list[Group] = []
        self.state: dict[Tensor, State] = {}
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)

    def add_param_group(self, param_group: Group) -> None:
        """Add a group of parameters: ``param_group`` is a dictionary with ``"params"`` (a tensor or several) and
        options; options that it does not have are the optimizer's defaults.

        Raises ValueError for a parameter that is no leaf and does not retain its gradient, or that is in a group
        already.
        """
        params = param_group["params"]
        params = [params] if isinstance(params, Tensor) else list(params)
        for p in params:
            if not (p.is_leaf or p.retains_grad):
                raise ValueError("can't optimize a non-leaf Tensor")
        if any(p is q for p in params for group in self.param_groups for q in group["params"]):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append({**self.defaults, **param_group, "params": params})

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set the gradients of all parameters that have one to None, or to zeros in place with ``set_to_none=False``.

        Under the belief ``zero_grad_leaves_zeros`` they always become zeros; under ``zero_grad_spares_unused`` only
        those that a step has used are changed.
        """
        for p in (p for group in self.param_groups for p in group["params"]):
            if not takes_zero_grad(p):
                continue
            p.stepped = False
            if set_to_none and not engine().policy.zero_grad_leaves_zeros:
                p.grad = None
            else:
                gradient = call("torch.Tensor.grad.__get__", p)
                gradient = gradient.requires_grad_(False) if gradient.grad_fn is None else gradient.detach_()
                gradient.zero_()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient, in place.

        ``closure``, if given, is called once before that, with grad mode on, to compute the loss again; its result is
        returned, else None.

        Raises what the operations raise (RuntimeError or TypeError where torch does, among others), NotImplementedError
        for what the engine has no model of (``Unmodelled``), and AttributeError for a class without ``update``, or
        without ``fused`` in a fused step.
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        for group in self.param_groups:
            given = [p for p in group["params"] if p.shadow.gradient is not None]
            self.check(given, group)
            known = {p: set(self.state.get(p, ())) for p in given}
            with set_grad_enabled(group["differentiable"]):
                try:
                    for p in given:
                        self._advance(p, group)
                        p.stepped = True
                except Exception as error:
                    if (group.get("foreach") or group.get("fused")) and len(given) > 1 and hasattr(error, "shadow"):
                        with speaking():
                            raise Unmodelled(
                                "a foreach or fused step that raises after it has updated some parameters"
                            ) from error
                    self.give_up(known)
                    raise
        if engine().policy.step_clears_grads:
            self.zero_grad()
        return loss

    def check(self, params: list[Tensor], group: Group) -> None:
        """Raise an error if ``params``, the parameters of ``group`` that have a gradient, cannot be updated; called
        before any of them is changed (the groups before have been updated by then).

        In this base class nothing is checked.
        """

    def give_up(self, known: dict[Tensor, set[str]]) -> None:
        """Called when the update of a parameter has raised: remove the state that torch stores only when all parameters
        of the group were updated. ``known`` has, for each parameter of the group that has a gradient, the keys of its
        state before the step. Not called for a foreach or fused step of several parameters.

        In this base class there is no such state.
        """

    def _advance(self, p: Tensor, group: Group) -> None:
        state = self.state.get(p)
        if state is None:
            state = self.state[p] = {}
            self.begin(p, state, group)
        if group.get("fused"):
            self.fused(p, p.grad, state, group)
            return
        gradient: Any = p.grad
        if group["maximize"]:
            gradient = -gradient
        if "step" in state:
            call("torch.Tensor.add_", state["step"], 1)
        if group.get("weight_decay") and self.decays(group):
            p.mul_(1 - group["lr"] * group["weight_decay"])
        elif group.get("weight_decay"):
            gradient = gradient.add(p, alpha=group["weight_decay"])
        self.update(p, gradient, state, group)

    @staticmethod
    def decays(group: Group) -> bool:
        """Whether weight decay acts on the parameter itself (AdamW) rather than on its gradient."""
        return bool(group.get("decoupled_weight_decay"))

    def begin(self, p: Tensor, state: State, group: Group) -> None:
        """Fill the empty ``state`` of the parameter ``p``, which is updated for the first time. In this base class it
        stays empty.
        """

    def update(self, p: Tensor, gradient: Any, state: State, group: Group) -> None:
        """Update the parameter ``p`` in place from its gradient, with its ``state`` and the options in ``group``; each
        subclass defines it.

        Raises ``AttributeError`` in a class that does not.
        """
        raise AttributeError(f"{type(self).__name__} has no update")

    def fused(self, p: Tensor, gradient: Any, state: State, group: Group) -> None:
        """Update one parameter as torch's fused kernel does, which does not increase the version of the parameter.

        Raises ``AttributeError`` for an optimizer that has no such kernel.
        """
        raise AttributeError(f"{type(self).__name__} has no fused form")

    # -- saving

    def state_dict(self) -> dict[str, Any]:
        """Return the state by the position of each parameter, and the groups with positions for
        parameters; tensors are not copied.
        """
        order = [p for group in self.param_groups for p in group["params"]]
        number = {id(p): k for k, p in enumerate(order)}
        groups = [{**group, "params": [number[id(p)] for p in group["params"]]} for group in self.param_groups]
        return {"state": {number[id(p)]: state for p, state in self.state.items()}, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Replace the state, and the options of the groups, by those in ``state_dict``. The tensors that are saved
        there are used themselves where they have the parameter's dtype or it is no floating-point one, else converted
        copies (of all but ``step``).

        Raises ValueError if the number of groups, or of parameters in one of them, is another.
        """
        order = [p for group in self.param_groups for p in group["params"]]
        if [len(g["params"]) for g in state_dict["param_groups"]] != [len(g["params"]) for g in self.param_groups]:
            raise ValueError(
                "loaded state dict contains a parameter group that doesn't match the size of optimizer's group"
            )
        self.state = {
            order[k]: {
                key: _fitting(v, order[k]) if isinstance(v, Tensor) and key != "step" else v for key, v in state.items()
            }
            for k, state in state_dict["state"].items()
        }
        for group, saved in zip(self.param_groups, state_dict["param_groups"], strict=True):
            group.update({key: value for key, value in saved.items() if key != "params"})


def _fitting(saved: Tensor, p: Tensor) -> Tensor:
    return call("torch.Tensor.to", saved, dtype=p.dtype) if p.is_floating_point() else saved


def _like(p: Tensor) -> Tensor:
    return call("torch.zeros_like", p)  # type: ignore[no-any-return]


def _step() -> Tensor:
    return call("torch.tensor", 0.0)  # type: ignore[no-any-return]


def _number(tensor: Tensor) -> float:
    return float(call("torch.Tensor.item", tensor))


class SGD(Optimizer):
    """``p -= lr * grad``, with momentum and weight decay."""

    options: ClassVar[dict[str, Any]] = {
        "lr": 1e-3, "momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0, "nesterov": False, "fused": None,
    }  # fmt: skip

    def check(self, params: list[Tensor], group: Group) -> None:
        """Raise TypeError if, in a fused step with momentum, some of the parameters have a momentum buffer and others
        have none.

        If the parameters also have several dtypes, NotImplementedError is raised instead: the engine has no model of
        that (``Unmodelled``).
        """
        missing = ["momentum_buffer" not in self.state.get(p, {}) for p in params]
        if group.get("fused") and group["momentum"] and any(missing) and not all(missing):
            if len({str(p.dtype) for p in params}) > 1:
                with speaking():
                    raise Unmodelled(
                        "a fused SGD step whose parameters have several dtypes, only some of them "
                        "with a momentum buffer"
                    )
            raise TypeError(f"expected Tensor as element {missing.index(True)} in argument 2, but got NoneType")

    def give_up(self, known: dict[Tensor, set[str]]) -> None:
        """Remove the momentum buffers that the failed step has made (``known``: the keys of each state before it):
        torch stores them only after all parameters were updated.
        """
        for p, keys in known.items():
            if "momentum_buffer" not in keys:
                self.state.get(p, {}).pop("momentum_buffer", None)

    def update(self, p: Tensor, gradient: Any, state: State, group: Group) -> None:
        """Update ``p`` by one step of gradient descent, with momentum; weight decay is in ``gradient`` already."""
        momentum = group["momentum"]
        if momentum:
            buffer = state.get("momentum_buffer")
            if buffer is None:
                state["momentum_buffer"] = buffer = gradient.detach().clone()
            else:
                buffer.mul_(momentum).add_(gradient, alpha=1 - group["dampening"])
            gradient = gradient.add(buffer, alpha=momentum) if group["nesterov"] else buffer
        p.add_(gradient, alpha=-group["lr"])

    def fused(self, p: Tensor, gradient: Any, state: State, group: Group) -> None:
        """Update ``p`` in place as :meth:`update` does, without increasing any version."""
        first = group["momentum"] and "momentum_buffer" not in state
        if first:
            state["momentum_buffer"] = call("torch.empty_like", gradient)
        given = {k: group[k] for k in ("weight_decay", "momentum", "lr", "dampening", "nesterov", "maximize")}
        buffers = [state["momentum_buffer"]] if group["momentum"] else []
        call("torch._fused_sgd_", [p], [gradient], buffers, is_first_step=bool(first), **given)


class Adam(Optimizer):
    """Adam: divides the running mean of gradients by the root of the running mean of their squares, both
    corrected for starting at zero.
    """

    options: ClassVar[dict[str, Any]] = {
        "lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0, "amsgrad": False, "fused": None,
        "decoupled_weight_decay": False,
    }  # fmt: skip

    def begin(self, p: Tensor, state: State, group: Group) -> None:
        """State of a new parameter: the count of steps, the means of the gradients and of their squares, with
        ``amsgrad`` also the largest of the latter.
        """
        state.update(step=_step(), exp_avg=_like(p), exp_avg_sq=_like(p))
        if group.get("amsgrad"):
            state["max_exp_avg_sq"] = _like(p)

    @staticmethod
    def means(gradient: Any, state: State, group: Group) -> None:
        """Update the running means of the gradients and of their squares in place."""
        first, second = group["betas"]
        state["exp_avg"].lerp_(gradient, 1 - first)
        state["exp_avg_sq"].mul_(second).addcmul_(gradient, gradient, value=1 - second)

    def update(self, p: Tensor, gradient: Any, state: State, group: Group) -> None:
        """One step of Adam."""
        self.means(gradient, state, group)
        (first, second), count, square = group["betas"], _number(state["step"]), state["exp_avg_sq"]
        if group["amsgrad"]:
            square = call("torch.maximum", state["max_exp_avg_sq"], square, out=state["max_exp_avg_sq"])
        root = (square.sqrt() / (1 - second**count) ** 0.5).add_(group["eps"])
        p.addcdiv_(state["exp_avg"], root, value=-group["lr"] / (1 - first**count))

    def fused(self, p: Tensor, gradient: Any, state: State, group: Group) -> None:
        """Update ``p`` in place as :meth:`update` does; only the version of the step count increases."""
        call("torch.Tensor.add_", state["step"], 1)
        given = {k: group[k] for k in ("lr", "weight_decay", "eps", "amsgrad", "maximize")}
        first, second = group["betas"]
        largest = [state["max_exp_avg_sq"]] if group["amsgrad"] else []
        name = "torch._fused_adamw_" if self.decays(group) else "torch._fused_adam_"
        lists = [p], [gradient], [state["exp_avg"]], [state["exp_avg_sq"]], largest, [state["step"]]
        call(name, *lists, beta1=first, beta2=second, **given)


class AdamW(Adam):
    """Adam with weight decay applied to the parameters: a step first shrinks each parameter that has a gradient, then
    updates it, so it writes it twice; once if ``weight_decay`` is 0 or the step is ``fused``.
    """

    options: ClassVar[dict[str, Any]] = {**Adam.options, "weight_decay": 1e-2, "decoupled_weight_decay": True}


class NAdam(Adam):
    """Adam with Nesterov momentum: a step writes a parameter that has a gradient twice, or three times with
    ``decoupled_weight_decay``.
    """

    options: ClassVar[dict[str, Any]] = {
        "lr": 2e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0, "momentum_decay": 4e-3,
        "decoupled_weight_decay": False,
    }  # fmt: skip

    def begin(self, p: Tensor, state: State, group: Group) -> None:
        """State of a new parameter: as for Adam, and the product of all momenta so far."""
        state.update(step=_step(), mu_product=call("torch.ones", ()), exp_avg=_like(p), exp_avg_sq=_like(p))

    def update(self, p: Tensor, gradient: Any, state: State, group: Group) -> None:
        """One step of NAdam."""
        (first, second), count, decay = group["betas"], _number(state["step"]), group["momentum_decay"]
        mu = first * (1 - 0.5 * 0.96 ** (count * decay))
        following = first * (1 - 0.5 * 0.96 ** ((count + 1) * decay))
        call("torch.Tensor.mul_", state["mu_product"], mu)
        self.means(gradient, state, group)
        root = state["exp_avg_sq"].div(1 - second**count).sqrt().add_(group["eps"])
        product = _number(state["mu_product"])
        p.addcdiv_(gradient, root, value=-group["lr"] * (1 - mu) / (1 - product))
        p.addcdiv_(state["exp_avg"], root, value=-group["lr"] * following / (1 - product * following))


class RAdam(Adam):
    """Adam that uses only momentum in its first steps, until the running mean of squares has little variance."""

    options: ClassVar[dict[str, Any]] = {
        "lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0, "decoupled_weight_decay": False,
    }  # fmt: skip

    def update(self, p: Tensor, gradient: Any, state: State, group: Group) -> None:
        """One step of RAdam; while ``rho`` is at most 5, by momentum alone."""
        self.means(gradient, state, group)
        (first, second), count = group["betas"], _number(state["step"])
        corrected = state["exp_avg"] / (1 - first**count)
        limit = 2 / (1 - second) - 1
        rho = limit - 2 * count * second**count / (1 - second**count)
        move = corrected * group["lr"]
        if rho > 5:
            rectified = ((rho - 4) * (rho - 2) * limit / ((limit - 4) * (limit - 2) * rho)) ** 0.5
            move = move * ((1 - second**count) ** 0.5 / state["exp_avg_sq"].sqrt().add_(group["eps"])) * rectified
        p.add_(move, alpha=-1.0)


class RMSprop(Optimizer):
    """The gradient divided by the root of the mean of its square."""

    options: ClassVar[dict[str, Any]] = {
        "lr": 1e-2, "alpha": 0.99, "eps": 1e-8, "weight_decay": 0.0, "momentum": 0.0, "centered": False,
    }  # fmt: skip

    def begin(self, p: Tensor, state: State, group: Group) -> None:
        """State of a new parameter: the count of steps and the mean of squared gradients; with options also the mean of
        gradients and a momentum buffer.
        """
        state.update(step=_step(), square_avg=_like(p))
        if group["momentum"]:
            state["momentum_buffer"] = _like(p)
        if group["centered"]:
            state["grad_avg"] = _like(p)

    def update(self, p: Tensor, gradient: Any, state: State, group: Group) -> None:
        """One step of RMSprop, with a momentum buffer and a centred mean if the group asks for them."""
        alpha, square = group["alpha"], state["square_avg"]
        square.mul_(alpha).addcmul_(gradient, gradient, value=1 - alpha)
        if group["centered"]:
            mean = state["grad_avg"]
            mean.lerp_(gradient, 1 - alpha)
            root = square.addcmul(mean, mean, value=-1).sqrt_()
        else:
            root = square.sqrt()
        root = root.add_(group["eps"])
        if group["momentum"]:
            state["momentum_buffer"].mul_(group["momentum"]).addcdiv_(gradient, root)
            p.add_(state["momentum_buffer"], alpha=-group["lr"])
        else:
            p.addcdiv_(gradient, root, value=-group["lr"])


class Adagrad(Optimizer):
    """The gradient divided by the root of the sum of its squares."""

    options: ClassVar[dict[str, Any]] = {
        "lr": 1e-2, "lr_decay": 0.0, "weight_decay": 0.0, "initial_accumulator_value": 0.0, "eps": 1e-10, "fused": None,
    }  # fmt: skip

    def add_param_group(self, param_group: Group) -> None:
        """Add a group of parameters as :meth:`Optimizer.add_param_group` does, and make their state at once, also for
        parameters that never get a gradient.
        """
        super().add_param_group(param_group)
        for p in self.param_groups[-1]["params"]:
            start = self.param_groups[-1]["initial_accumulator_value"]
            self.state[p] = {"step": _step(), "sum": call("torch.full_like", p, start)}

    def update(self, p: Tensor, gradient: Any, state: State, group: Group) -> None:
        """One step of Adagrad."""
        rate = group["lr"] / (1 + (_number(state["step"]) - 1) * group["lr_decay"])
        state["sum"].addcmul_(gradient, gradient, value=1)
        p.addcdiv_(gradient, state["sum"].sqrt().add_(group["eps"]), value=-rate)

    def fused(self, p: Tensor, gradient: Any, state: State, group: Group) -> None:
        """Update ``p`` in place as :meth:`update` does; only the version of the step count increases."""
        call("torch.Tensor.add_", state["step"], 1)
        given = {k: group[k] for k in ("lr", "lr_decay", "weight_decay", "eps", "maximize")}
        call("torch._fused_adagrad_", [p], [gradient], [state["sum"]], [state["step"]], **given)


class Adadelta(Optimizer):
    """Adadelta: scales each step by the ratio of the running means of past steps and gradients."""

    options: ClassVar[dict[str, Any]] = {"lr": 1.0, "rho": 0.9, "eps": 1e-6, "weight_decay": 0.0}

    def begin(self, p: Tensor, state: State, group: Group) -> None:
        """State of a new parameter: the count of steps, the means of the squares of its gradients and of its steps."""
        state.update(step=_step(), square_avg=_like(p), acc_delta=_like(p))

    def update(self, p: Tensor, gradient: Any, state: State, group: Group) -> None:
        """One step of Adadelta."""
        rho, eps = group["rho"], group["eps"]
        state["square_avg"].mul_(rho).addcmul_(gradient, gradient, value=1 - rho)
        move = state["acc_delta"].add(eps).sqrt_()
        move.div_(state["square_avg"].add(eps).sqrt_()).mul_(gradient)
        state["acc_delta"].mul_(rho).addcmul_(move, move, value=1 - rho)
        p.add_(move, alpha=-group["lr"])


class Adamax(Optimizer):
    """Adam with the largest absolute gradient, decayed at each step, in place of the running mean of squares."""

    options: ClassVar[dict[str, Any]] = {"lr": 2e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0}

    def begin(self, p: Tensor, state: State, group: Group) -> None:
        """State of a new parameter: the count of steps, the mean of the gradients and their largest absolute value."""
        state.update(step=_step(), exp_avg=_like(p), exp_inf=_like(p))

    def update(self, p: Tensor, gradient: Any, state: State, group: Group) -> None:
        """One step of Adamax."""
        first, second = group["betas"]
        state["exp_avg"].lerp_(gradient, 1 - first)
        call("torch.maximum", state["exp_inf"].mul_(second), gradient.abs().add_(group["eps"]), out=state["exp_inf"])
        p.addcdiv_(state["exp_avg"], state["exp_inf"], value=-group["lr"] / (1 - first ** _number(state["step"])))


class ASGD(Optimizer):
    """Gradient descent that also keeps the mean of the parameters (``state["ax"]``)."""

    options: ClassVar[dict[str, Any]] = {"lr": 1e-2, "lambd": 1e-4, "alpha": 0.75, "t0": 1e6, "weight_decay": 0.0}

    def begin(self, p: Tensor, state: State, group: Group) -> None:
        """State of a new parameter: the count of steps, the present learning rate, the weight of the averaged
        parameter, and that average.
        """
        state.update(step=_step(), eta=call("torch.tensor", group["lr"]), mu=call("torch.ones", ()), ax=_like(p))

    def update(self, p: Tensor, gradient: Any, state: State, group: Group) -> None:
        """One step of averaged gradient descent: two changes of the parameter, one in the foreach form."""
        rate, count = _number(state["eta"]), _number(state["step"])
        if group["foreach"]:
            p.add_(gradient.add(p, alpha=group["lambd"]), alpha=-rate)
        else:
            p.mul_(1 - group["lambd"] * rate)
            p.add_(gradient, alpha=-rate)
        if _number(state["mu"]) != 1:
            state["ax"].add_(p.sub(state["ax"]).mul_(state["mu"]))
        else:
            state["ax"].copy_(p)
        lr = group["lr"]
        state["eta"].copy_(call("torch.tensor", lr / (1 + group["lambd"] * lr * count) ** group["alpha"]))
        state["mu"].copy_(call("torch.tensor", 1 / max(1, count - group["t0"])))


class Rprop(Optimizer):
    """Rprop: step sizes per element that grow and shrink by the signs of successive
    gradients; their size is not used.
    """

    options: ClassVar[dict[str, Any]] = {"lr": 1e-2, "etas": (0.5, 1.2), "step_sizes": (1e-6, 50)}

    def begin(self, p: Tensor, state: State, group: Group) -> None:
        """State of a new parameter: the count of steps, its last gradient, and for each element the size of its next
        step.
        """
        state.update(step=_step(), prev=_like(p), step_size=call("torch.full_like", p, group["lr"]))

    def update(self, p: Tensor, gradient: Any, state: State, group: Group) -> None:
        """One step of Rprop; an element whose gradient has changed its sign is not moved."""
        less, more = group["etas"]
        sign = gradient.mul(state["prev"]).sign()
        sign[sign.gt(0)] = more
        sign[sign.lt(0)] = less
        sign[sign.eq(0)] = 1
        state["step_size"].mul_(sign).clamp_(*group["step_sizes"])
        # the foreach form works in the memory of the last gradient, which is therefore changed twice
        gradient = state["prev"].copy_(gradient) if group["foreach"] else gradient.clone()
        gradient[sign.eq(less)] = 0
        p.addcmul_(gradient.sign(), state["step_size"], value=-1)
        if not group["foreach"]:
            state["prev"].copy_(gradient)


def __getattr__(name: str) -> Any:
    """Raise an error that names what the shadow engine does not have of ``torch.optim``."""
    raise Absent(f"the shadow engine has no torch.optim.{name}")


__all__ = [
    "ASGD",
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
]
