"""Is each message of the families in `tests.fakes.hard_logs`, as its program prints it, given the class that it shows?

A message follows steps of training, or nothing where it belongs to the set-up. Expected classes are those that the
place named in each family's ``source`` implies.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from opsk.postmortem.logs import LogFile, read_logs
from opsk.postmortem.reasoning import explain
from tests.fakes.hard_logs.cluster_families import CLUSTER_FAMILIES
from tests.fakes.hard_logs.families import FAMILIES, Family
from tests.fakes.hard_logs.kernel_families import KERNEL_FAMILIES
from tests.fakes.hard_logs.library_families import LIBRARY_FAMILIES

STEPS = "".join(f"step {step} | loss: 2.3100 | 1.23 s/step\n" for step in range(100, 110))
AT_START = ("config", "rendezvous")


def classify(folder: Path, message: str, *, is_at_start: bool) -> str:
    """Return the class of a log that ends with a message; empty where it is no failure."""
    log = folder / "slurm-4711.out"
    text = message.format(node="gpu012", peer="gpu013", rank=3, local=3)
    log.write_text(("" if is_at_start else STEPS) + text + "\n")
    root = explain(read_logs([LogFile(path=log)], processes=1)).root
    return root.failure.value if root is not None else ""


@pytest.mark.parametrize(
    "family",
    [*FAMILIES, *LIBRARY_FAMILIES, *CLUSTER_FAMILIES],
    ids=lambda family: f"{family.failure}: {family.source[:40]}",
)
def test_every_message_of_a_family_is_classed(family: Family, tmp_path: Path) -> None:
    wrong = {
        message: found
        for message in family.messages
        if (found := classify(tmp_path, message, is_at_start=family.failure in AT_START or "setup()" in message))
        != family.failure
    }
    assert wrong == {}


@pytest.mark.parametrize("family", KERNEL_FAMILIES, ids=lambda family: family.failure)
def test_every_message_of_a_kernel_is_classed_and_placed(family: Family, tmp_path: Path) -> None:
    log = tmp_path / "kern.log"
    wrong = []
    for message in family.messages:
        log.write_text("".join(f"Jan  5 11:00:00 gpu012 kernel: {line}\n" for line in message.splitlines()))
        root = explain(read_logs([LogFile(path=log)], processes=1)).root
        if root is None or (root.failure.value, root.where.node) != (family.failure, "gpu012"):
            wrong.append(message)
    assert wrong == []


def test_every_family_names_where_its_messages_are_made() -> None:
    assert all(
        family.source and family.messages
        for family in (*FAMILIES, *LIBRARY_FAMILIES, *CLUSTER_FAMILIES, *KERNEL_FAMILIES)
    )
