"""Errors about a state dict: names with another prefix, a head of another size, a state inside a checkpoint, a model on
``meta``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Fix, Related
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called, is_name, operand, torch_name
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.refusals.remedies.edits import keyword_set, renamed, with_keyword
from pitfall_lab.rules.refusals.remedy import Error, Remedy
from pitfall_lab.rules.signals.schedules import call_of
from pitfall_lab.trace import Span, T

WHOLE = ("model", "state_dict", "model_state_dict", "net", "network", "weights", "module", "params")
"""Keys under which a checkpoint often has the state dict of a model."""
KEY = re.compile(r'"([^"]+)"')
MOST_VALUES = 6
"""So many values of a saved dict are tried as NumPy numbers."""
COUNTER = "num_batches_tracked"
"""An entry of a batch norm whose absence torch does not report."""


def that_does_not_fit(error: Error) -> Remedy | None:
    """Return the remedy for a state dict that does not fit a module, from the names and sizes in torch's message; None
    if the line does not show the call and the state.

    Its fixes remove a prefix from the names, load into a submodule, take the model's entry of a checkpoint, leave out
    the entries of one module, or pass ``strict=False``.
    """
    refused, program = error.refused, error.refused.story.program
    call, statement = refused.call, program.statement_at(refused.span)
    state = (
        (call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "state_dict"), None))
        if call is not None
        else None
    )
    if call is None or state is None or statement is None or not isinstance(call.func, ast.Attribute):
        return None
    lines = refused.message.splitlines()
    missing, unexpected = (_keys(lines, word) for word in ("Missing key(s)", "Unexpected key(s)"))
    sizes = re.findall(r"size mismatch for ([\w.]+):", refused.message)
    fixes = list(_renamings(program, call, state, missing, unexpected))
    if sizes and not missing and not unexpected:
        fixes.append(_without(program, statement, call, state, _prefixes(sizes)))
    elif unexpected and not missing and not sizes:
        fixes.append(_without(program, statement, call, state, _prefixes(unexpected), strict=True))
    elif missing and not unexpected and not sizes and len(_parts(missing)) == 1:
        part, change = _parts(missing)[0], keyword_set(program, call, "strict=False")
        title = T(
            en=f"Let the new part `{part}` begin as it was made: `strict=False`",
            zh=f"让新的部分 `{part}` 保持初始值：`strict=False`",
        )
        fixes.append(Fix(title, program.splice(change), meaning="later") if change is not None else None)
    return Remedy(unique(program.text, fixes))


def _keys(lines: list[str], word: str) -> list[str]:
    return [key for line in lines if word in line for key in KEY.findall(line)]


def _parts(keys: list[str]) -> list[str]:
    """The names of the outermost modules in the keys: ``fc`` for ``fc.weight``."""
    return list(dict.fromkeys(key.partition(".")[0] for key in keys))


def _prefixes(keys: list[str]) -> list[str]:
    """The prefixes of the innermost modules in the keys: ``fc.`` for ``fc.weight`` and ``fc.bias``."""
    return list(dict.fromkeys(f"{key.rpartition('.')[0]}." for key in keys if "." in key))


def _renamings(
    program: Program, call: ast.Call, state: ast.expr, missing: list[str], unexpected: list[str]
) -> Iterator[Fix | None]:
    text = operand(program, state)
    assert isinstance(call.func, ast.Attribute)
    for key in unexpected:
        if key in WHOLE and missing:
            new = f'{text}["{key}"]'
            title = T(
                en=f"Load the state that the checkpoint has for the model: `{new}`",
                zh=f"装入检查点中模型的状态：`{new}`",
            )
            yield Fix(title, program.replace((state, new)), meaning="later")
    prefix = _common(unexpected, [*missing, *(f"{part}{COUNTER}" for part in _prefixes(missing))])
    if prefix:
        new = f'{{name.removeprefix("{prefix}"): value for name, value in {text}.items()}}'
        title = T(en=f"Take the prefix `{prefix}` off the names", zh=f"去掉名字的前缀 `{prefix}`")
        yield Fix(title, program.replace((state, new)), meaning="later")
    elif prefix := _of_some(unexpected, missing):
        new = (
            f'{{name.removeprefix("{prefix}"): value for name, value in {text}.items() if name.startswith("{prefix}")}}'
        )
        title = T(
            en=f"Take the entries of `{prefix[:-1]}` alone, without the prefix",
            zh=f"只取 `{prefix[:-1]}` 的条目，并去掉前缀",
        )
        yield Fix(title, program.replace((state, new)), meaning="later")
    for mark in _marks(unexpected, missing):
        new = f'{{name.replace("{mark}", ""): value for name, value in {text}.items()}}'
        title = T(en=f"Take `{mark}` out of the names", zh=f"去掉名字中的 `{mark}`")
        yield Fix(title, program.replace((state, new)), meaning="later")
    inner = _common(missing, unexpected)
    if inner:
        owner = operand(program, call.func.value)
        for part in inner.rstrip(".").split("."):
            owner += f"[{part}]" if part.isdigit() else f".{part}"
        title = T(en=f"Load it into the part that it was saved from: `{owner}`", zh=f"装入保存它的那一部分：`{owner}`")
        yield Fix(title, program.replace((call.func.value, owner)), meaning="later")


def _common(longer: list[str], shorter: list[str]) -> str:
    """The prefix whose removal turns every name in ``longer`` into one in ``shorter``; an empty string if there is
    none.
    """
    for short in shorter:
        for name in longer[:1]:
            if name.endswith(short) and name != short:
                prefix = name[: len(name) - len(short)]
                if all(each.startswith(prefix) and each[len(prefix) :] in shorter for each in longer):
                    return prefix
    return ""


def _of_some(longer: list[str], shorter: list[str]) -> str:
    """The only prefix, up to a dot, whose removal from some names in ``longer`` gives all names in ``shorter``; an
    empty string if there is none, or several.
    """
    known, first = set(longer), f".{shorter[0]}" if shorter else "\n"
    prefixes = [name[: len(name) - len(first) + 1] for name in longer if name.endswith(first)]
    whole = [prefix for prefix in prefixes if all(f"{prefix}{each}" in known for each in shorter)]
    return whole[0] if len(whole) == 1 else ""


def _marks(longer: list[str], shorter: list[str]) -> list[str]:
    """A list of one component of the names in ``longer``, such as ``_orig_mod.``, whose removal gives all names in
    ``shorter``.

    Empty if there is none, or if all names in ``longer`` begin with it.
    """
    parts = dict.fromkeys(f"{part}." for name in longer for part in name.split(".")[:-1])
    inside = [mark for mark in parts if not all(name.startswith(mark) for name in longer)]
    return [mark for mark in inside if set(shorter) <= {name.replace(mark, "") for name in longer}][:1]


def _without(
    program: Program, statement: ast.stmt, call: ast.Call, state: ast.expr, prefixes: list[str], *, strict: bool = False
) -> Fix | None:
    """The fix that leaves the entries with a prefix out of the state, as for a head of another size; None unless there
    is exactly one prefix.

    With ``strict``, the loading stays strict; else it gets ``strict=False``.
    """
    if len(prefixes) != 1:
        return None
    own, text = prefixes[0], operand(program, state)
    kept = f'{{name: value for name, value in {text}.items() if not name.startswith("{own}")}}'
    change = None if strict else keyword_set(program, call, "strict=False")
    title = T(
        en=f"Leave out the entries of `{own[:-1]}`, which is made anew", zh=f"去掉 `{own[:-1]}` 的条目，它是新建的"
    )
    if isinstance(state, ast.Name) and program.stands_alone(statement):
        place = program.place(statement)
        line = (
            type(place)(place.line, place.column, place.line, place.column),
            f"{text} = {kept}\n{program.indent(statement)}",
        )
        return Fix(title, program.splice(line, *([change] if change is not None else [])), meaning="later")
    return Fix(
        title, program.splice((program.place(state), kept), *([change] if change is not None else [])), meaning="later"
    )


def on_meta(error: Error) -> Remedy | None:
    """Return the remedy for an error of a model on the device ``meta``, into whose tensors no state can be copied, with
    the fix ``load_state_dict(state, assign=True)``.

    If no ``load_state_dict`` into such a model precedes the error, the remedy for ``model.to(device)``
    (:func:`_moved`), or None.
    """
    refused, story, program = error.refused, error.refused.story, error.refused.story.program
    for loading in reversed(story.trace.beside.loadings):
        devices = {str((story.tensor(label, refused.step) or {}).get("device")) for label in loading.holds}
        call = call_of(story, loading.span)
        change = with_keyword(program, call, "assign=True") if call is not None and devices == {"meta"} else None
        if change is None or loading.span is None or call is None or loading.step > refused.step:
            continue
        place = program.place(call)
        where, here = at_line(story, place), at_line(story, refused.span)
        made = _built(story, loading.holds)
        en, zh = (f" ({at_line(story, made).en})", f"（{at_line(story, made).zh}）") if made is not None else ("", "")
        name = refused.name(error.wrong).en if error.wrong is not None else "the result"
        said = T(
            en=f"{capital(where.en)} loads a state into a `{loading.module}` that was made on the device `meta`{en}: "
            f"nothing can be copied into tensors without memory, so {name} on {here.en} has no numbers either.",
            zh=f"{where.zh}把状态装入在 `meta` 设备上建立的 `{loading.module}`{zh}：没有内存的张量什么也装不下，所"
            f"以{here.zh}的 {name} 也没有数值。",
        )
        accepts = T(
            en="a model that takes over the tensors of the state: `load_state_dict(state, assign=True)`",
            zh="直接接管状态中的张量的模型：`load_state_dict(state, assign=True)`",
        )
        title = T(
            en="Let the model take over the tensors of the state: `assign=True`",
            zh="让模型接管状态中的张量：`assign=True`",
        )
        related = (Related("used", place, loading.step, T(en="nothing is copied here", zh="这里什么也没有复制")),)
        return Remedy(
            (Fix(title, program.splice(change), meaning="later"),), said, accepts, place, loading.step, related
        )
    return _moved(error)


def _built(story: Story, parameters: tuple[str, ...]) -> Span | None:
    """The span of the statement that created a module, outside any ``__init__``; None if it is unknown."""
    born = next((story.event((story.tensor(label) or {}).get("born")) for label in parameters), None)
    for statement in call_chain(story, born):
        function = story.program.function(statement)
        if function is None or function.name != "__init__":
            return story.program.place(statement)
    return None


def _moved(error: Error) -> Remedy | None:
    """The remedy for ``model.to(device)`` of a model on ``meta`` whose state is loaded on a later line, with the fix
    ``to_empty``; None for other calls.
    """
    program, call = error.refused.story.program, error.refused.call
    later = [
        n
        for n in program.nodes
        if isinstance(n, ast.Call) and called(n) == "load_state_dict" and call is not None and n.lineno > call.lineno
    ]
    if call is None or called(call) != "to" or len(call.args) != 1 or call.keywords or not later:
        return None
    name, device = renamed(program, call, "to_empty"), program.segment(call.args[0])
    title = T(
        en="Make memory for it, which the state then fills: `to_empty`", zh="先分配内存，再由状态填充：`to_empty`"
    )
    return Remedy(
        (Fix(title, program.splice(name, (program.place(call.args[0]), f"device={device}")), meaning="later"),)
    )


def not_a_state(error: Error) -> Remedy | None:
    """Return the remedy for a path or a module that is passed instead of a state dict, with the fix
    ``torch.load(path)`` or ``module.state_dict()``.

    None if the line does not show it, or if the program has no name for torch.
    """
    refused, program, torch = error.refused, error.refused.story.program, torch_name(error.refused.story.program)
    call = refused.call
    state = call.args[0] if call is not None and call.args else None
    if state is None or torch is None:
        return None
    kind, text = error.match[1], program.segment(state)
    if kind in ("str", "pathlib.PosixPath", "pathlib.WindowsPath", "PosixPath"):
        new = f"{torch}.load({text})"
        title = T(en=f"Read the file first: `{new}`", zh=f"先读取文件：`{new}`")
    else:
        new = f"{operand(program, state)}.state_dict()"
        title = T(en=f"Give its state: `{new}`", zh=f"给出它的状态：`{new}`")
    said = T(
        en=f"{refused.words('en')['Line']} gives `load_state_dict` a {kind}, `{text}`; it takes the state itself, a "
        "dictionary of tensors.",
        zh=f"{refused.words('zh')['Line']}交给 `load_state_dict` 的是 {kind}（`{text}`），而它要的是状"
        "态本身，即张量的字典。",
    )
    accepts = T(en=f"a dictionary of tensors by name, such as `{new}`", zh=f"按名字存放张量的字典，例如 `{new}`")
    return Remedy((Fix(title, program.replace((state, new)), meaning="later"),), said, accepts)


def whole_objects(error: Error) -> Remedy | None:
    """Return the remedy for a file with other objects than tensors, in a program that calls ``torch.save`` itself, with
    the fix ``weights_only=False``.

    None for other programs and other errors.
    """
    refused, program = error.refused, error.refused.story.program
    call = refused.call
    saves = [n for n in program.nodes if isinstance(n, ast.Call) and program.segment(n.func).endswith("torch.save")]
    change = (
        keyword_set(program, call, "weights_only=False")
        if call is not None and saves and "load" in called(call)
        else None
    )
    if call is None or change is None or "Weights only load failed" not in refused.message:
        return None
    kind = re.search(r"GLOBAL (\S+) was not an allowed global", refused.message)
    what = f"an object of `{kind[1]}`" if kind is not None else "an object that is no tensor"
    what_zh = f"`{kind[1]}` 的对象" if kind is not None else "不是张量的对象"
    said = T(
        en=f"{refused.words('en')['Line']} reads a file with {what}; by default `torch.load` reads tensors and plain "
        "containers only, because other objects run code.",
        zh=f"{refused.words('zh')['Line']}读取的文件含有{what_zh}；默认情况下 `torch.load` 只读取张量和普通容器，因为"
        "其他对象会运行代码。",
    )
    accepts = T(
        en="a file with `model.state_dict()` only; for a file of one's own also "
        "`weights_only=False`, which runs its code",
        zh="只含 `model.state_dict()` 的文件；自己写的文件也可以用 `weights_only=False`，它会运行其中的代码",
    )
    title = T(
        en="Read the whole object, from a file of your own: `weights_only=False`",
        zh="读取整个对象（自己写的文件）：`weights_only=False`",
    )
    whole = Fix(title, program.splice(change), meaning="later")
    if kind is None or not re.fullmatch(r"numpy\.(_core|core)\.multiarray\.scalar", kind[1]):
        return Remedy((whole,), said, accepts)
    said = T(
        en=f"{refused.words('en')['Line']} reads a file that has a NumPy number (as `hits.mean()` of an array is one); "
        "by default `torch.load` reads tensors, plain containers and Python's own numbers only.",
        zh=f"{refused.words('zh')['Line']}读取的文件含有 NumPy 的数（例如数组的 `hits.mean()`）；默认情况下 "
        "`torch.load` 只读取张量、普通容器和 Python 自己的数。",
    )
    accepts = T(
        en="a file with Python's numbers: saved as `x.item()` or `float(x)`, where `x` is a NumPy number",
        zh="含有 Python 数的文件：NumPy 的数 `x` 以 `x.item()` 或 `float(x)` 保存",
    )
    return Remedy((*_plain_numbers(program, saves), whole), said, accepts)


def _plain_numbers(program: Program, saves: list[ast.Call]) -> Iterator[Fix]:
    """The fixes that save ``x.item()`` in place of ``x``, for the first names among the values of the dicts that are
    saved: which of them are NumPy numbers only a run can tell.
    """
    values = [
        value
        for call in saves
        if call.args and isinstance(call.args[0], ast.Dict)
        for value in call.args[0].values
        if is_name(value)
    ]
    for value in values[:MOST_VALUES]:
        text = f"{program.segment(value)}.item()"
        title = T(en=f"Save Python's number: `{text}`", zh=f"保存 Python 的数：`{text}`")
        yield Fix(title, program.replace((value, text)), meaning="later")
