"""Parses the forwarding tables that ``dump_fts``, ``ibroute``, opensm and ``ibdiagnet`` print.

There are three formats, each with a header for each switch and a line for each LID::

    Unicast lids [0x0-0x5] of switch Lid 1 guid 0x0000000000200000 (Switch1):
    0x0002 001 : (Channel Adapter portguid 0x0000000000100001: 'Hca1')    dump_fts, ibroute (without the rest: -n)
    0x0002 001 # 0x0000000000100001 ...                                     opensm-lfts.dump
    dump_ucast_routes: Switch 0x0000000000200000
    0x0002 : 001  : 00   : yes                                              opensm.fdbs, ibdiagnet2.fdbs
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from opsk.errors import InputError
from opsk.fabric.dumps.assembly import MAX_DAMAGED_LINES, MAX_UNICAST_LID
from opsk.fabric.fabric import Fault
from opsk.fabric.forwarding import NO_PATH, ForwardingTables, LidOwner

_HEADER = re.compile(
    r"^[^\n]{0,80}?(?:Unicast lids \[[^\]\n]{1,40}\] of switch [^\n]{0,200}? guid 0x(?P<guid>[0-9a-fA-F]{1,16})\b"
    r"|ucast_routes: Switch 0x(?P<fdb>[0-9a-fA-F]{1,16})\b"
    r"|Multicast mlids \[|(?P<plane>PLFT_NUM: *\d+))[^\n]*$",
    re.MULTILINE,
)
_ROW = re.compile(r"^[ \t]*0x([0-9a-fA-F]{1,4})[ \t]+(?::[ \t]*)?(\d{1,3})\b", re.MULTILINE)
_LINE = re.compile(r"^[ \t]*0x[^\n]*", re.MULTILINE)
_NOWHERE = re.compile(r"^[ \t]*0x[0-9a-fA-F]{1,4}[ \t]*:[ \t]*(?:UNREACHABLE|No ?path)", re.MULTILINE | re.IGNORECASE)
_OWNER = re.compile(
    r"^[ \t]*0x([0-9a-fA-F]{1,4})[ \t]+\d{1,3}[ \t]*:?[ \t]*"
    r"\((Channel Adapter|Switch|Router) portguid 0x([0-9a-fA-F]{1,16}): '([^\n]*)'\)",
    re.MULTILINE,
)
_FOOTER = re.compile(r"^(\d+) (?:valid )?lids dumped", re.MULTILINE)
_KINDS = {"Channel Adapter": "adapter", "Switch": "switch", "Router": "router"}
_LOOK_AT = 20_000


def is_forwarding_dump(text: str) -> bool:
    """Return whether a text is a dump of forwarding tables."""
    return any(match["guid"] or match["fdb"] for match in _HEADER.finditer(text[:_LOOK_AT]))


def read_forwarding_tables(text: str, *, source: str) -> ForwardingTables:
    """Return the tables of all switches in a dump, with a fault for what could not be read.

    Multicast tables are left out, and of the private tables that adaptive routing adds (``PLFT_NUM``) all but the
    first. A switch that is dumped twice counts as it is the last time.

    Raises
    ------
    InputError
        When no switch's unicast table is in it.
    """
    text = text.replace("\r\n", "\n")
    tables: dict[str, npt.NDArray[np.uint8]] = {}
    owners: dict[int, LidOwner] = {}
    has_owner = np.zeros(MAX_UNICAST_LID + 1, dtype=bool)
    faults: list[Fault] = []
    for guid, where, block in _split_tables(text, source):
        rows = _ROW.findall(block)
        lids = np.fromiter((int(lid, 16) for lid, _ in rows), dtype=np.int64, count=len(rows))
        ports = np.fromiter((int(port) for _, port in rows), dtype=np.int64, count=len(rows))
        sound = (lids <= MAX_UNICAST_LID) & (lids > 0) & (ports <= NO_PATH)
        table = np.full(MAX_UNICAST_LID + 1, NO_PATH, dtype=np.uint8)
        table[lids[sound]] = ports[sound]
        if guid in tables:
            faults.append(
                Fault(kind="table_twice", where=where, evidence="this switch was dumped before: the last counts")
            )
        tables[guid] = table[: int(lids[sound].max(initial=0)) + 1]
        faults += _check_table(block, where, len(rows))
        if not has_owner[lids[sound]].all():
            has_owner[lids[sound]] = True
            for lid, kind, port_guid, description in _OWNER.findall(block):
                owners.setdefault(int(lid, 16), LidOwner(_KINDS[kind], f"{port_guid.lower():0>16}", description))
    if not tables:
        raise InputError(f"{source}: no forwarding table of any switch in it", hint="give the output of `dump_fts`")
    if len(faults) > MAX_DAMAGED_LINES:
        more = Fault(kind="damaged_table", where=source, evidence=f"{len(faults) - MAX_DAMAGED_LINES} more findings")
        faults = [*faults[:MAX_DAMAGED_LINES], more]
    return ForwardingTables(
        rows={guid: row for row, guid in enumerate(tables)},
        out_ports=_stack_tables(list(tables.values())),
        owners=owners,
        faults=tuple(faults),
        source=source,
    )


def merge_tables(parts: list[ForwardingTables]) -> ForwardingTables:
    """Return several dumps as one; a switch that is in two of them counts as it is in the last."""
    if len(parts) == 1:
        return parts[0]
    tables = {guid: part.out_ports[row] for part in parts for guid, row in part.rows.items()}
    return ForwardingTables(
        rows={guid: row for row, guid in enumerate(tables)},
        out_ports=_stack_tables(list(tables.values())),
        owners={lid: owner for part in parts for lid, owner in part.owners.items()},
        faults=tuple(fault for part in parts for fault in part.faults),
        source=", ".join(part.source for part in parts),
    )


def _split_tables(text: str, source: str) -> Iterator[tuple[str, str, str]]:
    """Yield guid, place and lines of each switch's unicast table."""
    headers = list(_HEADER.finditer(text))
    ends = [match.start() for match in headers[1:]] + [len(text)] * bool(headers)
    switch, line, counted = "", 1, 0
    for match, end in zip(headers, ends, strict=True):
        line += text.count("\n", counted, match.start())
        counted = match.start()
        guid = match["guid"] or match["fdb"]
        if match["plane"]:
            guid = switch if match["plane"].endswith(" 0") else ""
        if guid:
            switch = f"{guid.lower():0>16}"
            planes_follow = text.startswith("PLFT_NUM", end) and not _ROW.search(text, match.end(), end)
            if not planes_follow:
                yield switch, f"{switch} ({source}:{line})", text[match.end() : end]


def _check_table(block: str, where: str, rows: int) -> Iterator[Fault]:
    """Yield faults of an incomplete table: lines that cannot be read, fewer lines than its end states."""
    lost = len(_LINE.findall(block)) - rows - len(_NOWHERE.findall(block))
    if lost:
        cost = "these destinations count as unreachable from there"
        yield Fault(kind="damaged_table", where=where, evidence=f"{lost} lines cannot be read", cost=cost)
    footer = _FOOTER.search(block)
    if footer and int(footer[1]) != rows + lost:
        evidence = f"its end counts {footer[1]} LIDs, {rows + lost} lines are there"
        yield Fault(kind="damaged_table", where=where, evidence=evidence)


def _stack_tables(tables: list[npt.NDArray[np.uint8]]) -> npt.NDArray[np.uint8]:
    """Return tables of different lengths as rows of one array."""
    stacked = np.full((len(tables), max(len(table) for table in tables)), NO_PATH, dtype=np.uint8)
    for row, table in enumerate(tables):
        stacked[row, : len(table)] = table
    return stacked
