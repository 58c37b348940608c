"""Twelve programs as they are written, each with one mistake, in the Explorer: ``python -m
tests.views.twelve [FOLDER] [NAME …]``.

Each is recorded, its fixes are tried, and the first screen is taken: at 1280 × 800, 1920 × 1080 and 390 × 844, each
in light and dark. What has to be seen there without scrolling (:data:`tests.views.twelve.SEEN`) is looked for; the
command ends with 1 where some of it is missing on one of the two wider screens. ``--untried`` leaves out the fixes,
which take most of the time.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.frontend.stage import SCREENSHOTS, browser, staged
from tests.views.twelve import LOOKS, NARROW, SEEN, missing, recorded, shown


def main(words: list[str]) -> int:
    """Take them all, print what each lacks and where they are."""
    options = [word for word in words if word not in SEEN and word != "--untried"]
    names = [word for word in words if word in SEEN] or list(SEEN)
    folder = Path(options[0]) if options else SCREENSHOTS / "twelve"
    folder.mkdir(parents=True, exist_ok=True)
    failed = False
    with browser() as chromium:
        for name in names:
            state = recorded(name, fixes="--untried" not in words)
            for width, height, theme in LOOKS:
                with staged(chromium, width) as stage:
                    lacking = missing(shown(stage, state, width, height, theme), name, height)
                    stage.page.screenshot(path=folder / f"{name}-{width}-{theme}.png")
                failed |= bool(lacking) and width > NARROW
                print(
                    f"{name} {width} {theme}: "
                    f"{'not on the first screen: ' + '; '.join(lacking) if lacking else 'all there'}",
                    flush=True,
                )
    print(f"{len(names) * len(LOOKS)} screens in {folder}")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
