"""The graph for other programs: DOT, and through graphviz SVG, PDF and PNG. :func:`write` writes the file."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

import graphviz

from pitfall_lab import processes
from pitfall_lab.views.encoding import GREY, clean, hue, letter
from pitfall_lab.views.graph import Card, GraphScene, Notch
from pitfall_lab.views.label_history import Facts


def digraph(scene: GraphScene, facts: Facts) -> graphviz.Digraph:
    """The graph for graphviz, with the cards and edges of ``scene``; what a node saved is in the lower row of its card,
    struck out if its version no longer fits.
    """
    graph = graphviz.Digraph(
        "graph", graph_attr={"rankdir": "TB"}, node_attr={"shape": "plain", "fontname": "Helvetica", "fontsize": "12"},
        edge_attr={"fontsize": "10", "fontname": "Helvetica"},
    )  # fmt: skip
    for card in scene["nodes"]:
        graph.node(card["id"], f"<{_table(card, facts)}>")
    for edge in scene["edges"]:
        times = f"×{edge['times']}" if edge["times"] > 1 else ""
        graph.edge(edge["from"], edge["to"], label=times)
    return graph


def write(scene: GraphScene, facts: Facts, path: Path) -> None:
    """Write the graph as ``path``'s ending says: ``.dot`` as text, any other kind (``.svg``, ``.pdf``,
    ``.png``) drawn by graphviz.

    Raises:
        OSError: the kind needs graphviz's program ``dot``, which is not installed.
        subprocess.CalledProcessError: ``dot`` fails, as for a kind that it does not know.
    """
    graph = digraph(scene, facts)
    if path.suffix == ".dot":
        path.write_text(graph.source, encoding="utf-8")
        return
    dot = processes.installed("dot")  # the package's own pipe() takes one from the current folder where PATH names that
    if dot is None:
        raise OSError(f"{path.name} needs graphviz's program dot, which is not installed; .svg, .html and .dot do not.")
    kind, source = path.suffix.removeprefix("."), graph.source.encode()
    drawn: Any = processes.run(
        [dot, f"-T{kind}"], input=source, capture_output=True, text=False, encoding=None, check=True
    )
    path.write_bytes(drawn.stdout)  # bytes, since text=False


def _table(card: Card, facts: Facts) -> str:
    """A card as graphviz's HTML-like table. Everything from the program is escaped."""
    colour = hue(card["storage"], facts.palette) if card["storage"] else GREY
    border = "#c62828" if card.get("raised") is not None else colour if card["kind"] == "leaf" else "#4a4a4a"
    rows = [f"<tr><td><b>{clean(card['title'])}</b></td></tr>"]
    if card["sub"]:
        mark = f"{letter(card['storage'])}  " if card["storage"] else ""
        rows.append(f"<tr><td>{mark}{clean(card['sub'])}</td></tr>")
    if card["saved"]:
        for _, row in groupby(card["saved"], key=lambda notch: notch["y"]):
            cells = "".join(_notch(notch, facts) for notch in row)
            rows.append(
                '<tr><td><table border="0" cellborder="1" cellspacing="2" '
                f'cellpadding="2"><tr>{cells}</tr></table></td></tr>'
            )
    style = "rounded" if card["kind"] == "node" else "solid"
    return f'<table border="1" cellborder="0" cellpadding="3" color="{border}" style="{style}">{"".join(rows)}</table>'


def _notch(notch: Notch, facts: Facts) -> str:
    text = clean(notch["text"])
    if notch["stale"] is not None:
        text = f"<s>{text}</s>"
    mark = " ✕" if notch["broken"] is not None else " ≠" if notch["wrong"] is not None else ""
    return f'<td color="{hue(notch["storage"], facts.palette)}">{text}{mark}</td>'
