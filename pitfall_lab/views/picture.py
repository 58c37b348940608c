"""A picture shown below a notebook cell: SVG in the page's light or dark colours, a text version, and files for slides
and print. :class:`Picture` is one.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pitfall_lab.trace import Language, Note
from pitfall_lab.views.encoding import DARK, LIGHT, RULES, STYLE, clean, clean_text
from pitfall_lab.views.stored import with_page

# JupyterLab and VS Code say on the page which theme is on; elsewhere the system's setting decides. An untrusted
# notebook loses the stylesheet and the inline SVG, and with the stylesheet what hides the <img> with the same picture.
CSS = (
    f".pl-now{{{LIGHT}color-scheme:light dark;color:var(--ink);font:14px/1.5 "
    f"system-ui,sans-serif;max-width:100%}}@media(prefers-color-scheme:dark){{.pl-now{{{DARK}}}}}[data-jp-theme-light="
    f'"true"] .pl-now,.vscode-light .pl-now{{{LIGHT}}}[data-jp-theme-light="false"] .pl-now,.vscode-dark '
    f".pl-now{{{DARK}}}.pl-now figure{{margin:.3em 0;overflow:auto}}.pl-now svg{{display:block}}.pl-now "
    "img{display:none}.pl-now p{margin:.3em 0}.pl-now summary{cursor:pointer;min-height:24px}.pl-now "
    "pre{overflow:auto;white-space:pre-wrap;margin:.3em 0;color:inherit;background:none;font:12px/1.5 "
    f'ui-monospace,"DejaVu Sans Mono",monospace}}.pl-now svg{{{RULES}}}'
)

Writer = Callable[[Path], None]


class Picture:
    """A finished picture. In a notebook it is drawn; printed, it is its text; :meth:`save` writes it to a file.

    ``notes`` are sentences that are shown with it, ``text`` is the picture in words with these notes, ``title`` names
    it for screen readers.
    """

    def __init__(
        self,
        svg: str,
        text: str,
        *,
        title: str,
        notes: tuple[Note, ...] = (),
        language: Language = "en",
        files: Mapping[str, Writer] | None = None,
    ) -> None:
        """``svg`` is the drawing (empty when there is none), ``text`` the same in words, ``files`` more
        kinds that it can be saved as.

        ``live``, when it is set, makes the widget that a notebook shows instead while a kernel runs.
        """
        self.live: Callable[[], Any] | None = None
        self.svg = svg
        self.title = title
        self.notes = tuple(note.zh if language == "zh" else note.en for note in notes)
        self.text = clean_text("\n".join([text.rstrip("\n"), *self.notes]).strip("\n")) + "\n"
        self.language: Language = language
        self._files = dict(files or {})

    @property
    def html(self) -> str:
        """The picture as one ``<div>`` that needs no script and no network."""
        words = "文字版" if self.language == "zh" else "The same in words"
        drawing = ""
        if self.svg:
            data = base64.b64encode(self.svg.encode()).decode("ascii")
            inline = self.svg.replace(f"<style>{STYLE}</style>", "")
            image = f'<img src="data:image/svg+xml;base64,{data}" alt="{clean(self.title)}">'
            drawing = f'<figure tabindex="0" aria-label="{clean(self.title)}">{inline}{image}</figure>'
        notes = "".join(f"<p>{clean(note)}</p>" for note in self.notes)
        return (
            '<div class="pl-now" '
            f'lang="{"zh-CN" if self.language == "zh" else "en"}"><style>{CSS}</style>{drawing}{notes}<details><summar'
            f'y>{words}</summary><pre tabindex="0">{clean(self.text)}</pre></details></div>'
        )

    def save(self, path: str | Path) -> Path:
        """Write the picture to a file and return its path; the ending of its name says how.

        ``.svg``, ``.html``, ``.txt``, and the other kinds that this picture can be written as.

        Raises:
          ValueError: the ending is none of these, or ``.svg`` although the picture has no drawing.
          OSError: the file cannot be written, or a program that is needed is not installed.
        """
        path = Path(path)
        kind = path.suffix.lower()
        plain = {".svg": self.svg, ".html": self._page(), ".txt": self.text}
        if kind in self._files:
            self._files[kind](path)
        elif kind in plain and (plain[kind] or kind != ".svg"):
            path.write_text(plain[kind], encoding="utf-8")
        else:
            known = ", ".join(sorted({each for each in plain if plain[each] or each != ".svg"} | {*self._files}))
            raise ValueError(
                f"This picture cannot be saved as {kind or 'a file without an ending'}; it can as {known}."
            )
        return path

    def _page(self) -> str:
        head = (
            '<meta charset="utf-8"><meta name="viewport" '
            f'content="width=device-width"><title>{clean(self.title)}</title>'
        )
        page = (
            f"<style>body{{{LIGHT}background:var(--paper)}}@media(prefers-color-scheme:dark){{body{{{DARK}}}}}</style>"
        )
        lang = "zh-CN" if self.language == "zh" else "en"
        return f'<!doctype html>\n<html lang="{lang}"><head>{head}{page}</head><body>{self.html}</body></html>\n'

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        still = {"text/html": self.html, "text/plain": self.text}
        if self.live is None:
            return still
        try:
            return with_page(self.live()._repr_mimebundle_(**options), still)[0]
        except Exception:  # a page without widget support shows the static picture
            return still

    def __repr__(self) -> str:
        return self.text.rstrip("\n")
