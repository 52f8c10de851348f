"""Detects the format of a dump, reads it, and merges several dumps into one fabric."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from opsk.fabric.allocation import pause_garbage_collector
from opsk.fabric.dumps.guid_tables import is_guid_tree, read_guid_tree
from opsk.fabric.dumps.ibdiagnet_lst import LINE as _LINK_LIST
from opsk.fabric.dumps.ibdiagnet_lst import read_ibdiagnet_lst
from opsk.fabric.dumps.iblinkinfo import read_iblinkinfo
from opsk.fabric.dumps.ibnetdiscover import read_ibnetdiscover, read_ports_report
from opsk.fabric.dumps.ibsim_net import read_ibsim_net
from opsk.fabric.fabric import Cable, Fabric, Fault

_LOOK_AT = 200_000
"""Characters from the start that the format is detected from."""

_LINK_INFO = re.compile(r"==\([^\n]{0,100}\)==>")
_PORTS_REPORT = re.compile(r"^\s*(?:SW|CA|RT)\s+-?\d*\s+\d+\s+0x[0-9a-fA-F]+\s", re.MULTILINE)
_NET = re.compile(r'^\s*(?:Switch|Hca|Ca|Rt)\s+\d+\s+"(?![SHR]-)|^\s*Hca\s+\d+\s+"', re.MULTILINE)


class Reader(Protocol):
    """Reads one dialect."""

    def __call__(self, text: str, *, source: str) -> Fabric:
        """Return the fabric of a dump."""


def read_fabric(text: str, *, source: str) -> Fabric:
    """Return the fabric of a dump in any dialect.

    These are ``ibnetdiscover``, its ports report (``-p``), ``iblinkinfo``, ``ibdiagnet``'s list of links, ibsim's
    ``.net`` and the tree of ``sharp_cmd topology``.

    Raises
    ------
    InputError
        When no switch is found in it.
    """
    with pause_garbage_collector():
        return _select_reader(text[:_LOOK_AT])(text, source=source)


def _select_reader(start: str) -> Reader:
    if _LINK_INFO.search(start):
        return read_iblinkinfo
    if _PORTS_REPORT.search(start):
        return read_ports_report
    if _LINK_LIST.search(start):
        return read_ibdiagnet_lst
    if is_guid_tree(start):
        return read_guid_tree
    return read_ibsim_net if _NET.search(start) else read_ibnetdiscover


def merge_fabrics(fabrics: Sequence[Fabric]) -> Fabric:
    """Return several dumps as one fabric; entries of the same name in two of them are one."""
    if len(fabrics) == 1:
        return fabrics[0]
    cables: dict[tuple[str, int, str, int], Cable] = {}
    faults: list[Fault] = []
    whole = Fabric(switches={}, hcas={}, cables=())
    for fabric in fabrics:
        cables |= {(cable.a_guid, cable.a_port, cable.b_guid, cable.b_port): cable for cable in fabric.cables}
        faults += fabric.faults
        whole = replace(
            whole,
            switches={**whole.switches, **fabric.switches},
            hcas={**whole.hcas, **fabric.hcas},
            routers={**whole.routers, **fabric.routers},
            port_lids={**whole.port_lids, **fabric.port_lids},
        )
    return replace(
        whole,
        cables=tuple(cables[key] for key in sorted(cables)),
        faults=tuple(faults),
        source=", ".join(fabric.source for fabric in fabrics),
        generated=fabrics[0].generated,
    )
