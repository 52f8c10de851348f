"""Parses the output of ``perfquery`` for ports of HCAs and switches, under the counter names of sysfs.

Each block is one attribute of one port: PortCounters, PortCountersExtended, details of errors, counters by virtual
lane, or the tick of PortSamplesControl. The four counters of data words become bytes here; counters without a name in
sysfs keep the name and number that perfquery prints.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from opsk import units
from opsk.telemetry.network.infiniband import COUNTER_BITS

_HEAD = re.compile(r"# *(?P<attribute>[\w ]+?) *: *(?P<address>.+?) port (?P<port>\d{1,3})\b(?P<rest>.*)")
_LONGEST_HEAD = 400
_LID = re.compile(r"Lid (\d{1,8})", re.IGNORECASE)
_CAPABILITIES = re.compile(r"CapMask: *0x([0-9A-Fa-f]{1,8})")
_VALUE = re.compile(r"([A-Za-z]\w{0,63}) *: *\.* *(0x[0-9A-Fa-f]{1,16}|\d{1,20})")
_SELECTORS = {"PortSelect", "CounterSelect", "CounterSelect2", "OpCode"}
_WAIT_SUPPORTED = 1 << 12
"""Bit of the PMA's capability mask without which PortXmitWait means nothing (IBA 16.1.3.1)."""
_ALL_PORTS = 255

SYSFS_NAMES = {
    "PortXmitData": "port_xmit_data",
    "PortRcvData": "port_rcv_data",
    "PortXmitPkts": "port_xmit_packets",
    "PortRcvPkts": "port_rcv_packets",
    "PortUnicastXmitPkts": "unicast_xmit_packets",
    "PortUnicastRcvPkts": "unicast_rcv_packets",
    "PortMulticastXmitPkts": "multicast_xmit_packets",
    "PortMulticastRcvPkts": "multicast_rcv_packets",
    "SymbolErrorCounter": "symbol_error",
    "LinkErrorRecoveryCounter": "link_error_recovery",
    "LinkDownedCounter": "link_downed",
    "PortRcvErrors": "port_rcv_errors",
    "PortRcvRemotePhysicalErrors": "port_rcv_remote_physical_errors",
    "PortRcvSwitchRelayErrors": "port_rcv_switch_relay_errors",
    "PortXmitDiscards": "port_xmit_discards",
    "PortXmitConstraintErrors": "port_xmit_constraint_errors",
    "PortRcvConstraintErrors": "port_rcv_constraint_errors",
    "LocalLinkIntegrityErrors": "local_link_integrity_errors",
    "ExcessiveBufferOverrunErrors": "excessive_buffer_overrun_errors",
    "VL15Dropped": "VL15_dropped",
    "PortXmitWait": "port_xmit_wait",
    # As old releases print them.
    "XmtData": "port_xmit_data",
    "RcvData": "port_rcv_data",
    "XmtPkts": "port_xmit_packets",
    "RcvPkts": "port_rcv_packets",
    "XmtBytes": "port_xmit_data",
    "RcvBytes": "port_rcv_data",
    "SymbolErrors": "symbol_error",
    "LinkRecovers": "link_error_recovery",
    "LinkDowned": "link_downed",
    "RcvErrors": "port_rcv_errors",
    "RcvRemotePhysErrors": "port_rcv_remote_physical_errors",
    "RcvSwRelayErrors": "port_rcv_switch_relay_errors",
    "XmtDiscards": "port_xmit_discards",
    "XmtConstraintErrors": "port_xmit_constraint_errors",
    "RcvConstraintErrors": "port_rcv_constraint_errors",
    "LinkIntegrityErrors": "local_link_integrity_errors",
    "ExcBufOverrunErrors": "excessive_buffer_overrun_errors",
    "XmtWait": "port_xmit_wait",
}
"""Name in perfquery's text to file of ``counters`` in sysfs. ``XmtBytes`` were words too, whatever they were called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortReport:
    """One block: one attribute of one port.

    Parameters
    ----------
    attribute, address
        Its name (``Port extended counters``) and the queried address (``Lid 133``, a directed route).
    lid, port
        ``None`` where the address is a route, and where the block is the sum of all ports.
    counters
        By the name of the file in sysfs: data in bytes, all others in events, packets or ticks.
    others
        What sysfs does not have, by its own name: errors in detail, counters of lanes, the tick.
    saturated
        Counters (as in ``counters``) that stand at the largest value of their field.
    line
        Where the block begins.
    """

    attribute: str
    address: str
    lid: int | None
    port: int | None
    counters: Mapping[str, int] = field(default_factory=dict)
    others: Mapping[str, int] = field(default_factory=dict)
    saturated: tuple[str, ...] = ()
    line: int = 0

    @property
    def tick_bytes(self) -> int | None:
        """Bytes in one tick of ``port_xmit_wait``: of the port, or of each lane, as the device counts them."""
        tick = self.others.get("Tick")
        return None if tick is None else tick + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PerfqueryReading:
    """All blocks of a text, and the lines that are none of perfquery's (``ibwarn:`` and what is damaged)."""

    ports: tuple[PortReport, ...]
    unread: tuple[str, ...] = ()


def parse_perfquery(text: str) -> PerfqueryReading:
    """Read the text that perfquery prints, of one port or of many."""
    reports: list[PortReport] = []
    unread: list[str] = []
    head: re.Match[str] | None = None
    began, values = 0, dict[str, int]()
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line:
            continue
        if line.startswith("#") and len(line) <= _LONGEST_HEAD and (match := _HEAD.fullmatch(line)):
            if head is not None:
                reports.append(_build_report(head, values, began))
            head, began, values = match, number, {}
        elif head is not None and (pair := _VALUE.fullmatch(line)):
            values[pair[1]] = int(pair[2], 16 if pair[2].startswith("0x") else 10)
        else:
            unread.append(f"{number}: {line[:120]}")
    if head is not None:
        reports.append(_build_report(head, values, began))
    return PerfqueryReading(ports=tuple(reports), unread=tuple(unread))


def _build_report(head: re.Match[str], values: Mapping[str, int], line: int) -> PortReport:
    """Return one block."""
    attribute, port = head["attribute"], int(head["port"])
    lid, mask = _LID.fullmatch(head["address"]), _CAPABILITIES.search(head["rest"])
    extended = "extended" in attribute.lower()
    counters: dict[str, int] = {}
    saturated = []
    for name, value in values.items():
        file_name = SYSFS_NAMES.get(name)
        if file_name is None or (file_name == "port_xmit_wait" and mask and not int(mask[1], 16) & _WAIT_SUPPORTED):
            continue
        if value == 2 ** (64 if extended else COUNTER_BITS.get(file_name, 64)) - 1:
            saturated.append(file_name)
        counters[file_name] = value * units.IB_DATA_WORD_BYTES if file_name.endswith("_data") else value
    return PortReport(
        attribute=attribute,
        address=head["address"],
        lid=int(lid[1]) if lid else None,
        port=None if port == _ALL_PORTS else port,
        counters=counters,
        others={name: value for name, value in values.items() if name not in SYSFS_NAMES and name not in _SELECTORS},
        saturated=tuple(saturated),
        line=line,
    )
