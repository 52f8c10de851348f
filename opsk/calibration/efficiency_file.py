"""How is a fit written down, so that a person can judge every value and `opsk.costmodel.shipped` can read it back?"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from opsk.calibration.fit import FittedParameter
from opsk.costmodel.efficiency import Efficiency
from opsk.costmodel.shipped import OTHER

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
        "# chip generations on which a family of software was measured",
    ]
    pairs = ", ".join(_quoted("/".join(pair)) for pair in sorted(efficiency.fitted))
    lines += [f"fitted = [{pairs}]"]
    for table, value in _tables(efficiency):
        lines += ["", f"[{table}]"]
        for item in fields(value):
            origin = origins.get(f"{table}.{item.name}", "not fitted")
            number = _number(getattr(value, item.name))
            lines.append(f"{item.name} = {number}  # {unit_of(item.name)}; {origin}")
    return "\n".join(lines) + "\n"


def origin_of(known: FittedParameter) -> str:
    """Return where a fitted value comes from, in few words."""
    prior = f"prior {rounded(known.prior):g}"
    if not known.runs:
        return f"no runs of its own: drawn to what the others share; {prior}"
    if not known.is_identified:
        return f"{known.runs} runs do not tell it apart from the {prior}"
    return f"± {known.standard_error:.2g} from {known.runs} runs, {prior}"


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
