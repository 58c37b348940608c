"""``pitfall-lab book``: the chapters as HTML pages that need no kernel, no scripts of others and no network.

Each notebook is executed in a fresh kernel. Of every output the page gets what can be read without a kernel: the
self-contained HTML that our widgets carry beside themselves. nbconvert would otherwise prefer the widget, drop that
HTML and ask a CDN for a player.
"""

# ruff: noqa: PLC0415 - the command line starts fast: nbclient and nbconvert are imported by this command alone

from __future__ import annotations

import argparse
import html
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pitfall_lab import processes
from pitfall_lab.cli import Refusal
from pitfall_lab.resources import PACKAGE

if TYPE_CHECKING:
    from collections.abc import Iterator

WIDGET = "application/vnd.jupyter.widget-view+json"
LIVE = (WIDGET, "application/javascript")
STYLE = """
@media (min-width: 601px) {
  .jp-OutputArea-prompt { box-sizing: border-box; width: calc(var(--jp-cell-prompt-width) + 12px) !important; }
  .pl-nav { padding-left: calc(var(--jp-cell-prompt-width) + 20px); }
}
.jp-OutputArea-output pre { word-break: normal; overflow-wrap: anywhere; }
.jp-RenderedHTMLCommon pre { margin-bottom: 1em; }
@media (max-width: 600px) { .jp-OutputArea-output pre { white-space: pre; overflow-x: auto; } }
.pl-nav { margin: 0 0 1em; font: 0.9rem system-ui, sans-serif; color: var(--jp-ui-font-color2); }
.pl-nav a { color: var(--jp-content-link-color); }
"""
"""Outputs are in one column whether they have a number or not, and lines break between words."""
NAV = (
    '<p class="pl-nav"><a href="index.html">All chapters</a> · without a kernel; in JupyterLab the pictures can be '
    "stepped through.</p>"
)
INDEX = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>pitfall_lab</title>
<style>
  :root {{ color-scheme: light dark; }}
  body {{ font: 1.05rem/1.6 system-ui, sans-serif; max-width: 42rem; margin: 3rem auto; padding: 0 1.2rem; }}
  li {{ margin: 0.35rem 0; }}
</style>
</head>
<body>
<h1>See where PyTorch bites</h1>
<p>The chapters of pitfall_lab, executed with torch {version}. These pages need no kernel and no network; in JupyterLab the pictures can be
stepped
through.</p>
<ul>
{items}
</ul>
</body>
</html>
"""  # noqa: E501


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``pitfall-lab book``."""
    which = "notebooks or folders (default: notebooks)"
    parser.add_argument("what", metavar="NOTEBOOK", nargs="*", type=Path, default=[Path("notebooks")], help=which)
    parser.add_argument(
        "-o", "--output", metavar="FOLDER", type=Path, default=Path("book"), help="where the pages go (default: book)"
    )
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=int, default=180, help="the longest that one cell may take (default: 180)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write one page per notebook and an index: 0, or 1 when a cell that should not fail did.

    Raises :class:`~pitfall_lab.cli.Refusal` if a notebook is missing or cannot be read, or the folder cannot be made.
    """
    paths = [path for word in arguments.what for path in notebooks(word)]
    titles: list[tuple[str, str]] = []
    version = failed = ""
    try:
        arguments.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refusal(f"{arguments.output} cannot be made: {error.strerror or error}.") from None
    for path in paths:
        book = read(path)
        print(f"{path} ...", end=" ", flush=True)
        broken = execute(book, path.parent, arguments.timeout)
        target = arguments.output / f"{path.stem}.html"
        target.write_text(page(book, path.stem), encoding="utf-8")
        print(f"{target}" + (f" (stopped: {broken})" if broken else ""), flush=True)
        failed = failed or broken
        titles.append((target.name, title(book, path.stem)))
    from importlib.metadata import version as installed

    version = installed("torch")
    items = "\n".join(f'<li><a href="{html.escape(name)}">{html.escape(text)}</a></li>' for name, text in titles)
    (arguments.output / "index.html").write_text(
        INDEX.format(version=html.escape(version), items=items), encoding="utf-8"
    )
    print(arguments.output / "index.html")
    return int(bool(failed))


def notebooks(word: Path) -> Iterator[Path]:
    """The notebooks at a path: itself, or those directly in a folder; raises
    :class:`~pitfall_lab.cli.Refusal` if there is none.
    """
    found = sorted(p for p in word.glob("*.ipynb") if p.is_file()) if word.is_dir() else [word]
    if not found or not all(p.suffix == ".ipynb" for p in found):
        raise Refusal(f"{word} is neither a notebook (.ipynb) nor a folder that holds one.")
    yield from found


def read(path: Path) -> Any:
    """Read a notebook; raises :class:`~pitfall_lab.cli.Refusal` if the file is not one."""
    import nbformat

    try:
        return nbformat.read(path, as_version=4)
    except OSError as error:
        raise Refusal(f"{path} cannot be read: {error.strerror or error}.") from None
    except Exception as error:
        raise Refusal(f"{path} is not a notebook: {str(error).splitlines()[0][:200]}") from None


def execute(book: Any, folder: Path, timeout: int) -> str:
    """Run all cells in a fresh kernel and keep what they showed; return what stopped it, at most 200
    characters (``""`` when nothing did).

    ``timeout``: seconds for one cell.
    """
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    # The kernel finds this package also when it is run from its source tree.
    root = str(PACKAGE.parent)
    environment = processes.environment()
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [root, environment.get("PYTHONPATH", "")]))
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    resources = {"metadata": {"path": str(folder)}}
    client = NotebookClient(book, timeout=timeout, resources=resources, store_widget_state=False, coalesce_streams=True)
    try:
        client.execute(env=environment)
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        lines = str(error).strip().splitlines()
        return re.sub(r"\x1b\[[0-9;]*m", "", lines[-1])[:200]
    return ""


def page(book: Any, name: str) -> str:
    """One self-contained HTML page of an executed notebook.

    ``book`` is changed: live outputs are replaced by their static form.
    """
    from nbconvert import HTMLExporter
    from traitlets.config import Config

    book.metadata.pop("widgets", None)
    for cell in book.cells:
        if cell.metadata.get("jupyter", {}).get("source_hidden"):
            cell.metadata["transient"] = {"remove_source": True}  # nbconvert's word for a folded cell
        if cell.cell_type == "markdown":
            cell.source = re.sub(r"\]\(([\w.-]+)\.ipynb(#[^)]*)?\)", r"](\1.html\2)", cell.source)
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                output.traceback = [frame for frame in output.traceback if not _is_of_a_package(frame)]
            if output.output_type == "stream":  # a progress bar writes over itself; a page shows its last state
                output.text = re.sub(r"[^\n]*\r(?!\n|$)", "", output.text)
            for mime in LIVE:
                if len(output.get("data", {})) > 1:
                    output.get("data", {}).pop(mime, None)
    settings = {
        "mathjax_url": "",
        "require_js_url": "",
        "jquery_url": "",
        "jupyter_widgets_base_url": "",
        "html_manager_semver_range": "",
    }
    exporter = HTMLExporter(config=Config(HTMLExporter=settings))
    made, _ = exporter.from_notebook_node(book, resources={"metadata": {"name": title(book, name)}})
    # The scripts of nbconvert's template load further scripts, whose addresses are empty now:
    # without them nothing is loaded.
    made = re.sub(r"<script[^>]*>.*?</script>", "", str(made), flags=re.DOTALL)
    # The template says that its theme is a light one; the reader's system decides here, for
    # the page and for its pictures.
    made = re.sub("<body[^>]*>", f'<body class="jp-Notebook">\n{NAV}', made, count=1)
    return made.replace("</head>", f"<style>{STYLE}{_dark(exporter)}</style>\n</head>", 1)


def _is_of_a_package(frame: str) -> bool:
    """Whether a part of a traceback is inside an installed package: readers need the cell's own lines,
    and no path of this machine.
    """
    head = re.sub(r"\x1b\[[0-9;]*m", "", frame).lstrip().partition("\n")[0]
    return head.startswith("File ") and ("site-packages" in head or "dist-packages" in head)


def _dark(exporter: Any) -> str:
    """JupyterLab's dark colours for readers who want them: our pictures follow the reader's wish, so
    the page around them has to.

    Empty if nbconvert's templates have none.
    """
    for folder in exporter.template_paths:
        theme = Path(folder) / "static" / "theme-dark.css"
        if theme.is_file():
            return (
                f"@media (prefers-color-scheme: dark) {{ :root {{ color-scheme: dark; }} {theme.read_text('utf-8')} }}"
            )
    return ""


def title(book: Any, name: str) -> str:
    """The first heading of a notebook, or its file's name."""
    text = "\n".join(c.source for c in book.cells if c.cell_type == "markdown")
    found = re.search(r"^#+ +(.+?) *#*$", text, flags=re.MULTILINE)
    return found[1].replace("`", "") if found else name
