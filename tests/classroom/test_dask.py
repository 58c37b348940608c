"""A running Dask cluster judges: a real scheduler and workers, in processes of their own, and its table is ours."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pitfall_lab.cli import main
from pitfall_lab.lessons.exercises import exercises
from tests.classroom.a_class import book, code

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = """\
import sys
from distributed import LocalCluster
if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()
"""


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    program = tmp_path / "cluster.py"
    program.write_text(CLUSTER, encoding="utf-8")
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    cluster = subprocess.Popen(
        [sys.executable, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables, cwd=tmp_path
    )
    assert cluster.stdout is not None
    try:
        yield cluster.stdout.readline().strip()
    finally:
        cluster.communicate(timeout=60)


EXERCISE = exercises()["12.2"]
CLASS = {
    "ada": EXERCISE.right[0],
    "bob": EXERCISE.wrong[2],
    "cem": EXERCISE.right[1],
    "dee": EXERCISE.wrong[0],
    "eve": "import os\nos._exit(0)",
    "fay": "while True:\n    pass\n",
    "gus": EXERCISE.given,
    "hal": "raise ValueError('=1+1')\n",
    "ivy": f"{EXERCISE.right[0]}import sys\nsys._getframe(1)\n",
    "jan": "x = = 1\n",
}
"""Ten cells, by student: right and wrong ones, and all ways to end."""


@pytest.mark.filterwarnings("ignore")
def test_a_cluster_makes_the_table_that_is_made_here(tmp_path: Path, address: str) -> None:
    folder = tmp_path / "class"
    folder.mkdir()
    for name, source in CLASS.items():
        (folder / f"{name}.ipynb").write_text(json.dumps(book([code(f"%%exercise 12.2\n{source}")])), encoding="utf-8")
    both = {}
    for where, more in (("cluster", ["--dask", address]), ("here", ["--jobs", "1"])):
        table = tmp_path / f"{where}.csv"
        assert main(["grade", str(folder), "--chapters", "12", "--timeout", "4", "-o", str(table), *more]) == 0
        with table.open(encoding="utf-8-sig") as file:
            both[where] = list(csv.reader(file))
    assert both["cluster"] == both["here"]
    head, *lines = both["cluster"]
    rows = {line[0]: dict(zip(head, line, strict=True)) for line in lines}
    assert rows.keys() == CLASS.keys()
    assert (rows["ada"]["12.2"], rows["ada"]["verdict"]) == ("1", "graded")
    assert 0 < float(rows["bob"]["12.2"]) < 1
    assert [rows[name]["verdict"] for name in ("eve", "fay", "gus", "ivy")] == [
        "stopped",
        "stopped",
        "empty",
        "tampered",
    ]


def test_no_cluster_there_is_said_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ada.ipynb").write_text(json.dumps(book([code("%%exercise 12.2\nx = 1")])), encoding="utf-8")
    monkeypatch.setattr("pitfall_lab.classroom.grade.DASK_SECONDS", 1)
    assert main(["grade", str(tmp_path), "--chapters", "12", "--dask", "tcp://127.0.0.1:9"]) == 2
    assert "no Dask scheduler" in capsys.readouterr().err
