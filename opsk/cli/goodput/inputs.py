"""Reads the failure rates and options of ``opsk goodput`` from flags and files, and reports all errors at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import click

from opsk.app.inputs.plan_fields import format_value
from opsk.cli.plan_flags import TableOption
from opsk.diagnosis.goodput.parts import RADIX
from opsk.errors import InputError, OpskError
from opsk.hardware.failure_rates import (
    DEFAULT_RATES,
    MAX_BYTES,
    TIMES,
    FailureRates,
    failure_rates,
    parse_rates,
    to_hours_field,
)
from opsk.text import escape
from opsk.units import hours
from opsk.workload.defaults import Assumption

Command = TypeVar("Command", bound=Callable[..., Any])

WAIT, SHRINK = "wait", "shrink"
NEVER = ("never", "inf")
MAX_HOURS = 1e12
"""A hundred million years: a larger number is a typing error."""
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
    """A flag on failures, shown in a separate section of the help."""

    @property
    def title(self) -> str:
        """Title of the section in which the help shows it."""
        return "Failures and spares"


def failure_flags(command: Command) -> Command:
    """Give a command the flags on failures and spares; all arrive as text, to be checked together."""
    flags = [
        ("--rates", "NAME|FILE", f"Published rates, or a TOML of your own. Default: {DEFAULT_RATES}."),
        *((f"--{to_hours_field(name).replace('_', '-')}", "HOURS", words) for name, words in _WORDS.items()),
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
class FailureOptions:
    """The parsed flags on failures, and the assumptions for those that are not given."""

    rates: FailureRates
    max_spares: int | None
    held_spares: int | None
    spares_inside: int | None
    shrinks: bool
    radix: int
    assumed: tuple[Assumption, ...]


def parse_failure_flags(flags: Mapping[str, str | None]) -> tuple[FailureOptions, list[str]]:
    """Return the parsed flags on failures, with defaults for wrong ones, and all violations."""
    wrong: list[str] = []
    base = _load_base_rates(flags.get("rates"), wrong)
    stated: dict[str, Any] = {
        name: _parse_hours(name, text, wrong) for name in TIMES if (text := flags.get(to_hours_field(name))) is not None
    }
    when_out = flags.get("when_out") or WAIT
    if when_out not in (WAIT, SHRINK):
        wrong.append(f"--when-out: {format_value(when_out)} is none of {WAIT}, {SHRINK}")
    radix = _parse_whole("--radix", flags.get("radix"), RADIX, wrong, minimum=MIN_RADIX, maximum=MAX_RADIX)
    if radix is not None and radix % 2:
        wrong.append(f"--radix is {radix}, must be even")
    options = FailureOptions(
        rates=replace(base, **{name: value for name, value in stated.items() if value is not None}),
        max_spares=_parse_whole("--spares", flags.get("spares"), None, wrong, minimum=0, maximum=MAX_SPARES),
        held_spares=_parse_whole("--hold", flags.get("hold"), None, wrong, minimum=0, maximum=MAX_SPARES),
        spares_inside=_parse_whole(
            "--spare-trays", flags.get("spare_trays"), None, wrong, minimum=0, maximum=MAX_SPARES
        ),
        shrinks=when_out == SHRINK,
        radix=radix or RADIX,
        assumed=_list_assumptions(flags.get("rates"), base, set(stated)),
    )
    return options, wrong


def build_input_error(wrong: list[str]) -> InputError:
    """Return one error that names all violations."""
    return InputError(escape("; ".join(dict.fromkeys(wrong))), hint=_HINT)


def _load_base_rates(named: str | None, wrong: list[str]) -> FailureRates:
    """Return the named rates: a file when the name ends in ``.toml`` or has a slash, else published ones."""
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


def _parse_hours(name: str, text: str, wrong: list[str]) -> float | None:
    """Return a time in seconds of a flag in hours; ``None`` after reporting a violation."""
    flag = f"--{to_hours_field(name).replace('_', '-')}"
    is_mtbf = name.endswith("_mtbf_s")
    if is_mtbf and text.strip().lower() in NEVER:
        return math.inf
    try:
        value = float(text)
    except ValueError:
        wrong.append(f"{flag}: {format_value(text)} is no number of hours" + (" and not never" if is_mtbf else ""))
        return None
    if math.isnan(value) or value > MAX_HOURS or value < 0 or (is_mtbf and value == 0):
        wrong.append(
            f"{flag} is {format_value(text)}, must be {'above 0' if is_mtbf else '0 or more'} and at most {MAX_HOURS:g}"
        )
        return None
    return hours(value)


def _parse_whole(
    flag: str, text: str | None, default: int | None, wrong: list[str], *, minimum: int, maximum: int
) -> int | None:
    """Return an integer; the default where none is given, or after reporting a violation."""
    if text is None:
        return default
    try:
        value = int(text) if len(text) <= 20 else None
    except ValueError:
        value = None
    if value is None or not minimum <= value <= maximum:
        wrong.append(f"{flag}: {format_value(text)} is no whole number from {minimum} to {maximum}")
        return default
    return value


def _list_assumptions(named: str | None, base: FailureRates, stated: set[str]) -> tuple[Assumption, ...]:
    """Return the assumptions for rates that are not given."""
    assumed = []
    left = [name for name in TIMES if name not in stated]
    if named is None and left:
        why = "published for 16,384 H100 by cause; a site counts its own failures"
        assumed.append(Assumption(field="rates", value=base.name, why=why))
    if named is None and "node_repair_s" not in stated:
        why = "mean of 583 faults on 400 nodes (InfiniteHBD trace); half of them took less than 21 h"
        assumed.append(Assumption(field="rates.node_repair_s", value=base.node_repair_s, why=why))
    return tuple(assumed)
