"""Every sample again with operands of other types: the shadow does what torch does, in its words,
or says that it does not know.
"""

from __future__ import annotations

import pytest

from pitfall_lab.shadow.ops import ENTRIES, FAMILIES
from tests.shadow.side_by_side import attempt, compare_results, world

CASTS = {
    "int64": "(2 * {0}).detach().to(torch.int64)",
    "bool": "({0} > 0)",
    "float64": "{0}.detach().to(torch.float64)",
}
FLOATS = "abcwph"


def samples(family: str) -> list[tuple[str, str]]:
    found = {
        (e.names[0], s) for e in ENTRIES.values() if e.run.__module__ == family and e.kind != "other" for s in e.samples
    }
    return sorted(found)


@pytest.mark.parametrize("kind", CASTS)
@pytest.mark.parametrize("family", [f.__name__ for f in FAMILIES], ids=lambda name: name.rsplit(".", maxsplit=1)[-1])
def test_operands_of_another_type_give_torchs_result_or_words_or_are_declined(family: str, kind: str):
    wrong = []
    for name, sample in samples(family):
        real, shadow = world("torch", sample), world("shadow", sample)
        for names in (real, shadow):
            for letter in FLOATS:
                if letter in names:
                    exec(f"{letter} = {CASTS[kind].format(letter)}", names)
        ours = attempt(shadow, sample)
        if isinstance(ours, NotImplementedError) and "not implemented for" not in str(ours):
            continue
        try:
            compare_results(attempt(real, sample), ours, sample)
        except AssertionError as difference:
            wrong.append((name, sample, str(difference)[:300]))
    assert wrong == []
