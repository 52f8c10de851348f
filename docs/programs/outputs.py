"""Runs the commands that the pages show again and writes what they really print.

    python docs/programs/outputs.py            # all pages
    python docs/programs/outputs.py README.md docs/tutorial/lab.md

What needs a lab runs on one that is started for it and taken down again: the tutorial starts its own, as it says. It is
worth to read what has changed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shown import ROOT, TUTORIAL, Block, Session, blocks, pages, rewritten

OPSK = (sys.executable, "-m", "opsk")
FOLDER = "/tmp/opsk-tutorial"
"""Where the tutorial works, as it says."""


def main(names: list[str]) -> None:
    """Write the outputs of these pages, or of all."""
    for path in [(ROOT / name).resolve() for name in names] or pages():
        found = list(blocks(path))
        if not found:
            continue
        outputs = tutorial(found, Path(FOLDER)) if str(path.relative_to(ROOT)) == TUTORIAL else run_commands(found)
        path.write_text(rewritten(path.read_text(encoding="utf-8"), outputs), encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")


def tutorial(found: list[Block], folder: Path) -> list[str]:
    """Return what the tutorial's commands print, in order, one shell for all of them; ``folder`` is where it works."""
    session = Session(XDG_STATE_HOME=str(folder / "state"))
    outputs = []
    try:
        for block in found:
            for command, _ in block.shown:
                print(f"$ {command}", file=sys.stderr, flush=True)
                outputs.append(session.run(command.replace(FOLDER, str(folder))).replace(str(folder), FOLDER))
    finally:
        subprocess.run([*OPSK, "lab", "down", "--dir", str(folder / ".lab")], check=False, capture_output=True)
        session.close()
    return outputs


def run_commands(found: list[Block]) -> list[str]:
    """Return what the commands of a page print that can be run, in the page's order."""
    outputs: dict[tuple[int, str], str] = {}
    lab = [block for block in found if block.needs_lab]
    with running_lab() if lab else _nothing() as setting:
        # the lab's jobs end soon: what is shown of them comes before what needs no lab
        for block in sorted(found, key=lambda block: not block.needs_lab):
            if block.why_not:
                continue
            session = Session(SBATCH_OUTPUT="/dev/null")
            if block.needs_lab:
                session.run(setting)
            for command, _ in block.shown:
                outputs[block.line, command] = session.run(command)
            session.close()
    return [outputs[block.line, command] for block in found if not block.why_not for command, _ in block.shown]


@contextmanager
def running_lab() -> Iterator[str]:
    """Bring a lab up; yields what a shell has to run to use it."""
    with tempfile.TemporaryDirectory() as folder:
        lab = Path(folder) / "lab"
        subprocess.run([*OPSK, "lab", "up", "--dir", str(lab)], check=True)
        try:
            words = [*OPSK, "lab", "env", "--dir", str(lab)]
            yield subprocess.run(words, check=True, capture_output=True, text=True).stdout
        finally:
            subprocess.run([*OPSK, "lab", "down", "--dir", str(lab)], check=True)


@contextmanager
def _nothing() -> Iterator[str]:
    yield ""


if __name__ == "__main__":
    main(sys.argv[1:])
