"""Parses the output of ``ibswinfo``: power supplies, fans and temperatures of an unmanaged InfiniBand switch.

Watts, degrees Celsius and seconds are kept; fan speeds, which are in revolutions per minute there, are per second here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from opsk import units

_ROW = re.compile(r"(?P<key>[^|]{1,60}?)\s*\|\s*(?P<value>.*?)\s*")
_NUMBER = re.compile(r"-?\d{1,9}(?:\.\d{1,6})?")
_UPTIME = re.compile(r"(\d{1,6})d-(\d{1,2}):(\d{1,2}):(\d{1,2})")
_PSU = re.compile(r"PSU(\d{1,2}) status")
_FAN = re.compile(r"fan#(\d{1,3}) \(rpm\)")
_RULE = re.compile(r"[=-]{5,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerSupply:
    """One power supply; ``None`` is "not reported"."""

    index: int
    status: str | None = None
    dc_power: str | None = None
    fan_status: str | None = None
    power_w: float | None = None
    part_number: str | None = None
    serial_number: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchReport:
    """One switch; ``None``, or a missing index, is "not reported".

    Parameters
    ----------
    description, facts
        The title, and every row that has no field of its own (``PSID``, ``firmware version``), as printed.
    guid
        16 hexadecimal digits, as topology dumps have it.
    uptime_s, temperature_celsius, max_temperature_celsius
        Time since the start, temperature now, and the highest there was.
    fan_status, fan_turns_per_s
        Status of the fans, and the speed of each by its number [1/s].
    unread
        Lines that are no row.
    """

    description: str = ""
    guid: str | None = None
    ports: int | None = None
    uptime_s: float | None = None
    temperature_celsius: float | None = None
    max_temperature_celsius: float | None = None
    fan_status: str | None = None
    fan_turns_per_s: Mapping[int, float] = field(default_factory=dict)
    power_supplies: tuple[PowerSupply, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    unread: tuple[str, ...] = ()


_OF_SUPPLY = {"P/N", "S/N", "DC power", "fan status", "power (W)"}


def parse_ibswinfo(text: str) -> SwitchReport:
    """Read what ibswinfo prints of one switch."""
    description, unread = "", list[str]()
    facts: dict[str, str] = {}
    supplies: dict[int, dict[str, str]] = {}
    fans: dict[int, float] = {}
    supply: dict[str, str] | None = None
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        row = _ROW.fullmatch(line)
        if row is None:
            # A rule ends the rows of a power supply: "fan status" below it is that of the switch.
            supply = None if _RULE.fullmatch(line) else supply
            if line and not _RULE.fullmatch(line):
                if description:
                    unread.append(f"{number}: {line[:120]}")
                description = description or line
            continue
        key, value = row["key"], row["value"]
        if match := _PSU.fullmatch(key):
            supply = supplies.setdefault(int(match[1]), {})
            supply["status"] = value
        elif supply is not None and key in _OF_SUPPLY:
            supply[key] = value
        elif match := _FAN.fullmatch(key):
            speed = _parse_number(value)
            if speed is not None:
                fans[int(match[1])] = units.per_minute(speed)
        elif value:
            facts[key] = value
    return _build_report(description, facts, supplies, fans, unread)


def _build_report(
    description: str,
    facts: dict[str, str],
    supplies: Mapping[int, Mapping[str, str]],
    fans: Mapping[int, float],
    unread: list[str],
) -> SwitchReport:
    """Return a switch; rows that get a field of their own leave ``facts``."""
    ports = _parse_number(facts.pop("ports", None))
    guid = re.fullmatch(r"0x([0-9A-Fa-f]{1,16})", facts.pop("GUID", ""))
    return SwitchReport(
        description=description,
        guid=guid[1].lower().zfill(16) if guid else None,
        ports=None if ports is None else int(ports),
        uptime_s=_parse_uptime_s(facts.pop("uptime (d-h:m:s)", None)),
        temperature_celsius=_parse_number(facts.pop("temperature (C)", None)),
        max_temperature_celsius=_parse_number(facts.pop("max temp (C)", None)),
        fan_status=facts.pop("fan status", None),
        fan_turns_per_s=fans,
        power_supplies=tuple(
            PowerSupply(
                index=index,
                status=rows.get("status") or None,
                dc_power=rows.get("DC power") or None,
                fan_status=rows.get("fan status") or None,
                power_w=_parse_number(rows.get("power (W)")),
                part_number=rows.get("P/N") or None,
                serial_number=rows.get("S/N") or None,
            )
            for index, rows in sorted(supplies.items())
        ),
        facts=facts,
        unread=tuple(unread),
    )


def _parse_number(text: str | None) -> float | None:
    """Read a number; ``None`` where there is none."""
    return float(text) if text is not None and _NUMBER.fullmatch(text) else None


def _parse_uptime_s(text: str | None) -> float | None:
    """Read ``160d-10:38:53`` [s]: 160 days, 10 hours, 38 minutes and 53 seconds are 13,862,333 s."""
    match = _UPTIME.fullmatch(text or "")
    if match is None:
        return None
    days, hours, minutes, seconds = map(int, match.groups())
    return units.hours(24 * days + hours) + 60.0 * minutes + seconds
