"""Looks up the meaning and the remedy of an NVIDIA driver's Xid or an NVSwitch's SXid.

The entries are in ``catalog/xids.toml``, each with its source. A code that is not in the file is reported as unknown.
Only the standard library is used, so that the exporter need not load a validator.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

from opsk.errors import ConfigError


class XidClass(StrEnum):
    """The action that an Xid requires of the operators, mildest first."""

    INFO = "info"
    """Nothing to do."""
    CASCADE = "cascade"
    """Follows another fault; never a root cause."""
    APP = "app"
    """Most likely an application fault: restart the job, no drain unless repeated on one GPU."""
    WATCH = "watch"
    """Record; act if it comes again."""
    RESET_WHEN_IDLE = "reset_when_idle"
    """Jobs may go on; the GPU is reset once it is idle."""
    RESET = "reset"
    """Drain the GPU's jobs, reset it, return it if diagnostics pass."""
    DRAIN = "drain"
    """Drain the node now; reset and diagnostics before it returns."""
    REBOOT = "reboot"
    """Drain and restart (power-cycle) the node."""
    SERVICE = "service"
    """Hardware must be serviced."""
    NVLINK = "nvlink"
    """Depends on unit and status word; see `nvlink5`."""
    SUMMARY = "summary"
    """The driver's own summary: see `parse_recovery_action`."""
    UNUSED = "unused"
    """NVIDIA calls the code unused from Ampere on."""
    UNKNOWN = "unknown"
    """Not in the catalogue."""


class Suspect(StrEnum):
    """The most likely faulty component."""

    APPLICATION = "application"
    DRIVER = "driver"
    FIRMWARE = "firmware"
    GPU = "gpu"
    GPU_MEMORY = "gpu_memory"
    NVLINK = "nvlink"
    C2C = "c2c"
    PCIE = "pcie"
    POWER = "power"
    NONE = "none"
    """The code does not identify a cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Xid:
    """One code of the catalogue, or a placeholder for a code that is not in it.

    Parameters
    ----------
    code, name
        Number, and NVIDIA's mnemonic (empty when it is not known).
    meaning
        One line.
    class_, suspect
        The classification of opsk.
    immediate, follow_up
        NVIDIA's resolution buckets (``RESET_GPU``); empty where NVIDIA states none. `guidance` describes one.
    action
        Description of what to do.
    source
        Where it was read.
    """

    code: int
    name: str
    meaning: str
    class_: XidClass
    suspect: Suspect
    immediate: str
    follow_up: str
    action: str
    source: str

    @property
    def known(self) -> bool:
        """Whether the catalogue has the code."""
        return self.class_ is not XidClass.UNKNOWN

    @property
    def may_be_root(self) -> bool:
        """Whether the code can be a root cause, not a consequence or a notice."""
        return self.class_ not in {XidClass.CASCADE, XidClass.INFO, XidClass.SUMMARY, XidClass.UNUSED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Nvlink5:
    """The row of NVIDIA's table for one Xid from 144 to 150, by its unit and words.

    Parameters
    ----------
    severity
        ``fatal`` (the GPU), ``link_fatal`` (all links of the GPU are drained) or ``non_fatal``.
    origin
        ``hw``, ``sw``, ``hw_sw`` (either), ``fw`` or ``na``.
    immediate, follow_up
        NVIDIA's resolution buckets.
    peer
        Whether to inspect the device at the other end of the link, not this GPU.
    class_
        The class that follows from severity and immediate action.
    """

    severity: str
    origin: str
    immediate: str
    follow_up: str
    peer: bool
    class_: XidClass


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryAction:
    """The recovery action that the driver requests: value and name as in NVML (``node_reboot``), and its class."""

    value: int | None
    name: str
    class_: XidClass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sxid:
    """One error code of an NVSwitch; ``severity`` is ``non_fatal``, ``fatal`` (a port), ``always_fatal`` or unknown."""

    code: int
    name: str
    severity: str
    source: str

    @property
    def known(self) -> bool:
        """Whether the catalogue has the code."""
        return bool(self.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nvlink5Row:
    """One row of the table of NVLink 5 errors."""

    xid: int
    units: tuple[str, ...]
    reasons: tuple[int, ...]
    status: tuple[int, ...]
    immediate: str
    follow_up: str
    severity: str
    origin: str
    when_fatal: str

    def matches(self, reason: int, status: int) -> bool:
        """Return whether the row applies to this reason (a link went down) or status word."""
        if self.reasons:
            return reason in self.reasons
        return not self.status or status in self.status


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """The catalogue file."""

    xids: Mapping[int, Xid]
    classes: Mapping[XidClass, str]
    buckets: Mapping[str, str]
    nvlink5: tuple[Nvlink5Row, ...]
    recovery: Mapping[int, RecoveryAction]
    recovery_texts: Mapping[str, RecoveryAction]
    sxids: Mapping[int, Sxid]


@cache
def catalog() -> Catalog:
    """Return the catalogue that ships with opsk."""
    text = files("opsk.hardware").joinpath("catalog", "xids.toml").read_text(encoding="utf-8")
    try:
        return _build_catalog(tomllib.loads(text))
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"catalog/xids.toml: {type(error).__name__}: {error}", hint="reinstall opsk") from error


def _build_catalog(tables: dict[str, Any]) -> Catalog:
    """Return the catalogue that the file's tables define."""
    works: dict[str, str] = tables["bibliography"]
    classes = {XidClass(name): text for name, text in tables["classes"].items()}
    entries = {int(code): _build_xid(int(code), table, classes, works) for code, table in tables["xids"].items()}
    unused = {int(code): _build_unused(int(code), name, classes, works) for code, name in tables["unused"].items()}
    recovery = {
        int(value): RecoveryAction(value=int(value), name=table["name"], class_=XidClass(table["class"]))
        for value, table in tables["recovery"].items()
    }
    return Catalog(
        xids={**unused, **entries},
        classes=classes,
        buckets=tables["buckets"],
        nvlink5=tuple(_build_nvlink5_row(row) for row in tables["nvlink5"]),
        recovery=recovery,
        recovery_texts={
            text.casefold(): recovery[int(value)]
            for value, table in tables["recovery"].items()
            for text in table["texts"]
        },
        sxids={
            int(code): Sxid(code=int(code), name=row["name"], severity=row["severity"], source=works[row["source"]])
            for code, row in tables["sxids"].items()
        },
    )


def _build_xid(code: int, table: Mapping[str, str], classes: Mapping[XidClass, str], works: Mapping[str, str]) -> Xid:
    """Return one entry; the default action is that of its class."""
    class_ = XidClass(table["class"])
    return Xid(
        code=code,
        name=table["name"],
        meaning=table["meaning"],
        class_=class_,
        suspect=Suspect(table["suspect"]),
        immediate=table.get("immediate", ""),
        follow_up=table.get("follow_up", ""),
        action=table.get("action", classes[class_]),
        source=works[table["source"]],
    )


def _build_unused(code: int, name: str, classes: Mapping[XidClass, str], works: Mapping[str, str]) -> Xid:
    """Return an entry of a code that newer GPUs do not use."""
    return Xid(
        code=code,
        name=name,
        meaning="unused from Ampere on",
        class_=XidClass.UNUSED,
        suspect=Suspect.NONE,
        immediate="CONTACT_SUPPORT",
        follow_up="",
        action=classes[XidClass.UNUSED],
        source=works["catalog"],
    )


def _build_nvlink5_row(row: Mapping[str, Any]) -> Nvlink5Row:
    """Return one row of the NVLink 5 table."""
    return Nvlink5Row(
        xid=row["xid"],
        units=tuple(row["units"]),
        reasons=tuple(row.get("reasons", ())),
        status=tuple(row.get("status", ())),
        immediate=row["immediate"],
        follow_up=row["follow_up"],
        severity=row["severity"],
        origin=row["origin"],
        when_fatal=row.get("when_fatal", ""),
    )


__all__ = [
    "Nvlink5",
    "RecoveryAction",
    "Suspect",
    "Sxid",
    "Xid",
    "XidClass",
    "guidance",
    "nvlink5",
    "nvlink5_xid",
    "parse_recovery_action",
    "recovery_action",
    "sxid",
    "xid",
    "xids",
]

_REASON_SHIFT = 20
_REASON_MASK = 0x3F
_RECOVERY = re.compile(r"\bto\s+(?:0x([0-9a-fA-F]{1,8})\s*)?\(?([A-Za-z0-9 ]{1,40}?)\)?\s*\.?\s*$")
_BUCKET_CLASSES = {
    "RESET_GPU": XidClass.RESET,
    "RESTART_APP": XidClass.APP,
    "XID_154_EVAL": XidClass.APP,
    "IGNORE": XidClass.INFO,
}


def _classify_bucket(bucket: str) -> XidClass:
    """Return the class of an immediate action of the NVLink 5 table."""
    return _BUCKET_CLASSES.get(bucket, XidClass.NVLINK)


def xid(code: int) -> Xid:
    """Return the entry of an Xid; an unknown code gives an entry of class ``unknown``, never an error.

    Examples
    --------
    >>> xid(79).class_.value, xid(79).immediate
    ('reboot', 'RESTART_BM')
    >>> xid(9999).class_.value
    'unknown'
    """
    entry = catalog().xids.get(code)
    if entry is not None:
        return entry
    return Xid(
        code=code,
        name="",
        meaning="not in the catalogue",
        class_=XidClass.UNKNOWN,
        suspect=Suspect.NONE,
        immediate="",
        follow_up="",
        action=catalog().classes[XidClass.UNKNOWN],
        source="",
    )


def xids() -> tuple[Xid, ...]:
    """Return all Xids of the catalogue by code, those that are unused from Ampere on included."""
    return tuple(entry for _, entry in sorted(catalog().xids.items()))


def guidance(bucket: str) -> str:
    """Return the description of NVIDIA's resolution bucket (``RESET_GPU``); empty for an unknown one."""
    return catalog().buckets.get(bucket, "")


def nvlink5(code: int, unit: str, words: tuple[int, ...], *, fatal: bool | None = None) -> Nvlink5 | None:
    """Return the row of NVIDIA's table for an NVLink 5 error; ``None`` without one.

    Parameters
    ----------
    code
        144 to 150.
    unit
        As the message names it, before (``NETIR_LINK_EVT``) or from R575 (``NETIR_LINK_DOWN``).
    words
        The message's words in brackets: interrupt information, status, and details.
    fatal
        Whether the message contains ``Fatal``; it raises the severity of errors that can be either.
    """
    reason = (words[0] >> _REASON_SHIFT) & _REASON_MASK if words else 0
    status = words[1] if len(words) > 1 else 0
    for row in catalog().nvlink5:
        if row.xid == code and unit.upper() in row.units and row.matches(reason, status):
            immediate = row.when_fatal if fatal and row.when_fatal else row.immediate
            severity = "fatal" if fatal and row.when_fatal else row.severity
            return Nvlink5(
                severity=severity,
                origin=row.origin,
                immediate=immediate,
                follow_up=row.follow_up,
                peer=row.follow_up == "INVESTIGATE_PEER_DEVICE",
                class_=_classify_bucket(immediate),
            )
    return None


def nvlink5_xid(code: int, unit: str, words: tuple[int, ...], *, fatal: bool | None = None) -> Xid:
    """Return the Xid with class and actions of its unit and words; the plain entry where the table has no row."""
    entry = xid(code)
    row = nvlink5(code, unit, words, fatal=fatal)
    if row is None:
        return entry
    texts = [guidance(row.immediate), guidance(row.follow_up)]
    return replace(
        entry,
        class_=row.class_,
        immediate=row.immediate,
        follow_up=row.follow_up,
        action="; ".join(dict.fromkeys(part for part in texts if part)),
    )


def recovery_action(value: int) -> RecoveryAction:
    """Return the recovery action of a value of NVML or of the message of Xid 154.

    Examples
    --------
    >>> recovery_action(2).name
    'node_reboot'
    """
    return catalog().recovery.get(value, RecoveryAction(value=value, name="unknown", class_=XidClass.UNKNOWN))


def parse_recovery_action(text: str) -> RecoveryAction | None:
    """Return the new recovery action that the message of an Xid 154 names; ``None`` when it names none.

    Examples
    --------
    >>> parse_recovery_action("GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)").name
    'drain_and_reset'
    """
    match = _RECOVERY.search(text[:500])
    if match is None:
        return None
    if match[1]:
        return recovery_action(int(match[1], 16))
    return catalog().recovery_texts.get(match[2].strip().casefold())


def sxid(code: int) -> Sxid:
    """Return the entry of an SXid; an unknown code gives severity ``unknown``, never an error."""
    return catalog().sxids.get(code, Sxid(code=code, name="not in the catalogue", severity="unknown", source=""))
