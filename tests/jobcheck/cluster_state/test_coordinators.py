"""Is it known who coordinates an account, also where only another service has the network, and only for a day?"""

from __future__ import annotations

import os
import time
from pathlib import Path

from opsk.errors import SlurmError
from opsk_jobcheck.cluster_state.coordinators import (
    EVERY_S,
    FILE_NAME,
    MAX_AGE_S,
    CoordinatorLookup,
    write_coordinators,
)

UIDS = {"ada": 1000, "grace": 1001}
ACCOUNTS = {"ada": ("physics",), "gone": ("astro",)}


def test_slurmdbd_is_asked_now_and_then_and_its_last_answer_counts_for_a_day() -> None:
    clock, answers = [0.0], [ACCOUNTS, SlurmError("slurmdbd is away")]
    asked = []

    def query() -> dict[str, tuple[str, ...]]:
        asked.append(clock[0])
        answer = answers[min(len(asked), 2) - 1]
        if isinstance(answer, SlurmError):
            raise answer
        return answer

    lookup = CoordinatorLookup(None, query=query, find_uid=UIDS.__getitem__, clock=lambda: clock[0])
    assert lookup() == lookup() == {1000: ("physics",)}
    assert len(asked) == 1
    clock[0] += EVERY_S
    assert lookup() == {1000: ("physics",)}
    clock[0] += MAX_AGE_S
    assert lookup() == {}


def test_without_a_network_the_file_of_the_watcher_counts(tmp_path: Path) -> None:
    def lookup() -> object:
        return CoordinatorLookup(tmp_path, find_uid=UIDS.__getitem__)()

    assert lookup() == {}
    write_coordinators(tmp_path / FILE_NAME, ACCOUNTS)
    assert lookup() == {1000: ("physics",)}
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o077 == 0
    old = time.time() - MAX_AGE_S - 60
    os.utime(tmp_path / FILE_NAME, (old, old))
    assert lookup() == {}
    (tmp_path / FILE_NAME).write_text("[1]")
    assert lookup() == {}
