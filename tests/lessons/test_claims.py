"""The ledger is complete, its boxes are safe to show, and the claims of the written chapters
hold on the installed torch.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from dataclasses import replace

import pytest
import torch

from pitfall_lab.lessons.claims import ARTICLES, VERDICTS, Check, ClaimBox, check, claim, claim_list, ledger
from pitfall_lab.trace import Language

CHAPTER_05 = [key for key in ledger() if key.startswith(("s1-0-", "s1-2-"))]
CHAPTER_12 = [key for key in ledger() if key.startswith("s4-6-")]


def test_the_ledger_holds_all_claims_of_all_articles() -> None:
    per_article = Counter(c.article for c in ledger().values())
    assert per_article == {0: 47, 1: 62, 2: 105, 3: 60, 4: 59}
    assert sum(per_article.values()) == 333
    assert (len(CHAPTER_05), len(CHAPTER_12)) == (24, 7)


def test_so_many_claims_have_each_verdict() -> None:
    assert Counter(c.verdict for c in ledger().values()) == {
        "correct": 180, "misleading": 41, "incomplete": 34, "wrong": 40, "outdated": 13, "needs-gpu": 12, "typo": 10,
        "platform-dependent": 3,
    }  # fmt: skip


@pytest.mark.parametrize("key", ledger())
def test_a_claim_is_complete(key: str) -> None:
    found = ledger()[key]
    assert re.fullmatch(r"s\d-.+-[a-z]+", key)
    assert key.startswith(f"s{found.article}-")
    assert found.verdict in VERDICTS
    assert found.article < len(ARTICLES)
    assert all(part.strip() for part in (found.claim, found.truth, found.chapter, found.snippet, found.exercise_idea))
    assert re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", found.lines)
    assert found.pitfall
    compile(found.snippet, key, "exec")


def test_verdicts_can_be_told_apart_without_colour() -> None:
    assert len({v.glyph for v in VERDICTS.values()}) == len({v.word.en for v in VERDICTS.values()}) == len(VERDICTS)


@pytest.mark.parametrize("key", CHAPTER_05 + CHAPTER_12)
def test_a_claim_of_a_written_chapter_holds_here(key: str) -> None:
    done = check(ledger()[key])
    assert not done.error, done.error
    assert done.same == "exactly", done.difference


def test_a_claim_that_no_longer_holds_is_reported_with_the_difference() -> None:
    changed = replace(ledger()["s1-2-h"], observed="something else\n")
    done = check(changed)
    assert done.same == "no"
    assert "-something else" in done.difference
    assert "+source after" in done.difference
    shown = ClaimBox(changed, done)
    assert "not what was recorded" in str(shown)
    assert "+source after" in shown._repr_mimebundle_()["text/html"]


def test_a_claim_whose_program_raises_is_reported_not_raised() -> None:
    done = check(replace(ledger()["s1-2-h"], snippet="import torch\ntorch.zeros(2).view(3)\n"))
    assert done.same == "no"
    assert done.error.startswith("RuntimeError: shape '[3]' is invalid")


@pytest.mark.parametrize(
    ("printed", "same"), [("took 0.31 s", "exactly"), ("took 12 s", "but for numbers"), ("took long", "no")]
)
def test_outputs_are_compared_exactly_then_without_numbers(printed: str, same: str) -> None:
    assert Check(printed, "took 0.31 s", "", "2.13.0").same == same


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_box_says_place_verdict_and_program_and_escapes_them(language: str) -> None:
    hostile = replace(
        ledger()["s1-2-h"],
        claim="<script>alert(1)</script> `x` & 中文 🔥",
        snippet="print('<b>')",
        truth="</details><img src=x onerror=1>",
    )
    box = ClaimBox(hostile, language=language).run()  # type: ignore[arg-type]
    bundle = box._repr_mimebundle_()
    shown = bundle["text/html"]
    assert "<script>" not in shown
    assert "<img" not in shown
    assert "<b>" not in shown
    assert html.escape(hostile.claim).replace("`x`", "<code>x</code>") in shown
    assert hostile.claim in bundle["text/plain"]
    verdict = VERDICTS["wrong"]
    assert verdict.glyph in shown
    assert verdict.word.say(box.language) in shown
    assert box.claim.place.en == "Article 1 (in-place operations, copying, clone and detach), “2 Copy methods”"
    assert "“2 Copy methods”" in shown
    assert shown.count("<details>") == shown.count("</details>") == 1


def test_a_box_shows_the_recorded_output_until_it_is_run() -> None:
    box = claim("s1-2-h")
    assert "recorded with torch 2.13.0" in box._repr_mimebundle_()["text/html"]
    assert "run just now" in box.run()._repr_mimebundle_()["text/html"]


def test_running_a_claim_disturbs_nothing() -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    before = (
        torch.is_grad_enabled(),
        torch.get_default_dtype(),
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
    )
    assert not before[-1]
    check(
        replace(
            ledger()["s1-2-h"],
            snippet="import torch\n"
            "torch.rand(9)\n"
            "torch.set_grad_enabled(False)\n"
            "torch.set_default_dtype(torch.float64)\n"
            "torch.use_deterministic_algorithms(True)\n",
        )
    )
    after = (
        torch.is_grad_enabled(),
        torch.get_default_dtype(),
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
    )
    assert after == before
    assert torch.equal(torch.rand(2), expected)


def test_a_claim_is_decided_under_torchs_own_defaults() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            assert check(ledger()["s1-2-l"]).same == "exactly"
            assert not torch.is_grad_enabled()
        assert (
            check(replace(ledger()["s1-2-h"], snippet="import torch\nprint(torch.ones(1).dtype)\n")).printed
            == "torch.float32\n"
        )
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_warning_that_torch_says_once_is_said_in_every_lesson() -> None:
    warns = ledger()["s3-1.3-d"]
    assert [check(warns).same for _ in range(2)] == ["exactly", "exactly"]
    assert not torch.is_warn_always_enabled()


def test_a_program_that_uses_the_profiler_writes_nothing_beside_its_box(capfd: pytest.CaptureFixture[str]) -> None:
    assert check(ledger()["s1-2-t"]).same == "exactly"
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_another_sentence_on_a_claims_subject_is_answered_first_and_the_articles_own_comes_last(
    language: Language,
) -> None:
    turned = replace(
        ledger()["s1-2-b"], asked="`t = t * 3` changes `arr`.", holds=False, answer="A new tensor gets the name."
    )
    shown = ClaimBox(turned, language=language)
    assert (turned.verdict, turned.judged, replace(turned, holds=True).judged) == ("correct", "wrong", "correct")
    assert replace(turned, depends=True).judged == "depends"
    assert replace(turned, asked="", depends=True).judged == "correct"
    page, _, behind = shown._repr_mimebundle_()["text/html"].partition("<summary")
    assert "<code>t = t * 3</code> changes" in page
    assert turned.claim not in page
    assert turned.place.say(language) not in page
    words = (
        VERDICTS["wrong"].word.say(language),
        turned.answer,
        "<pre",
        turned.place.say(language),
        html.escape(turned.claim),
    )
    at = [behind.index(word) for word in words]
    assert at == sorted(at)
    assert {"en": "Written for this course", "zh": "为本课程而写"}[language] in page
    assert turned.asked in str(shown)


def test_another_sentence_has_an_answer_of_its_own() -> None:
    """The box says right or wrong of the sentence that was asked: "True" or "Wrong" of another
    sentence would contradict it.
    """
    assert [key for key, found in ledger().items() if found.answer and not found.asked] == []
    assert [key for key, found in ledger().items() if found.depends and (found.holds or not found.asked)] == []
    for key, found in ((key, found) for key, found in ledger().items() if found.asked):
        assert not re.match(r"(True|Right|Correct|Wrong|False|No|Yes)\b", found.answer), key
        assert found.answer.endswith("."), key
        assert found.answer != found.truth, key
    said = [found.answer for found in ledger().values() if found.asked]
    assert len(set(said)) == len(said) > 90


def test_what_is_only_misprinted_is_listed_apart() -> None:
    page = claim_list("s3-1.1-f", "s1-2-h", "s1-2-b")._repr_mimebundle_()["text/html"]
    first, _, misprints = page.partition("Printing errors in the articles: 1")
    assert "2 more claims of the articles" in first
    assert html.escape(ledger()["s3-1.1-f"].claim) in misprints
    assert "index_select" not in misprints


def test_a_list_of_claims_is_closed_and_has_the_verdicts_and_the_programs() -> None:
    shown = claim_list("s1-2-h", "s1-2-b").run()
    page = shown._repr_mimebundle_()["text/html"]
    first, _, rest = page.partition("</summary>")
    assert "2 more claims of the articles" in first
    assert page.count("<details>") == page.count("</details>") == 3
    for key in ("s1-2-h", "s1-2-b"):
        found = ledger()[key]
        assert html.escape(found.claim) in rest
        assert VERDICTS[found.verdict].word.en in rest
        assert found.claim in str(shown)
    assert page.count("run just now") == str(shown).count("run just now") == 2
    with pytest.raises(ValueError, match="at least one id"):
        claim_list()
    with pytest.raises(KeyError, match="s1-2-h"):
        claim_list("s1-2-hh")


def test_an_unknown_claim_names_its_neighbours() -> None:
    with pytest.raises(KeyError, match="s1-2-h"):
        claim("s1-2-hh")
    with pytest.raises(ValueError, match="en, zh"):
        claim("s1-2-h", language="de")  # type: ignore[arg-type]
