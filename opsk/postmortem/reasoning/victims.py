"""Which process ended first, as srun, torchrun and mpirun tell?

They see every process of theirs end, so the first that they name is near the cause, though they say nothing of why.
"""

from __future__ import annotations

from collections.abc import Iterable

from opsk.postmortem.reasoning.places import Seating, completed
from opsk.postmortem.values import Place, Sign

_TASK = "slurm.task_killed"
_NAMED = (_TASK, "launcher.root_rank", "launcher.rank_ended", "mpi.abort")
_KILLS, _ASKED = ("9", "-9", "137"), ("15", "-15", "143", "0")
_CRASHES = frozenset(("4", "6", "7", "8", "11", "-4", "-6", "-7", "-8", "-11", "132", "134", "135", "136", "139"))


def victim_of(signs: Iterable[Sign], seating: Seating) -> Place:
    """Return the place of the process that is said to have ended first; an empty one where nothing is said."""
    found = first_end(signs, seating)
    return found[1] if found is not None else Place()


def first_end(signs: Iterable[Sign], seating: Seating) -> tuple[Sign, Place] | None:
    """Return the line that tells of the first end, and the place of that process."""
    told = [sign for sign in signs if sign.signature in _NAMED]
    for sign in sorted(
        told, key=lambda each: (each.signature != _TASK, each.earliest_s or each.time_s or 0.0, each.order)
    ):
        place = completed(_place(sign), seating)
        if place.rank is not None:
            return sign, place
        if sign.signature == _TASK and place.node_rank is None:
            return None
    return None


def how_ended(sign: Sign) -> str:
    """Return ``crash``, ``kill`` or ``exit``; empty where the process was told to end, or something else says why."""
    end, number = sign.fields.get("end", ""), sign.fields.get("exit", sign.fields.get("signal", ""))
    if end.startswith("Killed") or number in _KILLS:
        return "kill"
    if end.startswith(("Terminated", "Out Of Memory")) or number in _ASKED or not (end or number):
        return ""
    return "crash" if number in _CRASHES or (end and not end.startswith("Exited")) else "exit"


def was_aborted(sign: Sign) -> bool:
    """Tell whether a process ended itself by SIGABRT."""
    number = sign.fields.get("exit", sign.fields.get("signal", ""))
    return sign.fields.get("end", "").startswith("Aborted") or number in ("6", "-6", "134")


def _place(sign: Sign) -> Place:
    """Return the one process that a line names; none where it names several."""
    if sign.signature != _TASK:
        return sign.place
    if sign.place.node_rank is not None:
        return Place(node=sign.place.node, node_rank=sign.place.node_rank)
    tasks, node = sign.fields.get("tasks", ""), sign.fields.get("node", "")
    return Place(node="" if _is_list(node) else node, rank=int(tasks) if tasks.isdecimal() and len(tasks) < 9 else None)


def _is_list(node: str) -> bool:
    """Tell whether a name stands for several nodes."""
    return "[" in node or "," in node
