"""What do nodes and jobs do now? Readers of counters, control groups, logs; and `report`, for loops of one's own.

``from opsk.telemetry import report`` costs a training loop nothing but the standard library.
"""

from opsk.telemetry.jobs.own_loop import report

__all__ = ["report"]
