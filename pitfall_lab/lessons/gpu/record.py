"""Record all experiments on a machine with a CUDA device: ``python -m pitfall_lab.lessons.gpu.record [FILE]``."""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path

from pitfall_lab import processes
from pitfall_lab.lessons.gpu import ExperimentFailed, fingerprint, has_cuda, names, run


def main(words: list[str]) -> int:
    """Run every experiment, write the recording to a file, and return the exit code.

    The file is the first of ``words``, by default the package's ``recorded.json``. Returns 0, or 1 if an experiment
    failed: it is printed and missing from the file, and nothing is written if all failed. Returns 2 without a CUDA
    device.
    """
    if not has_cuda():
        print("torch sees no CUDA device here; nothing was recorded.", file=sys.stderr)
        return 2
    target = Path(words[0]) if words else Path(__file__).with_name("recorded.json")
    experiments, failed, last = {}, [], None
    for name in names():
        try:
            last = run(name)
        except ExperimentFailed as error:
            print(f"== {error}", flush=True)
            failed.append(name)
            continue
        print(f"== {name}\n{last.printed}", flush=True)
        experiments[name] = {"program": fingerprint(name), "printed": last.printed, "result": last.result}
    if last is None:
        return 1
    kept = {
        "schema": 1,
        "device": last.device,
        "driver": _driver(),
        "torch": last.torch,
        "python": platform.python_version(),
        "date": last.date,
        "experiments": experiments,
    }
    target.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{len(experiments)} recorded, {len(failed)} failed: {' '.join(failed)}")
    return 1 if failed else 0


def _driver() -> str | None:
    smi = processes.installed("nvidia-smi")
    if smi is None:
        return None
    done = processes.run([smi, "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True)
    return done.stdout.strip().partition("\n")[0] or None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
