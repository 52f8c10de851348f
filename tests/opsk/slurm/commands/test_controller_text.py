"""Tests parsing of the controllers that answer and of the reservations."""

from __future__ import annotations

from pathlib import Path

import pytest

from opsk.slurm.commands.controller_text import Controller, Reservation, parse_ping, parse_reservations

RESERVATION = """\
ReservationName={name} StartTime=2026-11-21T09:51:18 EndTime=2026-11-21T11:51:18 Duration=02:00:00
   Nodes=n5 NodeCnt=3 CoreCnt=64 Features=(null) PartitionName=(null) Flags={flags}
   TRES=cpu=64
   Users=root Groups=(null) Accounts=(null) Licenses=(null) State={state} BurstBuffer=(null)
   MaxStartDelay=(null)

"""


def test_controllers_are_told_in_their_order() -> None:
    text = "Slurmctld(primary) at head1 is DOWN\nSlurmctld(backup) at head2.site is UP\n"
    assert parse_ping(text) == (
        Controller(role="primary", host="head1", is_up=False),
        Controller(role="backup", host="head2.site", is_up=True),
    )


@pytest.mark.parametrize("text", ["", "scontrol: error: x", "Slurmctld(primary) at"])
def test_anything_else_is_no_controller(text: str) -> None:
    assert parse_ping(text) == ()


def test_reservations_are_told_by_state_and_kind() -> None:
    text = RESERVATION.format(name="a", flags="MAINT,IGNORE_JOBS", state="ACTIVE")
    text += RESERVATION.format(name="b", flags="FLEX,NO_MAINT_X", state="INACTIVE")
    assert parse_reservations(text) == (
        Reservation(is_active=True, is_maintenance=True, nodes=3),
        Reservation(is_active=False, is_maintenance=False, nodes=3),
    )
    assert parse_reservations(text.replace("\n   ", " ")) == parse_reservations(text), "one line each"


def test_no_reservation_is_none() -> None:
    assert parse_reservations("No reservations in the system\n") == ()


@pytest.mark.shared
@pytest.mark.parametrize("release", ["22.05", "24.11", "25.11", "26.05"])
def test_real_text_is_read(shared: Path, release: str) -> None:
    folder = shared / "data" / "real" / "slurm-json" / release
    found = parse_reservations((folder / "scontrol_show_reservations.txt").read_text(encoding="utf-8"))
    assert sorted((each.is_active, each.is_maintenance, each.nodes) for each in found) == [
        (False, True, 1),
        (True, False, 1),
    ]
    (controller,) = parse_ping((folder / "scontrol_ping.txt").read_text(encoding="utf-8"))
    assert (controller.role, controller.is_up) == ("primary", True)
