"""Does exactly one node ask Slurm, does it move with the slurmctld in charge, and do the others never ask anything?"""

from __future__ import annotations

from pathlib import Path

import pytest

from opsk.errors import SlurmError
from opsk.slurm.commands.controller_text import Controller
from opsk_exporters.slurm.election import Election, is_same_host

BOTH_UP = (
    Controller(role="primary", host="head1", is_up=True),
    Controller(role="backup", host="head2", is_up=True),
)
FAILED_OVER = (Controller(role="primary", host="head1", is_up=False), BOTH_UP[1])
ALL_DOWN = (FAILED_OVER[0], Controller(role="backup", host="head2", is_up=False))


class Node:
    """A node whose slurmctld comes and goes."""

    def __init__(self, root: Path, host: str, on: str = "auto") -> None:
        self.root = root / host
        self.known: tuple[Controller, ...] = BOTH_UP
        self.asked = 0
        (self.root / "proc" / "1").mkdir(parents=True)
        (self.root / "proc" / "1" / "comm").write_text("systemd\n")
        (self.root / "proc" / "self").mkdir()
        self.election = Election(
            on, procfs=self.root / "proc", cgroups=self.root / "cgroup", host=lambda: f"{host}.site.org"
        )

    def runs(self, name: str = "slurmctld") -> Node:
        (self.root / "proc" / "77").mkdir(exist_ok=True)
        (self.root / "proc" / "77" / "comm").write_text(f"{name}\n")
        return self

    def stops(self) -> Node:
        (self.root / "proc" / "77" / "comm").unlink()
        return self

    def asks(self) -> bool:
        return self.election.is_won(self.controllers)

    def controllers(self) -> tuple[Controller, ...]:
        self.asked += 1
        return self.known


def test_a_node_without_slurmctld_asks_nobody(tmp_path: Path) -> None:
    node = Node(tmp_path, "n1").runs("slurmd")
    assert not any(node.asks() for _ in range(3))
    assert node.asked == 0


def test_the_slurmctld_in_charge_asks_and_the_other_does_not(tmp_path: Path) -> None:
    nodes = [Node(tmp_path, host).runs() for host in ("head1", "head2")]
    assert [node.asks() for node in nodes] == [True, False]


def test_it_moves_with_a_failover_and_back(tmp_path: Path) -> None:
    first, second = Node(tmp_path, "head1").runs(), Node(tmp_path, "head2").runs()
    assert (first.asks(), second.asks()) == (True, False)
    first.stops().known = second.known = FAILED_OVER
    assert (first.asks(), second.asks()) == (False, True)
    asked = first.asked
    assert (first.asks(), first.asked) == (False, asked), "it is a node like any other now"
    first.runs().known = second.known = BOTH_UP
    assert (first.asks(), second.asks()) == (True, False)


def test_a_slurmctld_that_died_is_a_fault_and_not_nothing(tmp_path: Path) -> None:
    node = Node(tmp_path, "head1").runs()
    assert node.asks()
    node.stops().known = ALL_DOWN
    for _ in range(2):
        with pytest.raises(SlurmError, match="none answers"):
            node.asks()


def test_a_slurmctld_that_hangs_is_a_fault(tmp_path: Path) -> None:
    node = Node(tmp_path, "head1").runs()
    node.known = ALL_DOWN
    with pytest.raises(SlurmError, match="none answers"):
        node.asks()


@pytest.mark.parametrize("unit", ["system.slice", "systemd/system.slice", "unified/system.slice"])
def test_a_service_of_systemd_is_seen_where_processes_of_others_are_hidden(tmp_path: Path, unit: str) -> None:
    """The exporter's unit has ProtectProc=invisible; control groups stay in sight, in all three layouts."""
    node = Node(tmp_path, "head1")
    (node.root / "cgroup" / unit / "slurmctld.service").mkdir(parents=True)
    assert node.asks()


def test_an_address_that_moves_has_a_name_of_its_own(tmp_path: Path) -> None:
    """One SlurmctldHost, whose address a cluster manager moves: slurmctld runs on one node at a time."""
    node = Node(tmp_path, "head1").runs()
    node.known = (Controller(role="primary", host="slurm", is_up=True),)
    assert node.asks()


@pytest.mark.parametrize(
    ("on", "asks"), [("head1", True), ("HEAD1.site.org", True), ("head1.other.org", False), ("head2", False),
                     ("off", False)]
)  # fmt: skip
def test_a_named_node_asks_whatever_runs_on_it(tmp_path: Path, on: str, asks: bool) -> None:
    node = Node(tmp_path, "head1", on)
    assert node.asks() is asks
    assert node.asked == 0


def test_names_are_compared_as_far_as_both_go() -> None:
    assert is_same_host("a", "a.b.c")
    assert is_same_host("A.b.", "a.B")
    assert not is_same_host("a", "aa.b")
