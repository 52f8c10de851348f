"""Scripts that are written from a known truth: what is read right, missed and read wrong.

``OPSK_WRITTEN_SCRIPTS`` is how many are tried.
"""

from __future__ import annotations

import os

from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.script import read_script
from tests.fakes.written_scripts import WrittenScript, write_script

COUNT = int(os.environ.get("OPSK_WRITTEN_SCRIPTS", "60"))


def read_value(workload: Workload, name: str) -> object:
    """Return a value of a workload by its dotted field."""
    owner, _, key = name.partition(".")
    return getattr(getattr(workload, owner), key)


def compare(written: WrittenScript) -> tuple[int, list[str], list[str]]:
    """Return how many values of a script are right, and which are missed and wrong."""
    workload = read_script(written.text, file="job.sh", files=written.files)
    missed, wrong = [], []
    for name, value in written.truth.items():
        found = read_value(workload, name)
        if found is None:
            missed.append(f"{written.name}: {name}")
        elif found != value:
            wrong.append(f"{written.name}: {name} is {found}, not {value}\n{written.text}")
    return len(written.truth) - len(missed) - len(wrong), missed, wrong


def test_written_scripts_are_read_right_and_never_wrong() -> None:
    rows = [compare(write_script(seed)) for seed in range(COUNT)]
    assert [text for row in rows for text in row[2]] == []
    assert [text for row in rows for text in row[1]] == []
    assert sum(row[0] for row in rows) >= 6 * COUNT
