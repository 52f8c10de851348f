"""Defines a suggested setting: its name, its value, its reason and its source."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One suggested setting: ``name`` and ``value``, ``why``, and the ``source`` that documents it."""

    name: str
    value: str
    why: str
    source: str
