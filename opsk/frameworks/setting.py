"""What is a setting that opsk suggests: its name, its value, why, and who says what it does."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One suggested setting: ``name`` and ``value``, ``why``, and the ``source`` that says what it does."""

    name: str
    value: str
    why: str
    source: str
