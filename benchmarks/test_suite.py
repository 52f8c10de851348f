"""Time ``make quick`` and ``make test`` as somebody types them; in a fresh clone the latter includes what it installs.

Only when it is asked for: it takes half an hour. What the commands print goes to ``build/test_suite.log``.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

from benchmarks.found import Found, NotRunError, arguments, run
from benchmarks.process_use import time_call

ROOT = Path(__file__).resolve().parent.parent
LOG = ROOT / "build" / "test_suite.log"


def measure(asked: argparse.Namespace) -> Found:
    """Run the tests; in the short form make only prints what it would run."""
    if asked.short:  # one of the tests does this, while the long form may be running it
        with tempfile.TemporaryDirectory() as folder:
            return _both(Path(folder) / LOG.name, "--dry-run")
    LOG.parent.mkdir(exist_ok=True)
    LOG.write_bytes(b"")
    return _both(LOG)


def _both(log: Path, *options: str) -> Found:
    return Found(figures={"all_s": _time("test", log, *options), "quick_s": _time("quick", log, *options)})


def _time(target: str, log_file: Path, *options: str) -> float:
    """Return how long a target of the Makefile takes [s].

    Raises
    ------
    NotRunError
        When it fails.
    """
    command = ["make", target, *options]
    with log_file.open("ab") as log:
        done, took_s, _ = time_call(lambda: subprocess.run(command, cwd=ROOT, stdout=log, stderr=log, check=False))
    if done.returncode:
        raise NotRunError(f"make {target} failed: its time is no figure; see {log_file}")
    print(f"make {target}: {took_s / 60:.1f} minutes")
    return took_s


if __name__ == "__main__":
    run(measure, arguments(__doc__))
