"""Runs ``make soak``: a lab of 64 nodes, 1,000 jobs, 20 minutes of faults, and checks at the end.

``--short`` takes a few minutes. The seed is printed first; ``--seed`` runs the same plan again. Exit status: 0 all
holds, 1 something does not, 2 it was called off.
"""

from __future__ import annotations

import argparse
import json
import secrets
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from tests.soak.report import document, table
from tests.soak.running import LONG, SHORT, soak


def main() -> int:
    """Run a soak and print what came of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--short", action="store_true", help="6 nodes, 40 jobs, each fault once")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report as JSON as well")
    parser.add_argument("--keep", action="store_true", help="leave the folder of the soak, with all logs")
    asked = parser.parse_args()
    seed = asked.seed if asked.seed is not None else secrets.randbelow(1 << 31)
    top = Path(tempfile.mkdtemp(prefix="opsk-soak-"))
    print(f"soak: seed {seed}, in {top}", flush=True)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(2))  # all is ended and removed on the way out
    try:
        said = document(soak(SHORT if asked.short else LONG, seed, top, lambda line: print(line, flush=True)))
        if asked.json is not None:
            asked.json.write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
        print(table(said), flush=True)
    finally:
        if not asked.keep:
            shutil.rmtree(top, ignore_errors=True)
    return 0 if said["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
