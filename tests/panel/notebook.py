"""A notebook without a kernel process: IPython's shell, with a comm manager of the kernel's kind,
and a front end that validates.
"""

from __future__ import annotations

import json
import types
from functools import cache
from pathlib import Path

from IPython.core.interactiveshell import InteractiveShell

import pitfall_lab.panel
from pitfall_lab.notebook.magic import load_ipython_extension, unload_ipython_extension
from pitfall_lab.panel import Offer

SCHEMA = json.loads((Path(pitfall_lab.panel.__file__).parent / "protocol.json").read_text(encoding="utf-8"))


@cache
def validator(name):
    """For ``ask``, ``answer`` or ``opening``."""
    import jsonschema  # takes seconds, in each process that collects the tests

    return jsonschema.Draft202012Validator({**SCHEMA, "$ref": f"#/$defs/{name}"})


class Comms:
    """The part of a kernel's comm manager that is used."""

    def __init__(self):
        self.targets = {}

    def register_target(self, name, opened):
        self.targets[name] = opened

    def unregister_target(self, name, opened):
        self.targets.pop(name, None)


class FrontEnd:
    """One page that has opened the connection. Whatever the kernel sends is checked against the schema."""

    def __init__(self, comms, opening):
        self.sent, self.closed = [], False
        comms.targets["pitfall-lab.live"](self, {"content": {"data": opening}})

    def send(self, message):
        validator("answer").validate(message)
        self.sent.append(json.loads(json.dumps(message)))

    def close(self):
        self.closed = True

    def on_msg(self, asked):
        self._asked = asked

    def on_close(self, ended):
        self.ended = ended

    def ask(self, ask, **fields):
        before = len(self.sent)
        self._asked({"content": {"data": {"version": 1, "ask": ask, **fields}}})
        return self.sent[before:]

    def forge(self, data):
        before = len(self.sent)
        self._asked({"content": {"data": data}})
        return self.sent[before:]

    def last(self, kind):
        return next((message for message in reversed(self.sent) if message["kind"] == kind), None)


class Notebook:
    """Cells that run one after the other, and the panel beside them."""

    def __init__(self, *, visible=True, stale=True, whole=False):
        """``whole``: with the magics, the hints and the recording of the extension, and not with its panel alone."""
        InteractiveShell.clear_instance()
        self.shell = InteractiveShell.instance()
        self.comms = Comms()
        self.shell.kernel = types.SimpleNamespace(comm_manager=self.comms)
        if whole:
            load_ipython_extension(self.shell)
            self.panel = self.shell._pitfall_lab._panel
        else:
            self.panel = Offer(self.shell)
            self.panel.install()
        self.page = FrontEnd(self.comms, {"version": 1, "language": "en"})
        self.page.ask("watch", visible=visible, stale=stale)

    def run(self, text, cell=""):
        """Run a cell; returns what is warned of after it."""
        before = len(self.page.sent)
        result = self.shell.run_cell(text, store_history=True, cell_id=cell or None)
        assert result.success, result
        found = [message for message in self.page.sent[before:] if message["kind"] == "warnings"]
        return found[-1]["warnings"] if found else []

    def fails(self, text):
        """Whether this expression raises; the traceback, which takes long to draw, is not drawn."""
        self.run(f"try:\n    {text}\n    raised = ''\nexcept Exception as error:\n    raised = str(error)")
        return self.shell.user_ns["raised"]

    def rows(self):
        [answer] = self.page.ask("rows")
        return {row["name"]: row for row in answer["rows"]}

    def unfold(self, row):
        [answer] = self.page.ask("unfold", id=row)
        return {row["name"]: row for row in answer["rows"]}

    def close(self):
        self.panel.remove()
        unload_ipython_extension(self.shell)
        InteractiveShell.clear_instance()
