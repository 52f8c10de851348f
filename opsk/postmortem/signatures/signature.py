"""Parses signatures of failures from TOML, and validates every one of them.

The TOML files in this folder hold tables ``[[signature]]``. ``any`` lists literal fragments: a line that has one is a
candidate. ``pattern`` (a regular expression of Python) must match in the candidate, and its groups name the fields to
read; ``unless`` lists fragments that rule a line out. How to add one: docs, "add a signature".
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from opsk.errors import InputError
from opsk.postmortem.values import FailureClass, Origin, Role

_KEYS = frozenset(
    ("id", "any", "pattern", "unless", "framework", "versions", "failure", "role", "origin", "what", "action", "source")
) | {"follow"}
_REQUIRED_KEYS = ("id", "any", "framework", "role", "what", "source")
_ID = re.compile(r"[a-z][a-z0-9]*\.[a-z][a-z0-9_]*")
_MIN_CHARS = 3
FOLLOWS = ("exception", "raised", "what", "report", "tasks", "last", "loss", "tail")


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """One text that indicates a failure, or its absence.

    Parameters
    ----------
    id
        ``subject.name``, unique.
    fragments
        Texts of which a candidate line has one.
    pattern
        Must match in the line; its named groups become the finding's fields (``rank2`` is another ``rank``).
    unless
        Texts that make a line none of these.
    framework, versions
        Who writes it, and since or until when, where that matters.
    failure
        Class of failure that it indicates; ``None`` for advice, progress and successful ends.
    origin
        ``launcher`` for messages of slurmstepd and srun, else ``job_log``.
    what, action
        Its meaning and the action to take, a sentence each.
    source
        Where that is documented: a program's source, a vendor's page, a man page.
    follow
        ``exception``: the exception is some lines below. ``raised``: the line is an exception without the head of its
        traceback, a ``python.exception`` as well. ``what``: C++ prints it in the next line. ``report``:
        lines of ``name : value`` follow, as torchrun writes them. ``tasks``: JAX lists processes. ``last``: it counts
        at the end of a log alone; ``tail``: the same, and it is looked for there alone. ``loss``: it counts unless the
        next reports of the same loss are numbers.
    """

    id: str
    fragments: tuple[str, ...]
    pattern: re.Pattern[str] | None
    unless: tuple[str, ...]
    framework: str
    failure: FailureClass | None
    role: Role
    origin: Origin
    what: str
    action: str = ""
    source: str = ""
    versions: str = ""
    follow: str = ""


@cache
def signatures() -> tuple[Signature, ...]:
    """Return all signatures that opsk carries, by file and in the order of the files."""
    folder = files("opsk.postmortem.signatures")
    texts = {entry.name: entry.read_text("utf-8") for entry in folder.iterdir() if entry.name.endswith(".toml")}
    return parse_signatures(texts)


def parse_signatures(texts: Mapping[str, str]) -> tuple[Signature, ...]:
    """Return the signatures of TOML texts by file name.

    Raises
    ------
    InputError
        Names everything that is wrong, with file and signature.
    """
    wrong: list[str] = []
    signatures_by_id: dict[str, Signature] = {}
    for name in sorted(texts):
        try:
            tables = tomllib.loads(texts[name])
        except tomllib.TOMLDecodeError as error:
            wrong.append(f"{name}: {error}")
            continue
        for number, table in enumerate(tables.get("signature", ()), 1):
            label = f"{name}: {table.get('id', f'signature {number}')}"
            problems = _find_problems(table)
            if table.get("id") in signatures_by_id:
                problems.append("there is another of this id")
            wrong += [f"{label}: {problem}" for problem in problems]
            if not problems:
                signatures_by_id[table["id"]] = _build_signature(table)
    if wrong:
        raise InputError("signatures: " + "; ".join(wrong), hint="docs, add a signature")
    return tuple(signatures_by_id.values())


def _find_problems(table: Mapping[str, Any]) -> list[str]:
    """Return the problems of one table."""
    problems = [f"{key} is missing" for key in _REQUIRED_KEYS if not table.get(key)]
    problems += [f"unknown key {key}" for key in sorted(set(table) - _KEYS)]
    if table.get("id") and not _ID.fullmatch(str(table["id"])):
        problems.append("id is not subject.name")
    for key, kind in (("failure", FailureClass), ("role", Role), ("origin", Origin)):
        if key in table and table[key] not in set(kind):
            problems.append(f"{key} is none of {', '.join(kind)}")
    if table.get("role") in (Role.ROOT, Role.CASCADE, Role.CONFIRMATION) and "failure" not in table:
        problems.append("failure is missing")
    problems += [f"fragment {text!r} is too short" for text in table.get("any", ()) if len(str(text)) < _MIN_CHARS]
    if table.get("follow", FOLLOWS[0]) not in FOLLOWS:
        problems.append(f"follow is none of {', '.join(FOLLOWS)}")
    try:
        re.compile(str(table.get("pattern", "")))
    except re.error as error:
        problems.append(f"pattern: {error}")
    return problems


def _build_signature(table: Mapping[str, Any]) -> Signature:
    """Return the signature of a valid table."""
    return Signature(
        id=table["id"],
        fragments=tuple(table["any"]),
        pattern=re.compile(table["pattern"]) if "pattern" in table else None,
        unless=tuple(table.get("unless", ())),
        framework=table["framework"],
        failure=FailureClass(table["failure"]) if "failure" in table else None,
        role=Role(table["role"]),
        origin=Origin(table.get("origin", Origin.JOB_LOG)),
        what=table["what"],
        action=table.get("action", ""),
        source=table["source"],
        versions=table.get("versions", ""),
        follow=table.get("follow", ""),
    )
