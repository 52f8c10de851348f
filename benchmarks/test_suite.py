"""How long does ``make test`` take? ``python -m benchmarks.test_suite`` runs it; from a fresh clone it is "from bare".

Only when it is asked for: it takes most of an hour, and writes what it says to this one's output.
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

from benchmarks.found import Found, NotRunError, arguments, run
from benchmarks.process_use import timed

ROOT = Path(__file__).resolve().parent.parent
LAST_LINES = 12


def measure(asked: argparse.Namespace) -> Found:
    """Run the tests; in the short form see only that make knows how."""
    command = ["make", "test", *(["--dry-run"] if asked.short else [])]
    done, all_s, _ = timed(lambda: subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False))
    print("\n".join(done.stdout.splitlines()[-LAST_LINES:]))
    if done.returncode:
        raise NotRunError("make test failed: its time is no figure")
    print(f"make test: {all_s / 60:.0f} minutes")
    return Found(figures={"all_s": all_s})


if __name__ == "__main__":
    run(measure, arguments(__doc__))
