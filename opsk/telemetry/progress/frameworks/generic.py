"""What does a line of an unknown training loop say? A step, a loss, and a time or a rate with its unit.

Believed only where no framework's own lines are in the log.
"""

from __future__ import annotations

import re

from opsk.telemetry.progress.records import Part, Reader, Seen
from opsk.telemetry.progress.values import NUMBER, known, number, positive, whole

_STEP = re.compile(
    r"\b(?:global_step|global step|train_step|num_updates|step|iteration|iter|it)\b[\"']?\s*[:=#\[]?\s*[\"']?"
    r"(\d[\d,]{0,15})(?:\s*/\s*(\d[\d,]{0,15}))?(?![\w.])",
    re.ASCII | re.IGNORECASE,
)
_LOSS = re.compile(
    rf"(?<![\w/])(?:train(?:ing)?[_/ ])?(?:lm[_ ])?loss[\"']?\s*[:=]?\s*[\"']?({NUMBER})", re.ASCII | re.IGNORECASE
)
_TIME = re.compile(
    r"\b(?:step[_ ]time|time[_ ]per[_ ]step|iter[_ ]time|step_avg|dt|time|s/step|sec/step|time/step)(?:[_ ]?\((\w+)\)"
    r"|_(ms|s))?[\"']?\s*[:=]?\s*[\"']?([\d.]+)\s*(ms|s\b|sec)?",
    re.ASCII | re.IGNORECASE,
)
_BARE_MS = re.compile(r"\|\s*([\d.]+)\s*ms\s*\|", re.ASCII)
_TOKENS = re.compile(
    r"(?:\b(?:tok(?:en)?s?[_/ ](?:per[_ ])?s(?:ec(?:ond)?)?|wps|throughput)"
    r"(?P<each>[_/ ](?:per[_ ])?(?:gpu|device))?[\"']?\s*[:=]\s*[\"']?"
    rf"(?P<after>{NUMBER})\s*(?P<scale>[KMB]?)|(?P<before>[\d,.]+)\s*(?P<scale2>[KMB]?)\s*tok(?:en)?s?/s)",
    re.ASCII | re.IGNORECASE,
)
_NORM = re.compile(rf"\b(?:grad[_ ]?norm|gnorm|norm)[\"']?\s*[:=]?\s*[\"']?({NUMBER})", re.ASCII | re.IGNORECASE)
_RATE = re.compile(rf"\b(?:lr|learning[_ ]rate)[\"']?\s*[:=]?\s*[\"']?({NUMBER})", re.ASCII | re.IGNORECASE)
_NO_TRAINING = re.compile(r"\b(?:val|valid|validation|eval|evaluation|test)(?:\b|[_/])", re.IGNORECASE)


class GenericReader(Reader):
    """``key=value`` and ``key: value`` lines, and JSON lines, of loops that nobody has told us of."""

    name = "generic"
    rank = 80
    hints = ("loss", "Loss", "LOSS")

    def read(self, text: str) -> Seen | None:
        """Return what one line says."""
        step, loss = _STEP.search(text), _LOSS.search(text)
        if step is None or loss is None or _NO_TRAINING.search(text):
            return None
        tokens = _TOKENS.search(text)
        each = tokens is not None and tokens["each"] is not None
        rate = _scaled(tokens) if tokens else None
        values = known(
            loss=number(loss[1]),
            step_s=_time_s(text),
            tokens_per_s=None if each else rate,
            tokens_per_s_per_gpu=rate if each else None,
            grad_norm=_first(_NORM, text),
            lr=_first(_RATE, text),
        )
        return Seen(part=Part.STEP, iteration=whole(step[1]), total_iterations=whole(step[2] or ""), values=values)


def _first(pattern: re.Pattern[str], text: str) -> float | None:
    found = pattern.search(text)
    return number(found[1]) if found else None


def _scaled(found: re.Match[str]) -> float | None:
    """Return a rate of tokens with what stands behind it."""
    if found["after"] is not None:
        return positive(f"{found['after']}{found['scale'].upper()}")
    return positive(f"{found['before']}{found['scale2'].upper()}")


def _time_s(text: str) -> float | None:
    """Return the time of a step, where its unit is told: a bare ``time`` could be anything."""
    for found in _TIME.finditer(text):
        unit = (found[1] or found[2] or found[4] or "").lower()
        value = positive(found[3])
        if value is not None and unit in ("ms", "s", "sec"):
            return value / 1e3 if unit == "ms" else value
    bare = _BARE_MS.search(text)
    value = positive(bare[1]) if bare else None
    return value / 1e3 if value else None
