"""Formats a fit as commented TOML that `opsk.costmodel.efficiency.default` parses."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from opsk.calibration.fitting.fit import FittedParameter
from opsk.costmodel.efficiency.default import OTHER
from opsk.costmodel.efficiency.efficiency import Efficiency

DIGITS = 4
"""Significant digits that are written; no parameter is known better than to a few percent."""
UNITS = (("_bytes", "bytes"), ("_s", "s"), ("_size", "elements"))
"""Suffix of a field's name to its unit; every other field is a ratio."""

_ENTRY = re.compile(r"(\w+(?:, \w+)*)\n((?:    .*\n?)+)")


def find_unit(field: str) -> str:
    """Return the unit of a parameter."""
    return next((unit for ending, unit in UNITS if field.endswith(ending)), "ratio")


def parse_field_meanings(value_class: type[Any]) -> dict[str, str]:
    """Return the meaning of each field of a class of parameters, from the list of parameters in its docstring."""
    _, _, listed = inspect.cleandoc(value_class.__doc__ or "").partition("Parameters\n----------\n")
    meanings: dict[str, str] = {}
    for names, text in _ENTRY.findall(listed):
        for name in names.split(", "):
            meanings[name] = " ".join(text.split())
    return meanings


def render_efficiency_toml(efficiency: Efficiency, origins: Mapping[str, str]) -> str:
    """Return an efficiency file: every value, with what it was fitted to.

    Parameters
    ----------
    efficiency
        What to write.
    origins
        Origin of each value, by its name in the file; a missing one was not fitted.
    """
    lines = ["# Efficiencies of the cost model, written by: opsk calibrate", "#"]
    lines += [f"# {name}: {text}" for name, text in _collect_meanings(efficiency).items()]
    lines += [
        "",
        f"fit = {_quote(efficiency.fit)}",
        "",
        "# of which chip generation, software, kind of model and number format times and peaks of memory were measured",
    ]
    for name, cases in (("fitted", efficiency.fitted), ("fitted_memory", efficiency.fitted_memory)):
        lines += [f"{name} = [", *(f"    {_quote(case.name)}," for case in sorted(cases)), "]"]
    for table, value in _iterate_tables(efficiency):
        lines += ["", f"[{table}]"]
        for item in fields(value):
            origin = origins.get(f"{table}.{item.name}", "not fitted")
            number = _format_number(getattr(value, item.name))
            lines.append(f"{item.name} = {number}  # {find_unit(item.name)}; {origin}")
    if efficiency.widths:
        lines += ["", "# how well fitted values are known: standard deviations on the scale of their prior", "[widths]"]
        lines += [f"{_quote(name)} = {_format_number(width)}" for name, width in sorted(efficiency.widths.items())]
    return "\n".join(lines) + "\n"


def format_origin(known: FittedParameter, *, is_drawn: bool = False) -> str:
    """Return the origin of a value as short text; ``is_drawn`` means that it follows the value shared by its family."""
    if known.is_identified:
        return f"± {known.standard_error:.2g} from {known.runs} runs, prior {round_value(known.prior):g}"
    undetermined = f"{known.runs} runs do not tell it" if known.runs else "no runs tell it"
    return f"as the others share it; {undetermined}" if is_drawn else f"prior: {known.source}; {undetermined}"


def round_value(value: float) -> float:
    """Round a value to the digits of the file."""
    return float(f"{value:.{DIGITS}g}")


def _iterate_tables(efficiency: Efficiency) -> Iterator[tuple[str, Any]]:
    """Yield the name and the values of every table of the file, in order; memory is not fitted and not written."""
    for member in sorted(efficiency.gpu):
        yield f"gpu.{member or OTHER}", efficiency.gpu[member]
    for family in sorted(efficiency.software):
        yield f"software.{family.value}", efficiency.software[family]
    yield "links", efficiency.links
    for member in sorted(efficiency.offset):
        yield f"offset.{member or OTHER}", efficiency.offset[member]
    yield "spread", efficiency.spread


def _collect_meanings(efficiency: Efficiency) -> dict[str, str]:
    """Return the meaning of every field that is written, each once."""
    meanings: dict[str, str] = {}
    for _, value in _iterate_tables(efficiency):
        meanings.update(parse_field_meanings(type(value)))
    return meanings


def _format_number(value: float) -> str:
    """Format a float as TOML."""
    text = repr(round_value(value))
    return text if "." in text or "e" in text else f"{text}.0"


def _quote(text: str) -> str:
    """Return a TOML basic string."""
    escaped = "".join(
        f"\\u{ord(character):04X}"
        if character in '"\\' or ord(character) < 0x20 or ord(character) == 0x7F
        else character
        for character in text
    )
    return f'"{escaped}"'
