"""Says, from the source of cells, what running them again does besides assigning their names again
(:func:`side_effects`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from pitfall_lab.panel.written_names import changed
from pitfall_lab.trace import T

FEW = 4
_WRITING = {
    "save", "savez", "savez_compressed", "savetxt", "savefig", "dump", "to_csv", "to_json", "to_parquet", "to_pickle",
    "write_text", "write_bytes", "mkdir", "makedirs", "remove", "unlink", "rmdir", "rmtree", "rename",
    "save_pretrained", "add_scalar", "urlretrieve",
}  # fmt: skip
_RUNNING = {"system", "popen", "Popen", "check_call", "check_output", "getoutput", "run_cell_magic", "run_line_magic"}
_DRAWING = {
    "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "normal", "normal_", "uniform_",
    "bernoulli", "bernoulli_", "multinomial", "dropout", "shuffle", "choice", "sample",
}  # fmt: skip
"""Calls of torch, NumPy and Python that draw random numbers, by their name in a cell's source."""


def side_effects(text: str) -> T:
    """A sentence, in English and Chinese, about what running the cells with the source ``text`` again changes, as far
    as the source shows: objects changed again, random numbers, files, commands.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _UNREAD
    calls = list(_calls(tree))
    stepped = set(_stepped(tree))
    names = _all(name for name in changed(text) if name not in stepped)
    said = [T(f"they change {names} once more", f"会再次修改 {names}")] if names else []
    if steps := _all(sorted(stepped)):
        said.append(T(f"{steps} steps once more, which changes its parameters", f"{steps} 会再走一步，修改它的参数"))
    if "backward" in calls:
        said.append(T("they add to `.grad` again", "会再次累加到 `.grad`"))
    if drawn := sorted(_DRAWING.intersection(calls)) if "manual_seed" not in calls else []:
        said.append(T(f"they draw other random numbers ({_few(drawn)})", f"会抽取另外的随机数（{_few(drawn)}）"))
    if written := sorted(_WRITING.intersection(calls)) + ["open"] * _opens_to_write(tree):
        said.append(T(f"they write files ({_few(written)})", f"会写文件（{_few(written)}）"))
    if run := sorted(_RUNNING.intersection(calls)):
        said.append(T(f"they run commands ({_few(run)})", f"会运行命令（{_few(run)}）"))
    if not said:
        return _NOTHING
    en, zh = "; ".join(each.en for each in said), "；".join(each.zh for each in said)
    return T(f"{en[0].upper()}{en[1:]}.", f"{zh}。")


_UNREAD = T("What else these cells change could not be read from their text.", "无法从文本读出这些单元格还会改变什么。")
_NOTHING = T(
    "As far as their text shows, these cells change only what they make.", "从文本看，这些单元格只改变自己产生的内容。"
)


def _stepped(tree: ast.AST) -> Iterator[str]:
    """Yield the names on which the code calls ``step``."""
    for node in ast.walk(tree):
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Attribute) and called.attr == "step" and isinstance(called.value, ast.Name):
            yield called.value.id


def _calls(tree: ast.AST) -> Iterator[str]:
    """Yield the last part of each called function's name: ``save`` for ``torch.save(…)``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                yield node.func.attr
            elif isinstance(node.func, ast.Name):
                yield node.func.id


def _opens_to_write(tree: ast.AST) -> bool:
    """Whether an ``open(path, mode)`` or ``path.open(mode)`` has a literal mode that writes."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        given = [each.value for each in node.keywords if each.arg == "mode"]
        if isinstance(node.func, ast.Name) and node.func.id == "open":
            given += node.args[1:2]
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "open":
            given += node.args[:1]
        else:
            continue
        if any(isinstance(each, ast.Constant) and type(each.value) is str and _is_mode(each.value) for each in given):
            return True
    return False


def _is_mode(text: str) -> bool:
    return len(text) <= 3 and set(text) <= set("wax+bt") and bool(set(text) & set("wax+"))


def _few(names: list[str]) -> str:
    return _all(names[:FEW])


def _all(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
