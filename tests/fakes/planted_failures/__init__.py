"""Training jobs that fail for a known reason: healthy logs, one planted cause, its cascade, noise; nothing is told.

# ruff: noqa: E501 -- lines are quoted as programs print them

Imports nothing of ``opsk.postmortem``. Texts follow ``facts/ops.md`` 3.10 and 3.11, the forms of open real logs, and
what the programs named beside them print. One third of the wordings of every class is held out: ``plant`` draws them
only when asked.
"""

from __future__ import annotations

from tests.fakes.planted_failures.planting import CLASSES, Planted, plant, plant_healthy
from tests.fakes.planted_failures.world import Truth

__all__ = ["CLASSES", "Planted", "Truth", "plant", "plant_healthy"]
