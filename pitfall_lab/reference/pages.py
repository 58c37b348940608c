"""The pages of the catalogue: one for each rule and language, made from what the rule's file says
and from what its programs do.

``python -m pitfall_lab.reference.pages`` writes them all to ``pitfall_lab/docs/rules``, with ``PL101`` behind it that
one. What the programs print and what ``pitfall-lab check`` says about them is run, never typed; a test compares the
pages with what would be written.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, replace

from pitfall_lab.check import Subject, Workshop, tried
from pitfall_lab.check.terminal import SEVERITIES, Style, finding_text
from pitfall_lab.resources import DOCS
from pitfall_lab.rules import CATALOGUE, FAMILIES, RULES, Family, Finding, Rule, find, rule
from pitfall_lab.rules.kit.expected_marks import plain
from pitfall_lab.rules.kit.source import split_lines
from pitfall_lab.trace import LANGUAGES, Language, T, Trace

FOLDER = DOCS / "rules"
NAME = "program.py"

_BAD = T(en="A program that does it", zh="这样的程序")
_PRINTS = T(en="Its output", zh="它的输出")
_SAYS = T(en="`pitfall-lab check` says", zh="`pitfall-lab check` 的报告")
_GOOD = T(en="The same program, repaired", zh="修好的同一个程序")
_WHY = T(en="Why torch works like this", zh="torch 为什么这样工作")
_TRAPS = T(en="Repairs that only hide it", zh="只是掩盖问题的“修复”")
_INSTEAD = T(en="`{new}` instead of `{old}`", zh="把 `{old}` 写成 `{new}`")
_SPECIAL = T(en="A special case of {rules}.", zh="{rules} 的特例。")
_GENERAL = T(en="Special cases have names and pages of their own: {rules}.", zh="有些特例有自己的名字和页面：{rules}。")
_DOCS = T(en="In torch's documentation", zh="torch 的文档")
_ALL = T(en="All rules", zh="所有规则")
_OTHER = T(en="[中文]({code}.zh.md)", zh="[English]({code}.md)")
_MADE = T(
    en="<!-- Made by `python -m pitfall_lab.reference.pages` from the rule's file. -->",
    zh="<!-- 由 `python -m pitfall_lab.reference.pages` 根据规则文件生成。 -->",
)
_INDEX = T(en="# Pitfalls of PyTorch", zh="# PyTorch 的陷阱")
_REFUSALS = T(
    en="## Errors that torch raises\n"
    "\n"
    "Where no pitfall above is the cause, a refused call is explained by one of these families.",
    zh="## torch 抛出的错误\n\n如果原因不是上面的陷阱，被拒绝的调用由以下某一类来解释。",
)


@dataclass(frozen=True, slots=True)
class Demonstration:
    """What a rule's two programs print, and what is found in the bad one."""

    bad_output: str
    good_output: str
    findings: tuple[Finding, ...]


def demonstrate(rule: Rule, shop: Workshop) -> Demonstration:
    """Run a rule's programs, on plain torch for what they print and on both engines for what is found."""
    subject = Subject(plain(rule.bad), NAME)
    trace = shop.trace(subject)
    found = tried(shop, subject, trace)
    bare = (
        each.with_fixes(tuple(replace(fix, printed=None) for fix in each.fixes)) for each in found
    )  # both outputs are on the page
    return Demonstration(shop.output(subject), shop.output(Subject(rule.good, NAME)), tuple(bare))


def page(rule: Rule, shown: Demonstration, language: Language = "en") -> str:
    """Return a rule's page as Markdown."""

    def say(text: T) -> str:
        return text.say(language)

    report = "\n".join(finding_text(NAME, plain(rule.bad), finding, Style(language)) for finding in shown.findings)
    parts = [
        say(_MADE),
        f"# {rule.code} {rule.name}",
        f"**{say(rule.title)}** · {say(SEVERITIES[rule.severity])}",
        say(rule.what),
        *_family(rule, language),
        f"## {say(_BAD)}",
        _block(rule.bad, "python"),
        f"{say(_PRINTS)}:",
        _block(shown.bad_output),
        f"{say(_SAYS)}:",
        _block(report),
        f"## {say(_GOOD)}",
        _block(rule.good, "python"),
        f"{say(_PRINTS)}:",
        _block(shown.good_output),
        f"## {say(_WHY)}",
        say(rule.why),
    ]
    if rule.traps:
        parts.append(f"## {say(_TRAPS)}")
        lines = [f"- {say(_INSTEAD).format(new=_inline(t.new), old=_inline(t.old))}: {say(t.why)}" for t in rule.traps]
        parts.append("\n".join(lines))
    parts += [f"## {say(_DOCS)}", "\n".join(f"- <{link}>" for link in rule.docs)]
    parts.append(
        f"[{say(_ALL)}]({'README.md' if language == 'en' else 'README.zh.md'}) · {say(_OTHER).format(code=rule.code)}"
    )
    return "\n\n".join(parts) + "\n"


def family_page(family: Family, trace: Trace, language: Language = "en") -> str:
    """Return the page of a family of errors as Markdown; ``trace`` is that of its bad program."""
    report = "\n".join(
        finding_text(NAME, family.bad, finding.with_fixes(()), Style(language)) for finding in find(trace)
    )
    parts = [
        _MADE.say(language),
        f"# {family.title.say(language)}",
        f"{family.code} {family.name} · {SEVERITIES[family.severity].say(language)}",
        family.what.say(language),
        f"## {_BAD.say(language)}",
        _block(family.bad, "python"),
        f"{_SAYS.say(language)}:",
        _block(report),
        f"## {_GOOD.say(language)}",
        _block(family.good, "python"),
        f"[{_ALL.say(language)}]({page_name('README', language)}) · {_OTHER.say(language).format(code=family.code)}",
    ]
    return "\n\n".join(parts) + "\n"


def index(language: Language = "en") -> str:
    """Return the list of all rules as Markdown."""
    head = T(en="| code | severity | what it finds |", zh="| 代码 | 级别 | 发现什么 |").say(language)
    tables = []
    for entries in (RULES, FAMILIES):
        rows = [
            (
                f"| [{r.code}]({page_name(r.code, language)}) | {SEVERITIES[r.severity].say(language)} | `{r.name}`: "
                f"{r.title.say(language)} |"
            )
            for r in entries
        ]
        tables.append("\n".join([head, "|---|---|---|", *rows]))
    rules, families = tables
    return "\n\n".join([_MADE.say(language), _INDEX.say(language), rules, _REFUSALS.say(language), families]) + "\n"


def page_name(code: str, language: Language = "en") -> str:
    """The file name of a rule's page."""
    return f"{code}.md" if language == "en" else f"{code}.{language}.md"


def _family(rule: Rule, language: Language) -> list[str]:
    """Lines that name the more general rules of a rule and its special cases."""
    families = (
        (_SPECIAL, [r for r in RULES if r.code in rule.refines]),
        (_GENERAL, [r for r in RULES if rule.code in r.refines]),
    )
    links = [
        (text, ", ".join(f"[{r.code}]({page_name(r.code, language)}) {r.name}" for r in rules))
        for text, rules in families
    ]
    return [text.say(language).format(rules=found) for text, found in links if found]


def _block(text: str, kind: str = "text") -> str:
    return f"```{kind}\n{text.rstrip()}\n```"


def _inline(code: str) -> str:
    """A piece of code on one line: `` ` `` in it would end the code."""
    return "; ".join(line.strip() for line in split_lines(code) if line.strip()).replace("`", "'")


def main(codes: list[str]) -> int:
    """Write the pages of the given rules and families of errors, or of all of them, and the index; delete pages whose
    rule or family no longer exists.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    with Workshop() as shop:
        for each in [rule(code) for code in codes] or CATALOGUE:
            if isinstance(each, Family):
                trace = shop.trace(Subject(each.bad, NAME))
                for language in LANGUAGES:
                    (FOLDER / page_name(each.code, language)).write_text(
                        family_page(each, trace, language), encoding="utf-8"
                    )
                continue
            shown = demonstrate(each, shop)
            for language in LANGUAGES:
                (FOLDER / page_name(each.code, language)).write_text(page(each, shown, language), encoding="utf-8")
    for language in LANGUAGES:
        (FOLDER / page_name("README", language)).write_text(index(language), encoding="utf-8")
    known = {page_name(code, language) for code in ("README", *(r.code for r in CATALOGUE)) for language in LANGUAGES}
    for stale in {path.name for path in FOLDER.glob("*.md")} - known:
        (FOLDER / stale).unlink()
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m pitfall_lab.reference.pages", description="Write the pages of rules and families of errors."
    )
    parser.add_argument("codes", nargs="*", metavar="code", help="such as PL301 or PLE12; without one, all are written")
    words = parser.parse_args().codes
    if unknown := sorted(set(words) - {each.code for each in CATALOGUE}):
        parser.error(f"there is no rule or family {', '.join(unknown)}")
    sys.exit(main(words))
