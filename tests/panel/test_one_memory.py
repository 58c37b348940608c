"""Lists to which the same memory was appended again and again."""

from __future__ import annotations

import pytest

START = "state = np.zeros(4, dtype='float32')\nh = torch.zeros(3)\nkept, seen = [], {'h': []}"


@pytest.mark.parametrize(
    ("loop", "name", "count"),
    [
        ("state += 1\n    kept.append(torch.from_numpy(state))", "kept", 6),
        ("state += 1\n    kept.append((torch.from_numpy(state), 1.0))", "kept", 6),
        ("state += 1\n    kept.append(state)", "kept", 6),
        ("h.add_(1)\n    kept.append(h)", "kept", 6),
        ("h.add_(1)\n    seen['h'].append(h.detach())", "seen['h']", 6),
    ],
)
def test_it_is_said_after_the_loop(notebook, loop, name, count):
    assert notebook.run(START, "start") == []
    [warning] = notebook.run(f"for _ in range(6):\n    {loop}", "loop")
    assert (warning["kind"], warning["level"]) == ("one-memory", "silent")
    assert warning["sentence"]["en"].startswith(f"The {count} elements of `{name}` are one memory")
    assert [(each["id"], each["line"]) for each in warning["cells"]] == [("loop", 3)]
    assert notebook.run("kept, seen = [], {'h': []}", "start") == []


@pytest.mark.parametrize(
    "cells",
    [
        ["for _ in range(6):\n    state += 1\n    kept.append(torch.from_numpy(state.copy()))"],
        ["for _ in range(6):\n    h = h + 1\n    kept.append(h)"],
        ["for i in range(6):\n    kept.append(torch.arange(6.0)[i])"],
        ["big = torch.zeros(6, 2)\nfor i in range(6):\n    kept.append(big[i])"],
        ["for _ in range(6):\n    kept.append(h)"],  # nothing has written into it
        ["rows = [state] * 5"],
        ["kept.append(h.detach())\nkept.append(h.view(3))\nkept.append(torch.ones(3))\nkept.append(h)"],
    ],
)
def test_copies_parts_and_what_was_not_written_are_not(notebook, cells):
    assert [notebook.run(text, str(at)) for at, text in enumerate([START, *cells])] == [[]] * (len(cells) + 1)
