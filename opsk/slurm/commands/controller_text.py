"""Parses the output of ``scontrol ping`` and ``scontrol show reservation``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from opsk.slurm.commands.fields import parse_count

_CONTROLLER = re.compile(r"^Slurmctld\((\w+)\) at (\S+) is (UP|DOWN)\b", re.M)
_RESERVATION = re.compile(r"^ReservationName=\S.*?(?=^ReservationName=|\Z)", re.M | re.S)
_FIELD = re.compile(r"(?<!\S)(State|Flags|NodeCnt)=(\S*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """One slurmctld: its role in slurm.conf (``primary``, ``backup``), its host, whether it answers."""

    role: str
    host: str
    is_up: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """One reservation: whether its time is now, whether it is for maintenance, its nodes."""

    is_active: bool
    is_maintenance: bool
    nodes: int


def parse_ping(text: str) -> tuple[Controller, ...]:
    """Return the controllers in the order of slurm.conf: the first that answers is the one in charge."""
    return tuple(
        Controller(role=role, host=host, is_up=state == "UP") for role, host, state in _CONTROLLER.findall(text)
    )


def parse_reservations(text: str) -> tuple[Reservation, ...]:
    """Return the reservations of ``scontrol show reservation``; none of ``No reservations in the system``."""
    reservations = []
    for record in _RESERVATION.findall(text):
        fields = dict(_FIELD.findall(record))
        flags = fields.get("Flags", "").split(",")
        reservations.append(
            Reservation(
                is_active=fields.get("State") == "ACTIVE",
                is_maintenance="MAINT" in flags,
                nodes=parse_count(fields.get("NodeCnt", "")) or 0,
            )
        )
    return tuple(reservations)
