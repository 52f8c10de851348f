"""Writes a fit as TOML that a person can judge and `opsk.costmodel.efficiency.default` can read back."""

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
"""Ending of a field's name to its unit; everything else is a ratio."""

_ENTRY = re.compile(r"(\w+(?:, \w+)*)\n((?:    .*\n?)+)")


def unit_of(field: str) -> str:
    """Return the unit of a parameter."""
    return next((unit for ending, unit in UNITS if field.endswith(ending)), "ratio")


def meanings(value_class: type[Any]) -> dict[str, str]:
    """Return what each field of a class of parameters means, from the list of parameters in its docstring."""
    _, _, listed = inspect.cleandoc(value_class.__doc__ or "").partition("Parameters\n----------\n")
    found: dict[str, str] = {}
    for names, text in _ENTRY.findall(listed):
        for name in names.split(", "):
            found[name] = " ".join(text.split())
    return found


def efficiency_toml(efficiency: Efficiency, origins: Mapping[str, str]) -> str:
    """Return an efficiency file: every value, with what it was fitted to.

    Parameters
    ----------
    efficiency
        What to write.
    origins
        Where each value comes from, by its name in the file; one that is not there was not fitted.
    """
    lines = ["# Efficiencies of the cost model, written by: opsk calibrate", "#"]
    lines += [f"# {name}: {text}" for name, text in _all_meanings(efficiency).items()]
    lines += [
        "",
        f"fit = {_quoted(efficiency.fit)}",
        "",
        "# of which chip generation, software, kind of model and number format times and peaks of memory were measured",
    ]
    for name, cases in (("fitted", efficiency.fitted), ("fitted_memory", efficiency.fitted_memory)):
        lines += [f"{name} = [", *(f"    {_quoted(case.name)}," for case in sorted(cases)), "]"]
    for table, value in _tables(efficiency):
        lines += ["", f"[{table}]"]
        for item in fields(value):
            origin = origins.get(f"{table}.{item.name}", "not fitted")
            number = _number(getattr(value, item.name))
            lines.append(f"{item.name} = {number}  # {unit_of(item.name)}; {origin}")
    if efficiency.widths:
        lines += ["", "# how well fitted values are known: standard deviations on the scale of their prior", "[widths]"]
        lines += [f"{_quoted(name)} = {_number(width)}" for name, width in sorted(efficiency.widths.items())]
    return "\n".join(lines) + "\n"


def origin_of(known: FittedParameter, *, is_drawn: bool = False) -> str:
    """Return where a value comes from, in few words; ``is_drawn`` says that it follows what its family shares."""
    if known.is_identified:
        return f"± {known.standard_error:.2g} from {known.runs} runs, prior {rounded(known.prior):g}"
    untold = f"{known.runs} runs do not tell it" if known.runs else "no runs tell it"
    return f"as the others share it; {untold}" if is_drawn else f"prior: {known.source}; {untold}"


def rounded(value: float) -> float:
    """Return a value as it is written."""
    return float(f"{value:.{DIGITS}g}")


def _tables(efficiency: Efficiency) -> Iterator[tuple[str, Any]]:
    """Yield the name and the values of every table of the file, in order; memory is not fitted and stays as it is."""
    for member in sorted(efficiency.gpu):
        yield f"gpu.{member or OTHER}", efficiency.gpu[member]
    for family in sorted(efficiency.software):
        yield f"software.{family.value}", efficiency.software[family]
    yield "links", efficiency.links
    for member in sorted(efficiency.offset):
        yield f"offset.{member or OTHER}", efficiency.offset[member]
    yield "spread", efficiency.spread


def _all_meanings(efficiency: Efficiency) -> dict[str, str]:
    """Return the meaning of every field that is written, each once."""
    found: dict[str, str] = {}
    for _, value in _tables(efficiency):
        found.update(meanings(type(value)))
    return found


def _number(value: float) -> str:
    """Return a float as TOML has it."""
    text = repr(rounded(value))
    return text if "." in text or "e" in text else f"{text}.0"


def _quoted(text: str) -> str:
    """Return a TOML basic string."""
    escaped = "".join(
        f"\\u{ord(sign):04X}" if sign in '"\\' or ord(sign) < 0x20 or ord(sign) == 0x7F else sign for sign in text
    )
    return f'"{escaped}"'
