"""The checks of the front end, in the test command: Biome (format and lint) and ``tsc --strict``.

``python tests/frontend/checks.py`` installs the locked packages if they are not there yet, and runs ``npm run check``.
Where there is no npm nothing is checked, and it says so: the built front end is committed, and Python needs no Node.
Standard library only.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

FRONTEND = Path(__file__).resolve().parents[2] / "pitfall_lab" / "frontend"
INSTALLED = Path("node_modules") / "installed-lock.json"


def main(folder: Path = FRONTEND) -> int:
    """Run the checks on the front end in ``folder``; 0 when they passed, or when there is no npm."""
    npm = shutil.which("npm")
    if npm is None:
        print("not checked: there is no npm (https://nodejs.org)")
        return 0
    lock, installed = folder / "package-lock.json", folder / INSTALLED
    if not installed.is_file() or installed.read_bytes() != lock.read_bytes():
        code = subprocess.run([npm, "ci", "--no-audit", "--no-fund"], cwd=folder, check=False).returncode
        if code:
            return code
        shutil.copy(lock, installed)
    return subprocess.run([npm, "run", "check"], cwd=folder, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
