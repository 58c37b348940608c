"""What is committed is what the sources make: fresh, small, without traces of the machine it was built on."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from pitfall_lab import panel
from pitfall_lab.trace import SCHEMA
from pitfall_lab.widgets import front_end
from pitfall_lab.widgets.front_end import DrawnWidget
from tests.frontend import checks

PACKAGE = Path(__file__).resolve().parents[2] / "pitfall_lab"
FRONTEND = PACKAGE / "frontend"
COMMON = ["build.mjs", "package-lock.json", "package.json", "tsconfig.json"]
SOURCES = {
    "widget": ["src/core", "src/views", "src/widget.ts"],
    "extension": [
        "src/plugin",
        "src/core/dom.ts",
        "src/core/palette.ts",
        "src/core/prose.ts",
        "src/core/wrap.ts",
        "style",
        "schema",
    ],
}
BUILT = [
    path for folder in ("static", "labextension") for path in sorted((PACKAGE / folder).rglob("*")) if path.is_file()
]
STAMPS = json.loads((PACKAGE / "static" / "build.json").read_text(encoding="utf-8"))


def stamp(sources: list[str]) -> str:
    """The same few lines stand in build.mjs."""
    paths = []
    for source in sources:
        place = FRONTEND / source
        paths += [place] if place.is_file() else [path for path in place.rglob("*") if path.is_file()]
    names = sorted([path.relative_to(FRONTEND).as_posix() for path in paths] + COMMON)
    digest = hashlib.sha256()
    for name in names:
        text = (FRONTEND / name).read_bytes().decode().replace("\r\n", "\n")
        digest.update(f"{name}\n{text}\n".encode())
    return digest.hexdigest()


@pytest.mark.parametrize("part", SOURCES)
def test_the_committed_build_is_fresh(part: str):
    assert STAMPS[part] == stamp(SOURCES[part]), "run `npm run build` in pitfall_lab/frontend"


def test_the_widget_reads_the_traces_that_are_written_now():
    assert f"export const SCHEMA = {SCHEMA};" in (FRONTEND / "src" / "core" / "load.ts").read_text(encoding="utf-8")


def unpacked() -> bytes:
    """The widget's module as it runs: what is sent is this, deflated."""
    sent = (PACKAGE / "static" / "explorer.js").read_text(encoding="utf-8")
    return zlib.decompress(base64.b64decode(re.search(r'atob\("([^"]+)"\)', sent)[1]))


def test_the_widget_is_one_module_without_imports():
    code, sent = unpacked(), (PACKAGE / "static" / "explorer.js").read_bytes()
    assert (len(sent), len(code)) == (STAMPS["explorer_bytes"], STAMPS["minified_bytes"])
    assert len(sent) <= 110_000
    assert len(code) <= 200_000
    assert not re.search(rb"""(?:^|[;}\n])import[\s{*"']|\bimport\(|\brequire\(""", code)
    assert sent.count(b"import(") == 1  # the unpacked module itself, from a blob


def test_the_style_sheet_in_it_is_small_and_asks_for_nothing():
    assert STAMPS["style_bytes"] <= 32_000
    for sheet in (FRONTEND / "src").rglob("*.css"):
        assert not re.search(r"url\(|@import", sheet.read_text(encoding="utf-8")), sheet


def test_the_extension_serves_the_module_that_widgets_carry():
    [served] = (PACKAGE / "labextension" / "static").glob("explorer.*.js")
    assert served.read_bytes() == unpacked()
    name = served.name.split(".")[1]
    for carried in ("explorer.js", "shared.js"):
        assert f'Symbol.for("pitfall-lab {name}")' in (PACKAGE / "static" / carried).read_text(encoding="utf-8")


@pytest.mark.parametrize("path", BUILT, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_no_path_of_the_building_machine_is_left(path: Path):
    text = unpacked().decode() if path.name == "explorer.js" else path.read_text(encoding="utf-8")
    assert not re.search(
        r"""["'`(\s](?:file://|[A-Za-z]:\\\\|/(?:home|root|Users|tmp|work|opt|usr|var|mnt|private)/)""", text
    )


@pytest.mark.parametrize(
    "path", [FRONTEND / "package-lock.json", FRONTEND / ".npmrc", *BUILT], ids=lambda path: path.name
)
def test_no_registry_is_named(path: Path):
    text = path.read_text(encoding="utf-8")
    assert '"resolved"' not in text
    assert "registry=" not in text


def test_markup_is_never_made_from_text():
    for path in (FRONTEND / "src").rglob("*.ts"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(
            r"\.(?:innerHTML|outerHTML)\s*[+]?=|insertAdjacentHTML|document\.write|\beval\(|new Function", text
        ), path


def test_the_extension_names_what_it_loads():
    package = json.loads((PACKAGE / "labextension" / "package.json").read_text(encoding="utf-8"))
    assert package["name"] == "pitfall-lab"
    assert (PACKAGE / "labextension" / package["jupyterlab"]["_build"]["load"]).is_file()
    schema = json.loads(
        (PACKAGE / "labextension" / "schemas" / "pitfall-lab" / "plugin.json").read_text(encoding="utf-8")
    )
    assert schema["jupyter.lab.toolbars"]["Notebook"][0]["command"] == "pitfall-lab:explain-cell"


def test_the_test_command_checks_format_style_and_types():
    assert '"tests/frontend/checks.py"' in (PACKAGE.parent / "tests" / "run.py").read_text(encoding="utf-8")
    scripts = json.loads((FRONTEND / "package.json").read_text(encoding="utf-8"))["scripts"]
    assert scripts["check"] == "biome ci --error-on-warnings && tsc --noEmit"
    assert json.loads((FRONTEND / "tsconfig.json").read_text(encoding="utf-8"))["compilerOptions"]["strict"] is True


@pytest.mark.parametrize(("status", "checked"), [(0, True), (1, True), (0, False)])
def test_the_checks_fail_as_npm_does(status: int, checked: bool, tmp_path: Path, monkeypatch, capsys):
    (tmp_path / "package-lock.json").write_text("{}")
    (tmp_path / "node_modules").mkdir()
    (tmp_path / checks.INSTALLED).write_text("{}")
    npm = tmp_path / "npm"
    npm.write_text(f'#!/bin/sh\ntest "$*" = "run check" || exit 7\nexit {status}\n')
    npm.chmod(0o755 if checked else 0o644)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert checks.main(tmp_path) == status
    assert ("not checked" in capsys.readouterr().out) == (not checked)


UNPACKED = """async (code) => {
  let times = 0;
  const Real = globalThis.DecompressionStream;
  globalThis.DecompressionStream = class extends Real { constructor(kind) { super(kind); times += 1; } };
  const modules = [];
  for (let widget = 0; widget < 3; widget += 1) {
    modules.push(await import(URL.createObjectURL(new Blob([code], { type: "text/javascript" }))));
  }
  globalThis.DecompressionStream = Real;
  return [times, new Set(modules.map((one) => one.default.render)).size, modules.length];
}"""


def test_all_widgets_of_a_page_share_the_module_that_the_first_one_unpacks(stage):
    stage.page.goto("about:blank")
    code = (PACKAGE / "static" / "explorer.js").read_text(encoding="utf-8")
    assert stage.page.evaluate(UNPACKED, code) == [1, 1, 3]


ASKED = """async ([stub, code, offers, kernel]) => {
  const from = (text) => URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  const asked = [];
  const key = Symbol.for("pitfall-lab front end");
  let served = 0;
  if (offers) globalThis[key] = (name) => { served += 1; return import(from(code)); };
  const drawn = [];
  for (let widget = 0; widget < 3; widget += 1) {
    let hear = null;
    const model = {
      get: () => "en", off() {}, on(_, fn) { hear ??= fn; },
      send({ front_end }) { asked.push(front_end); window[kernel](front_end).then((text) => hear(
        { front_end }, [Uint8Array.from(atob(text), (one) => one.charCodeAt(0))])); },
    };
    const { default: { render } } = await import(from(`${stub}// ${widget}`));
    const el = document.createElement("div");
    await render({ model, el });
    await new Promise((drawn) => setTimeout(drawn, 100));
    drawn.push(el.shadowRoot ? "drawn" : el.textContent);
  }
  return [served, asked.length, drawn];
}"""


@pytest.mark.parametrize(("offers", "served", "asked"), [(True, 1, 0), (False, 0, 1)])
def test_where_widgets_carry_no_script_the_page_gets_it_once(stage, offers: bool, served: int, asked: int):
    class Kept(DrawnWidget):
        def send(self, content, buffers=None):
            self.sent = content, buffers

    def from_kernel(name: str) -> str:
        widget = Kept()
        widget._asked_for_script(widget, {"front_end": name}, [])
        assert widget.sent[0] == {"front_end": name}
        return base64.b64encode(widget.sent[1][0]).decode()

    stage.page.goto("about:blank")
    stage.page.expose_function(f"kernel{served}", from_kernel)
    stub = (PACKAGE / "static" / "shared.js").read_text(encoding="utf-8")
    got = stage.page.evaluate(ASKED, [stub, unpacked().decode(), offers, f"kernel{served}"])
    assert got == [served, asked, ["drawn"] * 3]


def test_a_page_without_extension_and_kernel_says_what_is_missing(stage):
    stub = (PACKAGE / "static" / "shared.js").read_text(encoding="utf-8")
    stage.page.goto("about:blank")
    said = stage.page.evaluate(
        """async (stub) => {
          const url = URL.createObjectURL(new Blob([stub], { type: "text/javascript" }));
          const { default: { render } } = await import(url);
          const el = document.createElement("div");
          await render({ el, model: { get: () => "en", on() {}, off() {}, send() { throw new Error("no kernel"); } } });
          return el.textContent;
        }""",
        stub,
    )
    assert said == "This picture needs pitfall_lab's JupyterLab extension, or a running kernel."


@pytest.mark.parametrize(
    ("open_comms", "carried"), [(("pitfall-lab.live",), "shared.js"), (("other",), "explorer.js"), ((), "explorer.js")]
)
def test_a_widget_carries_no_script_where_a_page_with_the_extension_is_connected(
    open_comms: tuple[str, ...], carried: str, monkeypatch
):
    assert front_end.PANEL == panel.TARGET
    comms = {number: SimpleNamespace(target_name=name) for number, name in enumerate(open_comms)}
    kernel = SimpleNamespace(comm_manager=SimpleNamespace(comms=comms))
    monkeypatch.setattr(front_end, "get_ipython", lambda: SimpleNamespace(kernel=kernel))
    assert DrawnWidget()._esm == (PACKAGE / "static" / carried).read_text(encoding="utf-8")
