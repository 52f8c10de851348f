"""Which failure rates and options is ``opsk goodput`` asked with? Flags and files, everything wrong told at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import click

from opsk.app.inputs.plan_fields import shown
from opsk.cli.plan_flags import TableOption
from opsk.diagnosis.goodput.parts import RADIX
from opsk.errors import InputError, OpskError
from opsk.hardware.failure_rates import (
    DEFAULT_RATES,
    MAX_BYTES,
    TIMES,
    FailureRates,
    failure_rates,
    in_hours,
    parse_rates,
)
from opsk.text import escape
from opsk.units import hours
from opsk.workload.defaults import Assumption

Command = TypeVar("Command", bound=Callable[..., Any])

WAIT, SHRINK = "wait", "shrink"
NEVER = ("never", "inf")
MAX_HOURS = 1e12
"""A hundred million years: a larger number is a slip of the pen."""
MAX_SPARES, MIN_RADIX, MAX_RADIX = 4096, 4, 4096
_HINT = "opsk goodput --help names every flag; docs/explanation/goodput.md says what they mean"
_WORDS = {
    "gpu_mtbf_s": "Hours of one GPU between its failures; never is a word.",
    "host_mtbf_s": "Hours of one node, for what is no GPU, NIC or link.",
    "nic_mtbf_s": "Hours of one port on the compute fabric.",
    "link_mtbf_s": "Hours of one cable from NIC to leaf.",
    "switch_mtbf_s": "Hours of one switch of the compute fabric.",
    "hb_domain_mtbf_s": "Hours of one HB domain that spans nodes, for what takes all of it.",
    "software_mtbf_s": "GPU hours between interruptions that a restart cures.",
    "node_repair_s": "Mean hours until a failed node can be used again.",
    "switch_repair_s": "Mean hours until a failed switch can be used again.",
    "hb_domain_repair_s": "Mean hours until a failed HB domain can be used again.",
}


class FailureOption(TableOption):
    """A flag on failures, shown under a title of its own."""

    @property
    def title(self) -> str:
        """Title of the section in which the help shows it."""
        return "Failures and spares"


def failure_flags(command: Command) -> Command:
    """Give a command the flags on failures and spares; all arrive as text, to be checked together."""
    flags = [
        ("--rates", "NAME|FILE", f"Published rates, or a TOML of your own. Default: {DEFAULT_RATES}."),
        *((f"--{in_hours(name).replace('_', '-')}", "HOURS", words) for name, words in _WORDS.items()),
        ("--spares", "N", "Most spare nodes (or HB domains, where these span nodes) to look at."),
        ("--hold", "N", "Spares that are held: goodput is told for these; left out, for the best number."),
        ("--spare-trays", "N", "Nodes of every HB domain kept as spares; left out, the best number."),
        (
            "--when-out",
            "WORD",
            f"What the job does with too few nodes: {WAIT}, or {SHRINK} by replicas. Default: {WAIT}.",
        ),
        ("--radix", "N", f"Ports of a switch, for clusters that do not count theirs. Default: {RADIX}."),
    ]
    for name, metavar, words in reversed(flags):
        command = click.option(name, cls=FailureOption, metavar=metavar, default=None, help=words)(command)
    return command


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the flags on failures mean, and what had to be taken for those that nobody gave."""

    rates: FailureRates
    most_spares: int | None
    held_spares: int | None
    spares_inside: int | None
    shrinks: bool
    radix: int
    assumed: tuple[Assumption, ...]


def asked_failures(flags: Mapping[str, str | None]) -> tuple[Asked, list[str]]:
    """Return what the flags on failures ask for, with defaults for what is wrong, and everything that is wrong."""
    wrong: list[str] = []
    base = _base_rates(flags.get("rates"), wrong)
    stated: dict[str, Any] = {
        name: _hours(name, text, wrong) for name in TIMES if (text := flags.get(in_hours(name))) is not None
    }
    when_out = flags.get("when_out") or WAIT
    if when_out not in (WAIT, SHRINK):
        wrong.append(f"--when-out: {shown(when_out)} is none of {WAIT}, {SHRINK}")
    radix = _whole("--radix", flags.get("radix"), RADIX, wrong, least=MIN_RADIX, most=MAX_RADIX)
    if radix is not None and radix % 2:
        wrong.append(f"--radix is {radix}, must be even")
    asked = Asked(
        rates=replace(base, **{name: value for name, value in stated.items() if value is not None}),
        most_spares=_whole("--spares", flags.get("spares"), None, wrong, least=0, most=MAX_SPARES),
        held_spares=_whole("--hold", flags.get("hold"), None, wrong, least=0, most=MAX_SPARES),
        spares_inside=_whole("--spare-trays", flags.get("spare_trays"), None, wrong, least=0, most=MAX_SPARES),
        shrinks=when_out == SHRINK,
        radix=radix or RADIX,
        assumed=_assumed(flags.get("rates"), base, set(stated)),
    )
    return asked, wrong


def refused(wrong: list[str]) -> InputError:
    """Return the one error that names all that is wrong."""
    return InputError(escape("; ".join(dict.fromkeys(wrong))), hint=_HINT)


def _base_rates(named: str | None, wrong: list[str]) -> FailureRates:
    """Return the rates that are named: a file when it ends in ``.toml`` or holds a slash, else published ones."""
    try:
        if named is None or not (named.endswith(".toml") or "/" in named):
            return failure_rates(named or DEFAULT_RATES)
        with Path(named).open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        return parse_rates(data.decode("utf-8-sig"), origin=escape(named))
    except OpskError as error:
        wrong.append(f"--rates: {error.message} ({error.hint})" if error.hint else f"--rates: {error.message}")
    except UnicodeDecodeError as error:
        wrong.append(f"--rates: {named}: no UTF-8 text at byte {error.start}")
    except (OSError, ValueError) as error:
        wrong.append(f"--rates: {named}: {getattr(error, 'strerror', None) or error}")
    return failure_rates()


def _hours(name: str, text: str, wrong: list[str]) -> float | None:
    """Return a time in seconds of a flag in hours; ``None`` after telling what is wrong with it."""
    flag = f"--{in_hours(name).replace('_', '-')}"
    lasts = name.endswith("_mtbf_s")
    if lasts and text.strip().lower() in NEVER:
        return math.inf
    try:
        value = float(text)
    except ValueError:
        wrong.append(f"{flag}: {shown(text)} is no number of hours" + (" and not never" if lasts else ""))
        return None
    if math.isnan(value) or value > MAX_HOURS or value < 0 or (lasts and value == 0):
        wrong.append(
            f"{flag} is {shown(text)}, must be {'above 0' if lasts else '0 or more'} and at most {MAX_HOURS:g}"
        )
        return None
    return hours(value)


def _whole(flag: str, text: str | None, default: int | None, wrong: list[str], *, least: int, most: int) -> int | None:
    """Return a whole number; the default where none is given, and after telling what is wrong."""
    if text is None:
        return default
    try:
        value = int(text) if len(text) <= 20 else None
    except ValueError:
        value = None
    if value is None or not least <= value <= most:
        wrong.append(f"{flag}: {shown(text)} is no whole number from {least} to {most}")
        return default
    return value


def _assumed(named: str | None, base: FailureRates, stated: set[str]) -> tuple[Assumption, ...]:
    """Return what was taken for rates that nobody gave."""
    assumed = []
    left = [name for name in TIMES if name not in stated]
    if named is None and left:
        why = "published for 16,384 H100 by cause; a site counts its own failures"
        assumed.append(Assumption(field="rates", value=base.name, why=why))
    if named is None and "node_repair_s" not in stated:
        why = "mean of 583 faults on 400 nodes (InfiniteHBD trace); half of them took less than 21 h"
        assumed.append(Assumption(field="rates.node_repair_s", value=base.node_repair_s, why=why))
    return tuple(assumed)
