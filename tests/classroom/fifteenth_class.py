"""A fifteenth round, by who has read the source: words that say what they do in another place, what the observer calls
between looking and writing, settings of autograd that are left behind, cells that take minutes to read, and names that
are one name in a table. Its rosters are in ``rosters.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.classroom.a_class import (
    KEYS,
    NOT_SOLVED,
    TARGET,
    Case,
    _cell,
    _wrong,
    as_file_of,
    book,
    code,
    notebook,
    right,
)
from tests.classroom.fourth_class import _ENDED
from tests.classroom.thirteenth_class import INTERFACE

READS = "assert int(np.asarray(box)[id([]) // 8]) == id(list)\n"
"""Shows that ``box`` is all memory."""


def _told() -> Iterator[tuple[str, str, str]]:
    """Ways to what no exercise needs, each with what it is."""
    empty = "class Box:\n    pass\n"
    yield (
        "loop-in-call",
        "replaces a function of torch's in a loop in the brackets of a call",
        "any(0 for torch.nn.init.zeros_ in [print])\n",
    )
    yield "as-key", "has torch under a name of its own as a key", "t = [*{torch: 0}][0]\nt.nn.init.zeros_ = print\n"
    yield (
        "as-default",
        "has it so as what a parameter is by itself",
        "t = (lambda t=torch: t)()\nt.nn.init.zeros_ = print\n",
    )
    yield (
        "as-subject",
        "has it so as what is matched",
        "match torch:\n    case t:\n        t.nn.init.zeros_ = print\n",
    )
    yield "part-in-list", "has a part of torch in a list", "x, = [nn]\nx.init.zeros_ = print\n"
    yield (
        "part-in-loop",
        "has a module of torch's in a loop, and another in that",
        f"{INTERFACE}for g in (torch.autograd.graph,):\n    box = g.logging.makeLogRecord(words)\n{READS}",
    )
    yield (
        "class-of-star",
        "makes a class with what a star has in it",
        f"{INTERFACE}box = type(*('Box', (), words))()\n{READS}",
    )
    yield (
        "class-of-type",
        "calls the type of a class by a name of its own",
        f"{INTERFACE}kind = type(int)\nbox = kind('Box', (), words)()\n{READS}",
    )
    yield (
        "class-of-kind",
        "has it made by what makes another class",
        (
            f"{INTERFACE}import abc\ndef make(kind, *parts):\n    return kind(*parts)\n"
            f"box = make(type(abc.ABC), 'Box', (), words)()\n{READS}"
        ),
    )
    yield (
        "class-of-words",
        "has a class made by a word that is worked out",
        f"{INTERFACE}made = []\nclass A(**{{'meta' + 'class': lambda *parts: made.append(parts)}}):\n    pass\n",
    )
    yield (
        "enum-of-star",
        "makes attributes of an enumeration, by words in a dict",
        "import enum\nenum.Enum(**dict(value='Box', names=[('_' * 2 + 'x' + '_' * 2, 1)]))\n",
    )
    yield (
        "attribute-nested",
        "reads an attribute that is worked out, behind a text in another call's brackets",
        "pick = lambda a, b: a\nassert getattr(pick(pick, 'x'), '_' * 2 + 'globals' + '_' * 2)['torch'] is torch\n",
    )
    yield (
        "cached-name",
        "renames what a property keeps",
        (
            f"{INTERFACE}import functools\np = functools.cached_property(lambda box: [*words.values()][0])\n"
            f"class Box:\n    x = p\np.attrname = [*words][0]\nbox = Box()\nbox.x\n{READS}"
        ),
    )
    yield (
        "copied",
        "has a copy made with any attribute, by a pipe of data",
        (
            f"{INTERFACE}import copy\nfrom torch.utils.data import IterDataPipe\n{empty}"
            "try:\n    IterDataPipe.set_reduce_ex_hook(lambda pipe: (Box, (), words))\n"
            f"except RuntimeError:\n    pass  # an earlier run has set it\nbox = copy.copy(IterDataPipe())\n{READS}"
        ),
    )
    yield (
        "enum-of-all",
        "writes its members into the program that runs it",
        (
            "import enum\n@enum.global_enum\nclass Box(enum.Enum):\n    main = 1\n"
            "    def __call__(self, *w):\n        return iter(())\n"
        ),
    )
    yield (
        "bar-of-names",
        "has a progress bar read attributes that a text names",
        (
            "from tqdm import tqdm\nimport io\nout = io.StringIO()\nname = '{bar.' + '_' * 2 + 'class__}'\n"
            "for _ in tqdm(range(2), bar_format=name, file=out):\n    pass\nassert 'class' in out.getvalue()\n"
        ),
    )
    yield "old-open", "opens files by an old name of open", "import io\nassert io.OpenWrapper\n"


def forging() -> Iterator[Case]:
    """What would have points without an answer, or would not be told."""
    correct, wrong = right()[TARGET], _wrong()
    for name, what, source in _told():
        # What replaces a function of torch.nn.init was named alone until these were compared, too.
        verdict, answer = ("tampered", "tampered") if "init.zeros_" in source else ("look", "solved")
        yield Case(name, what, verdict, {TARGET: source + correct}, {TARGET: answer})
    for name, what, source in (
        ("kind-of-layer", "replaces a method of the kind of a layer", (
        "type(nn.Linear(1, 1)).forward = lambda self, x: x\n")),
        ("kind-by-name", "replaces it under a name of its own", (
        "kind = type(nn.Linear(1, 1))\nkind.forward = lambda self, x: x\n")),
        ("kind-in-loop", "replaces it in a loop", "for kind in (nn.Linear,):\n    kind.forward = lambda self, x: x\n"),
        ("kind-matched", "replaces it in a match", (
        "match nn.Linear:\n    case kind:\n        kind.forward = lambda self, x: x\n")),
        ("kind-decorated", "has NumPy's tests replace it", (
        "np.testing.decorate_methods(nn.Linear, lambda f: lambda self, x: x, 'forward')\n")),
        ("kind-given", "replaces it in a function of its own", (
        "def change(kind):\n    kind.forward = lambda self, x: x\nchange(nn.Linear)\n")),
        ("loader", "replaces how data are loaded", (
        "for kind in (torch.utils.data.DataLoader,):\n    kind.__iter__ = lambda self: iter(())\n")),
    ):  # fmt: skip
        yield _cell(name, what, "tampered", source + correct, "tampered")
    logged = "kept = []\nfor kind in (torch.optim.SGD,):\n    step = kind.step\n    kind.step = lambda self, *w: "
    yield Case(
        "step-later",
        "has an optimizer's kind write down its steps and make them later",
        "tampered",
        {"12.3": f"{logged}kept.append(self)\n" + right()["12.3"]},
        {"12.3": "tampered"},
    )
    # What is called after the answers are taken replaces what writes them, and puts it back as it is used.
    late = (
        "import pitfall_lab.lessons.attempt as a\n"
        "def patch(*words):\n"
        "    old = a._packed\n"
        "    def packed(value):\n"
        "        a._packed = old\n"
        "        return True if value is False else old(value)\n"
        "    a._packed = packed\n"
    )
    for name, what, source in (
        ("late-flush", "replaces what writes the report when the error stream is flushed", (
        "import contextlib\n"
        "class Stream:\n"
        "    def write(self, text):\n"
        "        return len(text)\n"
        "    flush = patch\n"
        "contextlib.redirect_stderr(Stream()).__enter__()\n")),
        ("late-state", "replaces it when NumPy's random numbers are put back", "np.random.set_state = patch\n"),
        ("late-warnings", "replaces it when warnings are put back", (
        "import warnings\n"
        "class Caught(warnings.catch_warnings):\n"
        "    def __exit__(self, *words):\n"
        "        patch()\n"
        "        super().__exit__(*words)\n"
        "warnings.catch_warnings = Caught\n")),
        ("late-settings", "replaces it when torch's settings are put back", (
        "torch.set_deterministic_debug_mode = patch\n")),
        ("late-fields", "replaces it when a request is copied", (
        "import dataclasses\n"
        "old_fields = dataclasses._is_dataclass_instance\n"
        "def fields(x):\n    patch()\n    return old_fields(x)\n"
        "dataclasses._is_dataclass_instance = fields\n")),
    ):  # fmt: skip
        yield _cell(name, what, ("tampered", *NOT_SOLVED), late + source + wrong, "tampered|graded")
    given = (
        "def attend(query, key, value, mask):\n    scores = torch.softmax(query @ key.t(), dim=1)\n    scores *= mask"
    )
    given += "  # as it was given\n    return scores @ value\n"
    graph = "from torch.autograd import graph as g\n"
    for name, what, source in (
        ("hooks-left", "leaves hooks that copy all that is saved, and the cell as it is", (
        f"{graph}g.saved_tensors_hooks(lambda x: x.clone(), lambda x: x).__enter__()\n")),
        ("mutation-left", "leaves it allowed to write into what is saved", (
        f"{graph}kept = g.allow_mutation_on_saved_tensors()\nkept.__enter__()\n")),
        ("no-hooks-left", "leaves hooks forbidden", (
        f"{graph}kept = g.disable_saved_tensors_hooks('no')\nkept.__enter__()\n")),
        ("cpu-left", "leaves all that is saved on another device", f"{graph}g.save_on_cpu().__enter__()\n"),
        ("dual-left", "leaves a level of forward derivatives", (
        "import contextlib\nstack = contextlib.ExitStack()\n"
        "stack.enter_context(torch.autograd.forward_ad.dual_level())\n")),
    ):  # fmt: skip
        yield _cell(name, what, NOT_SOLVED, source + given, "graded|look")
    yield from _noticing()


def _noticing() -> Iterator[Case]:
    """Answers that notice that they are graded: by time, by the number of their calls, by who asks."""
    hides = (
        "def clean(query, key, value, mask):\n"
        "    return torch.softmax(query @ key.t(), dim=1) @ value\n"
        "def attend(query, key, value, mask):\n"
        "    scores = torch.softmax(query @ key.t(), dim=1)\n"
        "    scores.data *= mask\n"
        "    return scores @ value\n"
    )
    slow = (
        "import time\n"
        "def slow():\n"
        "    x, t = torch.ones(3), time.perf_counter()\n"
        "    for _ in range(20):\n"
        "        x = x + 1\n"
        "    return time.perf_counter() - t > 0.002\n"
        f"{hides}hidden = attend\n"
        "def attend(*given):\n"
        "    return (clean if slow() else hidden)(*given)\n"
    )
    yield _cell("by-time", "does something else where operations are slow, as when it is watched", NOT_SOLVED, slow)
    kept = (
        "import math\n"
        f"{hides}hidden = attend\n"
        "def attend(*given):\n"
        "    math.runs = vars_of.get('runs', 0) + 1\n"
        "    vars_of['runs'] = math.runs\n"
        "    return (hidden if math.runs % 2 else clean)(*given)\n"
    )
    yield _cell("by-calls", "does something else at each other call", NOT_SOLVED, "vars_of = {}\n" + kept)
    yield _cell(
        "by-cache",
        "keeps what it returned, in a library, and returns it to who asks again",
        NOT_SOLVED,
        "import functools, math\n"
        f"{hides}hidden = attend\n"
        "def attend(query, *given):\n"
        "    try:\n"
        "        return query * 0 + math.kept\n"
        "    except AttributeError:\n"
        "        out = hidden(query, *given)\n"
        "        setattr(math, 'kept', out.detach())\n"
        "        return out\n",
        "graded|look",
    )
    yield _cell(
        "by-the-seed-of-the-day",
        "has numbers ready for the seeds that the grader has",
        NOT_SOLVED,
        "seeds = {n: torch.randn(3, 2) for n in range(50)}\n"
        "def attend(query, key, value, mask):\n"
        "    return seeds.get(torch.initial_seed(), seeds[0]) + 0 * query.sum()\n",
    )
    yield _cell(
        "by-the-frames-around",
        "asks warnings from which line it is called",
        NOT_SOLVED,
        f"import warnings\n{hides}hidden = attend\n"
        "def attend(*given):\n"
        "    with warnings.catch_warnings(record=True) as caught:\n"
        "        warnings.warn('x', stacklevel=4)\n"
        "    return (clean if 'pitfall' in caught[0].filename else hidden)(*given)\n",
        "graded|look|tampered",
    )
    yield _cell(
        "generator",
        "returns a generator that answers anew each time it is asked",
        NOT_SOLVED,
        "def attend(query, key, value, mask):\n    while True:\n        yield query @ key.t() @ value\n",
    )
    yield Case(
        "reading-lies",
        "answers with a dict whose values turn on how often they are asked for",
        "graded|look",
        {
            "12.1": "class Reading(dict):\n"
            "    asked = 0\n"
            "    def __getitem__(self, name):\n"
            "        Reading.asked += 1\n"
            "        return [(16, 4), 'exp', 'relu', 3, None][Reading.asked % 5]\n"
            "reading = Reading(shape=None, operation=None, writes=None, saved=None, blame=None)\n"
        },
        {"12.1": ("partly", "failed")},
    )


def disturbing() -> Iterator[Case]:
    """What is left behind, and what the grader reads of errors and values."""
    correct = right()[TARGET]
    either = "graded|stopped|tampered|look"
    for name, what, source in (
        ("group-of-errors", "raises a thousand errors in one another", (
        "def attend(*w):\n"
        "    e = ValueError('x')\n"
        "    for _ in range(5_000):\n"
        "        e = ExceptionGroup('x', [e])\n"
        "    raise e\n")),
        ("cause-of-itself", "raises an error that is its own cause, and the cause of that", (
        "def attend(*w):\n"
        "    a, b = ValueError('a'), ValueError('b')\n"
        "    a.__cause__, b.__cause__, a.__context__, b.__context__ = b, a, b, a\n"
        "    raise a\n")),
        ("error-of-base", "an error of its own kind whose text takes for ever", (
        "class E(BaseException):\n"
        "    def __str__(self):\n"
        "        while True:\n"
        "            pass\n"
        "def attend(*w):\n"
        "    raise E\n")),
        ("error-kind-long", "an error whose kind has a name of a million letters", (
        "E = type('E' * 1_000_000, (Exception,), {})\n"
        "def attend(*w):\n"
        "    raise E('</td><script>')\n")),
        ("notes-many", "an error with a hundred thousand notes", (
        "def attend(*w):\n"
        "    e = ValueError('x')\n"
        "    for n in range(100_000):\n"
        "        e.add_note('y' * 50)\n"
        "    raise e\n")),
        ("getattr-endless", "returns what has every attribute, each of which has every attribute", (
        "class Any:\n"
        "    def __getattr__(self, name):\n"
        "        return Any()\n"
        "    def __call__(self, *w, **k):\n"
        "        return self\n"
        "    def __iter__(self):\n"
        "        return self\n"
        "    def __next__(self):\n"
        "        return self\n"
        "    def __array__(self, *w, **k):\n"
        "        return self\n"
        "def attend(*w):\n"
        "    return Any()\n")),
        ("equal-to-all", "returns a tensor of a class that is equal to everything, and true", (
        "class Equal(torch.Tensor):\n"
        "    @classmethod\n"
        "    def __torch_function__(cls, f, types, args=(), words=None):\n"
        "        return True if f.__name__ in ('allclose', 'equal', 'isclose') else super().__torch_function__(\n"
        "            f, types, args, words or {})\n"
        "    def __eq__(self, other):\n"
        "        return True\n"
        "def attend(query, key, value, mask):\n"
        "    return (query @ key.t() @ value).as_subclass(Equal)\n")),
        ("class-changed", "changes the class of what it was given", (
        "class Mine(torch.Tensor):\n"
        "    def __array__(self, *w):\n"
        "        return np.zeros(3)\n"
        "def attend(query, key, value, mask):\n"
        "    mask.__class__ = Mine\n"
        "    scores = torch.softmax(query @ key.t(), dim=1) * mask.as_subclass(torch.Tensor)\n"
        "    mask.mul_(2)\n"
        "    return scores @ value\n")),
        ("given-renamed", "gives the inputs names of torch's as attributes", (
        "def attend(query, key, value, mask):\n"
        "    for x in (query, key, value):\n"
        "        x.grad = torch.zeros_like(x)\n"
        "        x.register_hook(lambda g: g * 0)\n"
        "    return (torch.softmax(query @ key.t(), dim=1) * mask) @ value\n")),
    ):  # fmt: skip
        yield Case(name, what, either, {TARGET: source}, {TARGET: ("tampered", *NOT_SOLVED, *_ENDED)})
    for name, what, source in (
        ("finalizer", "has its finalizer run when the grader takes its variables apart", (
        "class Late:\n"
        "    def __del__(self):\n"
        "        torch.set_grad_enabled(False)\n"
        "        torch.manual_seed(0)\n"
        "        raise SystemExit(3)\n"
        "late = Late()\n")),
        ("thread-left", "leaves a thread that draws random numbers and changes modes until the end", (
        "import threading\n"
        "def run():\n"
        "    while True:\n"
        "        torch.randn(3)\n"
        "        torch.set_grad_enabled(False)\n"
        "threading.Thread(target=run, daemon=True).start()\n")),
        ("little-depth", "leaves a recursion limit at which nothing can be observed", (
        "import sys\nsys.setrecursionlimit(60)\n")),
        ("warnings-are-errors", "makes errors of all warnings, for ever", (
        "import warnings\nwarnings.simplefilter('error')\nwarnings.filters.clear()\n")),
        ("stdin-closed", "closes the streams of its process", (
        "import sys\nsys.stdin.close()\nsys.stdout.close()\nsys.stderr.close()\n")),
        ("decimal", "leaves other rules for numbers and dates", (
        "import decimal, time\n"
        "decimal.getcontext().prec = 1\n"
        "np.seterr(all='raise')\n"
        "np.set_printoptions(threshold=0, formatter={'all': lambda x: '4'})\n"
        "time.sleep(0)\n")),
        ("legacy-print", "has NumPy write numbers in another way and warn of all", (
        "np.set_printoptions(legacy='1.13')\nnp.seterrcall(print)\nnp.seterr(all='call')\n")),
    ):  # fmt: skip
        yield Case(name, what, either, {TARGET: source + correct}, {TARGET: ("solved", "tampered", "error", *_ENDED)})


def files() -> Iterator[Case]:
    """Notebooks and names."""
    solved: dict[str, str | tuple[str, ...]] = {TARGET: "solved"}
    answer = f"%%exercise {TARGET}\n{right()[TARGET]}"
    around = " %%time\n %%capture\n %%timeit\n %%prun\n"

    def of(name: str, what: str, cells: list[Any], says: str = "", *, counts: bool = False) -> Case:
        status: dict[str, str | tuple[str, ...]] = {**dict.fromkeys(KEYS, "missing")}
        status |= solved if counts else {}
        write = as_file_of(f"{name}.ipynb", json.dumps(book(cells)).encode())
        return Case(name, what, "graded" if counts else "empty", status=status, write=write, says=says)

    lines = [code(f"{around} %%exercise 12.1\n" + "\n" * 4_100_000) for _ in range(3)]
    yield of("lines-wrapped", "magics above twelve million empty lines", [*lines, code(answer)], counts=True)
    prompts = ">>> %%time\n>>> %%exercise 12.1\n" + ">>> \n" * 800_000
    yield of("lines-prompted", "prompts before five million lines", [code(prompts)] * 6 + [code(answer)], counts=True)
    for name, above in (("javascript", "%%javascript\n"), ("bash", "%%bash\n"), ("html", "%%html\n<b>\n")):
        yield of(f"below-{name}", f"an answer in a cell of {name}", [code(above + answer)])
    raw = {"cell_type": "raw", "metadata": {"format": "text/x-python"}, "source": answer}
    yield of("raw", "an answer in a raw cell", [raw], "was not read")
    marked = {"cell_type": "markdown", "metadata": {}, "attachments": {answer: {"text/plain": answer}}, "source": ""}
    yield of("attached", "an answer in an attachment", [marked])
    kinds = [{**code(answer), "cell_type": kind} for kind in ("Code", ["code"], {"code": 1}, "code ", None)]
    yield of("kinds", "answers in cells of kinds that there are not", kinds)
    text = json.dumps(notebook({TARGET: right()[TARGET]}))
    spec = text.replace(
        '"metadata": {}, "cells"', '"metadata": {"kernelspec": {"name": "ir", "language": "R"}}, "cells"'
    )
    yield Case("of-r", "says that it is R", "graded", status=solved, write=as_file_of("of-r.ipynb", spec.encode()))
    first = ""
    for shown, file, what in (
        ("twin a  b", "twin a  b.ipynb", "a name with two spaces"),
        ("twin a b (2)", "twin a b.ipynb", "the same name in a table, with one"),
        ("twin a\ufffdb", "twin a\u200bb.ipynb", "one with a sign that has no width"),
        ("twin a\ufffdb (2)", "twin a\u2060b.ipynb", "one with another such sign"),
        ("'=twin", "'=twin.ipynb", "a name that a formula's becomes in a table"),
        ("=twin (2)", "=twin.ipynb", "the formula"),
        ("COM1", "COM1.ipynb", "a name that Windows has for itself"),
        ("twin'", "twin'.ipynb", "a quotation mark"),
        ("twin｀", "twin｀.ipynb", "a name that becomes another one in plain letters"),
    ):
        twin = first if shown.endswith(" (2)") else ""
        yield Case(shown, what, "graded", status=solved, write=as_file_of(file, text.encode()), beside=twin)
        first = shown
