"""Reads and writes the rails file of a site, which has the rail, leaf and switch port of each HCA port.

A node cannot see the fabric, and a dump of 10,000 nodes is too much for every node to read. ``opsk fabric DUMP
--rails-file FILE`` writes one line for each HCA port of the dump, once a cluster; a node picks its own lines by GUID,
without parsing the others, and again only when the file has changed. The whole is one JSON document:

    {"format": "opsk rails 1", "source": "...", "generated": "...", "ports": {
    "<node GUID>/<port>": {"node": ..., "rail": ..., "leaf": ..., "switch": ..., "switch_port": ..., "role": ...},
    ...
    }}
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from opsk.errors import InputError

FORMAT = "opsk rails 1"
_LONGEST_LINE_BYTES = 4096
_LARGEST_NUMBER = 2**31
_KEY = re.compile(rb'"([0-9a-f]{16})/([0-9]{1,3})": ?(\{.*\}),?\s*')


@dataclass(frozen=True, slots=True, kw_only=True)
class PortPlace:
    """Where one HCA port is cabled to.

    Parameters
    ----------
    guid, port
        Node GUID of the HCA (16 hexadecimal digits) and the number of its port.
    node
        Host name, as the dump has it; empty where it has none.
    rail
        Index of the rail, from 0; ``None`` where the port is on none.
    leaf, switch, switch_port
        Description and GUID of the switch, and the port of the switch.
    role
        What the port is for: ``compute``, ``storage`` or ``management``; empty where it is unknown.
    """

    guid: str
    port: int
    node: str = ""
    rail: int | None = None
    leaf: str = ""
    switch: str = ""
    switch_port: int | None = None
    role: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RailsReading:
    """Places of the requested GUIDs, by GUID and port; ``modified`` is the file's time [s since 1970]."""

    places: Mapping[tuple[str, int], PortPlace] = field(default_factory=dict)
    modified: float | None = None
    problem: str = ""


class RailsFile:
    """The rails file of a site; read at the first request, and again when it has changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._state: tuple[object, ...] | None = None
        self._reading = RailsReading()

    def read(self, guids: Iterable[str]) -> RailsReading:
        """Return the places of the ports with these GUIDs; a file that is not there or no rails file is a problem."""
        requested = frozenset(guids)
        try:
            status = self.path.stat()
            state = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, requested)
            if state != self._state:
                self._reading = _read(self.path, requested, status.st_mtime)
                self._state = state
        except OSError as error:
            self._state, self._reading = None, RailsReading(problem=f"{self.path}: {error.strerror}")
        return self._reading


def write_rails(path: Path, places: Iterable[PortPlace], *, source: str, generated: str) -> int:
    """Write a rails file whole, or not at all; return how many ports it has.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    lines = [
        f'"{place.guid}/{place.port}": {json.dumps(_build_entry(place))}'
        for place in sorted(places, key=lambda place: (place.guid, place.port))
    ]
    head = json.dumps({"format": FORMAT, "source": source, "generated": generated})
    text = head[:-1] + ', "ports": {\n' + ",\n".join(lines) + "\n}}\n"
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with draft.open("x", encoding="utf-8") as file:  # through no link that waits there
            file.write(text)
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise InputError(f"{path}: {error.strerror}", hint="the rails file goes into a folder that exists") from error
    return len(lines)


def _build_entry(place: PortPlace) -> dict[str, Any]:
    """Build the entry of a port, without its key."""
    return {name: value for name, value in asdict(place).items() if name not in ("guid", "port")}


def _read(path: Path, requested: frozenset[str], modified: float) -> RailsReading:
    """Read the lines of the requested GUIDs."""
    keys = {guid.encode("ascii", "replace") for guid in requested}
    places: dict[tuple[str, int], PortPlace] = {}
    with path.open("rb") as lines:
        if FORMAT.encode() not in lines.readline(_LONGEST_LINE_BYTES):
            return RailsReading(modified=modified, problem=f"{path}: this is no rails file of opsk")
        broken = 0
        while line := lines.readline(_LONGEST_LINE_BYTES):
            if line[1:17] in keys:
                place = _parse_place(line)
                if place is None:
                    broken += 1
                else:
                    places[place.guid, place.port] = place
    problem = f"{path}: {broken} damaged lines of this node's ports" if broken else ""
    return RailsReading(places=places, modified=modified, problem=problem)


def _parse_place(line: bytes) -> PortPlace | None:
    """Read one line; ``None`` when it is damaged. What is of another type than it should be is left out."""
    match = _KEY.fullmatch(line)
    try:
        facts = json.loads(match[3]) if match else None
    except (ValueError, RecursionError):
        facts = None
    if match is None or not isinstance(facts, dict):
        return None

    def text(name: str) -> str:
        return facts[name] if isinstance(facts.get(name), str) else ""

    def number(name: str) -> int | None:
        value = facts.get(name)
        return value if type(value) is int and 0 <= value <= _LARGEST_NUMBER else None

    return PortPlace(
        guid=match[1].decode("ascii"),
        port=int(match[2]),
        node=text("node"),
        rail=number("rail"),
        leaf=text("leaf"),
        switch=text("switch"),
        switch_port=number("switch_port"),
        role=text("role"),
    )
