"""How bad is a sign of failure, after which time is it told, and what is to be done? Data: ``actions.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from opsk.diagnosis.events.values import Severity
from opsk.errors import ConfigError
from opsk.hardware.xids import XidClass


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What a sign means: how bad, how long it must last before it is told [s], what to do, and who says so."""

    severity: Severity
    after_s: float
    action: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hysteresis:
    """Against flapping.

    Parameters
    ----------
    settle_s
        A sign must stay away so long before its event is over [s].
    flap_s
        One that comes back within this time is the same event; and in this time downs of a link are counted [s].
    forget_s
        An event that is over is told of so long [s].
    xid_hold_s
        An XID counts so long where the driver does not say that the GPU has recovered [s].
    xid_settle_s
        An XID counts so long where the driver calls the GPU well: it may not have looked yet [s].
    flapping_downs
        A link that went down so often flaps.
    slow_ratio
        A link below this part of its best rate is slow.
    few_app_xids
        So many XIDs that are likeliest the application's are worth knowing.
    """

    settle_s: float = 30.0
    flap_s: float = 600.0
    forget_s: float = 3600.0
    xid_hold_s: float = 3600.0
    xid_settle_s: float = 10.0
    flapping_downs: int = 3
    slow_ratio: float = 0.9
    few_app_xids: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Actions:
    """The whole file."""

    signs: Mapping[str, Action]
    xid_classes: Mapping[XidClass, Severity]
    hysteresis: Hysteresis


@cache
def actions() -> Actions:
    """Return what ships with opsk.

    Raises
    ------
    ConfigError
        The file is damaged.
    """
    text = files("opsk.diagnosis.events").joinpath("actions.toml").read_text(encoding="utf-8")
    try:
        return _read(tomllib.loads(text))
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"events/actions.toml: {type(error).__name__}: {error}", hint="reinstall opsk") from error


def action_of(sign: str) -> Action:
    """Return what a sign means; an unknown recovery action is one to look up.

    Examples
    --------
    >>> action_of("remap_pending").severity.value
    'watch'
    """
    known = actions().signs
    return known.get(sign) or known["recovery.unknown"]


def _read(tables: Mapping[str, Any]) -> Actions:
    works = tables["bibliography"]
    found: dict[str, Action] = {}
    for name, table in tables["signs"].items():
        if name == "recovery":
            found |= {f"recovery.{word}": _action(row, works) for word, row in table.items()}
        else:
            found[name] = _action(table, works)
    return Actions(
        signs=found,
        xid_classes={XidClass(name): Severity(word) for name, word in tables["xid_classes"].items()},
        hysteresis=Hysteresis(**tables["hysteresis"]),
    )


def _action(row: Mapping[str, Any], works: Mapping[str, str]) -> Action:
    return Action(
        severity=Severity(row["severity"]),
        after_s=float(row["after_s"]),
        action=row["action"],
        source=works[row["source"]],
    )
