"""The README's first command as a stranger runs it: a copy of the tree, an empty HOME, nothing installed.

``python3 tests/docs/fresh.py``. It is no part of the pytest run, because pip fetches packages:
tests/run.py runs it while it makes its own environment.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TOKEN = "stranger"


def first_command() -> str:
    """The first shell block of the README."""
    found = re.search(
        r"^```bash\n(.*?)\n```$", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    assert found is not None
    return found[1]


def copy_tree(target: Path) -> None:
    """What a clone would hold if everything here were committed."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def ask(url: str) -> str:
    with urllib.request.urlopen(f"{url}{'&' if '?' in url else '?'}token={TOKEN}", timeout=5) as answer:
        return answer.read().decode()


def main() -> int:
    with tempfile.TemporaryDirectory() as place, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        home, clone = Path(place) / "home", Path(place) / "clone"
        home.mkdir()
        clone.mkdir()
        copy_tree(clone)
        keep = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("JUPYTER", "IPYTHON", "VIRTUAL_ENV", "PYTHON"))
        }
        # Scripts of the test environment must not help.
        keep["PATH"] = os.pathsep.join(
            p for p in os.environ["PATH"].split(os.pathsep) if not Path(p).is_relative_to(ROOT)
        )
        # JupyterLab compiles what it imports: a tenth of what pip would compile before. (0 is how
        # pip spells --no-compile here.)
        keep["PIP_NO_COMPILE"] = "0"
        command = f"{first_command()} --no-browser --port {port}"
        print(f"== in an empty environment: {command}", flush=True)
        started = time.monotonic()
        process = subprocess.Popen(
            ["bash", "-c", command],
            cwd=clone,
            env={**keep, "HOME": str(home), "JUPYTER_TOKEN": TOKEN},
            start_new_session=True,
        )
        try:
            return check(f"http://127.0.0.1:{port}", process, started)
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(30)


def check(url: str, process: subprocess.Popen[bytes], started: float) -> int:
    """Wait for JupyterLab; it must show the start notebook and load the extension."""
    while process.poll() is None and time.monotonic() < started + 900:
        try:
            page = ask(f"{url}/lab/tree/notebooks/00-start-here.ipynb")
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.5)
            continue
        assert re.search(r'"name": ?"pitfall-lab"', page), "the page does not load the extension"
        assert '"type": "notebook"' in ask(f"{url}/api/contents/notebooks/00-start-here.ipynb?content=0")
        print(
            f"== JupyterLab answered after {time.monotonic() - started:.0f} s, with the extension "
            "and the start notebook"
        )
        return 0
    print("== the README's first command failed")
    return 1


if __name__ == "__main__":
    sys.exit(main())
