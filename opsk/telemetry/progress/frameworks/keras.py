"""Parses the progress bars of Keras: ``1250/1250 ━━━━━━━━ 12s 10ms/step - accuracy: 0.9 - loss: 0.3``."""

from __future__ import annotations

import re

from opsk.telemetry.progress.lines import NUMBER, drop_missing, parse_number, parse_positive
from opsk.telemetry.progress.records import ParsedLine, Reader, StepPart

_EPOCH = re.compile(r"^\s*Epoch (\d{1,9})/(\d{1,9})\s*$", re.ASCII)
_BAR = re.compile(
    r"^\s*(?P<step>\d{1,12})/(?P<total>\d{1,12}) (?:\[[=>.]+\]|[^\w\s]+)\s(?:- )?(?:\S{1,12} )?"
    r"(?:(?P<time>[\d.]{1,12})(?P<unit>us|ms|s)/step )?- ",
    re.ASCII,
)
_METRIC = re.compile(rf"(?<![\w_])(loss|learning_rate|lr): ({NUMBER})", re.ASCII)
_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


class KerasReader(Reader):
    """Bars of Keras 2 and 3, which count steps within an epoch; bars outside of epochs evaluate or predict."""

    name = "keras"
    rank = 25
    hints = ("Epoch ", " - loss: ", "- loss: ")

    def __init__(self) -> None:
        self._epoch: int | None = None
        self._epochs = 0
        self._total: int | None = None

    def read(self, text: str) -> ParsedLine | None:
        """Parse one line."""
        if (epoch := _EPOCH.match(text)) is not None:
            self._epoch, self._epochs = int(epoch[1]), int(epoch[2])
            return None
        bar = _BAR.match(text) if self._epoch is not None else None
        if bar is None or self._epoch is None:
            return None
        step, total = int(bar["step"]), int(bar["total"])
        self._total = self._total or total
        if total != self._total or step > total:
            return None
        time = parse_positive(bar["time"] or "")
        metrics = {match[1]: match[2] for match in _METRIC.finditer(text)}
        values = drop_missing(
            step_s=time * _UNITS_S[bar["unit"]] if time else None,
            loss=parse_number(metrics.get("loss", "")),
            lr=parse_number(metrics.get("learning_rate", metrics.get("lr", ""))),
        )
        return ParsedLine(
            part=StepPart.OPEN,
            iteration=(self._epoch - 1) * total + step,
            total_iterations=self._epochs * total,
            values=values,
        )
