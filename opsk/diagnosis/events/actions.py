"""Loads from ``actions.toml`` how severe a sign of failure is, when it is reported, and what to do."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from opsk.diagnosis.events.observations import Severity
from opsk.errors import ConfigError
from opsk.hardware.xids import XidClass


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """The meaning of a sign: severity, how long it must last before it is reported [s], action, and source."""

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
        A sign must stay away this long before its event is over [s].
    flap_s
        A sign that comes back within this time is the same event; downs of a link are counted over this time [s].
    forget_s
        An event that is over is reported this long [s].
    xid_hold_s
        An XID counts this long where the driver does not report that the GPU has recovered [s].
    xid_settle_s
        An XID counts this long where the driver reports the GPU as healthy: it may not have checked yet [s].
    flapping_downs
        A link that went down this often is flapping.
    slow_ratio
        A link below this part of its best rate is slow.
    few_app_xids
        This many XIDs that are most likely the application's are reported.
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

    findings: Mapping[str, Action]
    xid_classes: Mapping[XidClass, Severity]
    hysteresis: Hysteresis


@cache
def actions() -> Actions:
    """Return the actions that opsk provides.

    Raises
    ------
    ConfigError
        The file is damaged.
    """
    text = files("opsk.diagnosis.events").joinpath("actions.toml").read_text(encoding="utf-8")
    try:
        return _parse(tomllib.loads(text))
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"events/actions.toml: {type(error).__name__}: {error}", hint="reinstall opsk") from error


def find_action(finding: str) -> Action:
    """Return the meaning of a sign; an unknown recovery action has an entry of its own.

    Examples
    --------
    >>> find_action("remap_pending").severity.value
    'watch'
    """
    known = actions().findings
    return known.get(finding) or known["recovery.unknown"]


def _parse(tables: Mapping[str, Any]) -> Actions:
    works = tables["bibliography"]
    actions_by_name: dict[str, Action] = {}
    for name, table in tables["signs"].items():
        if name == "recovery":
            actions_by_name |= {f"recovery.{word}": _parse_action(row, works) for word, row in table.items()}
        else:
            actions_by_name[name] = _parse_action(table, works)
    return Actions(
        findings=actions_by_name,
        xid_classes={XidClass(name): Severity(word) for name, word in tables["xid_classes"].items()},
        hysteresis=Hysteresis(**tables["hysteresis"]),
    )


def _parse_action(row: Mapping[str, Any], works: Mapping[str, str]) -> Action:
    return Action(
        severity=Severity(row["severity"]),
        after_s=float(row["after_s"]),
        action=row["action"],
        source=works[row["source"]],
    )
