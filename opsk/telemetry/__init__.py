"""Reads what nodes and jobs do: counters, control groups and logs; `report` logs the progress of a training loop.

``from opsk.telemetry import report`` costs a training loop nothing but the standard library.
"""

from opsk.telemetry.jobs.step_report import report

__all__ = ["report"]
