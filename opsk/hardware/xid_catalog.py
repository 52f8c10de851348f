"""What does ``catalog/xids.toml`` state? Read once, with the standard library alone."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from opsk.errors import ConfigError
from opsk.hardware.xid_values import RecoveryAction, Suspect, Sxid, Xid, XidClass


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

    def holds_for(self, reason: int, status: int) -> bool:
        """Whether the row is about this reason (a link went down) or status word."""
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
        return _read(tomllib.loads(text))
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"catalog/xids.toml: {type(error).__name__}: {error}", hint="reinstall opsk") from error


def _read(tables: dict[str, Any]) -> Catalog:
    """Return the catalogue that the file's tables state."""
    works: dict[str, str] = tables["bibliography"]
    classes = {XidClass(name): text for name, text in tables["classes"].items()}
    entries = {int(code): _xid(int(code), table, classes, works) for code, table in tables["xids"].items()}
    unused = {int(code): _unused(int(code), name, classes, works) for code, name in tables["unused"].items()}
    recovery = {
        int(value): RecoveryAction(value=int(value), name=table["name"], class_=XidClass(table["class"]))
        for value, table in tables["recovery"].items()
    }
    return Catalog(
        xids={**unused, **entries},
        classes=classes,
        buckets=tables["buckets"],
        nvlink5=tuple(_nvlink5_row(row) for row in tables["nvlink5"]),
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


def _xid(code: int, table: Mapping[str, str], classes: Mapping[XidClass, str], works: Mapping[str, str]) -> Xid:
    """Return one entry; its class says what to do where it does not say so itself."""
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


def _unused(code: int, name: str, classes: Mapping[XidClass, str], works: Mapping[str, str]) -> Xid:
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


def _nvlink5_row(row: Mapping[str, Any]) -> Nvlink5Row:
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
