"""The printable figures: what stands on them, that it can be read on A4, and that black and white loses nothing."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text

from pitfall_lab import handout, show_broadcast, show_memory, show_storage, views
from pitfall_lab.views import print_style
from pitfall_lab.views.label_history import gather
from tests.frontend.sample import sample
from tests.frontend.test_hostile import INJECTIONS, poisoned
from tests.views import build

VIEWS = {
    "memory": handout.memory,
    "storage": handout.storage,
    "versions": handout.versions,
    "broadcast": handout.broadcast,
}
PROGRAMS = {
    **build.PROGRAMS,
    "hostile_1": lambda: poisoned(INJECTIONS[0]),
    "hostile_3": lambda: poisoned(INJECTIONS[2]),
}
PAGES = [(name, "en") for name in PROGRAMS if name not in ("array", "chain")] + [
    (name, "zh") for name in ("overwritten", "hostile")
]


def texts(figure: Figure) -> list[Text]:
    return [one for one in figure.findobj(Text) if one.get_text().strip() and one.get_visible()]


def named(figure: Figure, gid: str) -> list:
    return figure.findobj(lambda one: one.get_gid() == gid)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(("program", "language"), PAGES)
def test_everything_stands_on_the_page_and_can_be_read(program: str, view: str, language: str):
    figure = VIEWS[view](PROGRAMS[program](), language=language)
    assert figure.get_figwidth() * 2.54 == pytest.approx(16)
    assert figure.get_figheight() * 2.54 < 25, "higher than the text block of an A4 page"
    assert texts(figure)
    assert min(one.get_fontsize() for one in texts(figure)) >= 8
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw_without_rendering()  # axes place their labels now
    frame = figure.bbox
    for one in texts(figure):
        box = one.get_window_extent(renderer)
        if box.width:
            inside = (
                box.x0 >= frame.x0 - 1 and box.x1 <= frame.x1 + 1 and box.y0 >= frame.y0 - 1 and box.y1 <= frame.y1 + 1
            )
            assert inside, (one.get_text(), box)


def luminance(colour: str) -> float:
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), to_rgb(colour), strict=True))


def test_storages_differ_without_colour():
    palette = [f"S{n}" for n in range(1, 7)]
    looks = [print_style.looks(label, palette) for label in [*palette, "S7"]]
    for a, b in itertools.combinations(looks, 2):
        assert a["hatch"] != b["hatch"] or abs(luminance(a["facecolor"]) - luminance(b["facecolor"])) > 0.2


def test_memory_has_a_band_for_each_storage_the_total_and_the_peak():
    trace = build.overwritten()
    scene = views.scene(trace)["memory"]
    figure = handout.memory(trace)
    for band in scene["bands"]:
        assert len(named(figure, f"band-{band['id']}")) == 1
    (total,) = named(figure, "total")
    assert max(total.get_ydata()) == scene["peak"]["bytes"]
    (peak,) = named(figure, "peak")
    assert set(peak.get_xdata()) == {scene["peak"]["step"]}
    said = " ".join(one.get_text() for one in texts(figure))
    assert f"peak {scene['peak']['bytes']} B" in said
    assert "kept by h, the graph (SigmoidBackward0)" in said


def test_storage_shows_what_was_written_thickly_and_a_second_counter_twice():
    trace = build.overwritten()
    figure = handout.storage(trace, step=2)
    written = [one.get_linewidth() for n in range(3) for one in named(figure, f"cell-S2-{n}")]
    assert written == [2.0, 2.0, 2.0]
    assert [one.get_linewidth() for one in named(figure, "cell-S1-0")] == [0.8]
    assert "C2·v1" in [one.get_text() for one in texts(figure)]
    assert "C2·v0" in [one.get_text() for one in texts(handout.storage(trace, step=1))]


def test_the_stale_span_goes_from_the_pin_to_the_bump():
    trace = build.overwritten()
    figure = handout.versions(trace)
    (stale,) = named(figure, "stale")
    (bump,) = named(figure, "bump-C2-1")
    assert stale.get_xdata()[1] == bump.get_xdata()[0]
    assert stale.get_xdata()[0] < stale.get_xdata()[1]
    assert {"✕", "v1", "n1.result v0"} <= {one.get_text() for one in texts(figure)}


def test_sizes_that_do_not_meet_are_drawn_and_the_trap_is_counted():
    figure = handout.broadcast(build.broadcasting())
    said = [one.get_text() for one in texts(figure)]
    assert "sizes do not match" in said
    assert len(named(figure, "clash")) == 1
    assert "every element meets every element: 3 × 3 = 9 numbers" in said


def test_pictures_are_saved_for_print_too(tmp_path):
    trace = sample()
    for number, picture in enumerate((show_storage(a=[1.0]), show_broadcast((3,), (3, 1)), show_memory(trace))):
        if picture.svg:
            assert picture.save(tmp_path / f"{number}.pdf").read_bytes().startswith(b"%PDF")
    assert (tmp_path / "1.pdf").is_file()
    assert (tmp_path / "2.pdf").is_file()


def test_pyplot_is_never_loaded():
    program = (
        "import sys; from pitfall_lab import handout; from tests.frontend.sample import sample\n"
        "for draw in (handout.memory, handout.storage, handout.versions, handout.broadcast): draw(sample())\n"
        "assert 'matplotlib.figure' in sys.modules and 'matplotlib.pyplot' not in sys.modules and 'torch' not in "
        "sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_an_empty_program_says_so():
    assert [one.get_text() for one in texts(handout.memory(build.PROGRAMS["empty"]()))] == ["no storage with any bytes"]
    assert gather(build.PROGRAMS["empty"]()).storages == {}
