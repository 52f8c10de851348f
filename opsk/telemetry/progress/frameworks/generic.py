"""Parses lines of unknown training loops: a step, a loss, and a time or a rate with its unit.

They are used only where a log has no lines of a known framework.
"""

from __future__ import annotations

import re

from opsk.telemetry.progress.lines import NUMBER, drop_missing, parse_number, parse_positive, parse_whole
from opsk.telemetry.progress.records import ParsedLine, Reader, StepPart

_STEP = re.compile(
    r"\b(?:global_step|global step|train_step|num_updates|step|iteration|iters?|it)\b[\"']?\s*[:=#\[]?\s*[\"']?"
    r"(\d[\d,]{0,15})(?:\s*/\s*(\d[\d,]{0,15}))?(?![\w.])",
    re.ASCII | re.IGNORECASE,
)
_LOSS = re.compile(
    rf"(?<![\w/])(?:train(?:ing)?[_/ ])?(?:lm[_ ])?loss[\"']?\s*[:=]?\s*[\"']?({NUMBER})", re.ASCII | re.IGNORECASE
)
_NAMED_LOSS = re.compile(
    rf"\b(?:total|G|gen|generator|mse|ce|mlm|nll|l1|pixel|task|policy|actor|pg)_loss[\"']?\s*[:=]\s*[\"']?({NUMBER})",
    re.ASCII | re.IGNORECASE,
)
"""The loss of programs that have several: the first that is known counts."""
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
    """``key=value`` and ``key: value`` lines, and JSON lines, of unknown training loops."""

    name = "generic"
    rank = 80
    hints = ("loss", "Loss", "LOSS")

    def read(self, text: str) -> ParsedLine | None:
        """Parse one line."""
        step, loss = _STEP.search(text), _LOSS.search(text) or _NAMED_LOSS.search(text)
        if step is None or loss is None or _NO_TRAINING.search(text):
            return None
        tokens = _TOKENS.search(text)
        is_per_gpu = tokens is not None and tokens["each"] is not None
        rate = _parse_scaled(tokens) if tokens else None
        values = drop_missing(
            loss=parse_number(loss[1]),
            step_s=_parse_time_s(text),
            tokens_per_s=None if is_per_gpu else rate,
            tokens_per_s_per_gpu=rate if is_per_gpu else None,
            grad_norm=_search_number(_NORM, text),
            lr=_search_number(_RATE, text),
        )
        return ParsedLine(
            part=StepPart.STEP,
            iteration=parse_whole(step[1]),
            total_iterations=parse_whole(step[2] or ""),
            values=values,
        )


def _search_number(pattern: re.Pattern[str], text: str) -> float | None:
    match = pattern.search(text)
    return parse_number(match[1]) if match else None


def _parse_scaled(match: re.Match[str]) -> float | None:
    """Return a token rate with its suffix applied."""
    if match["after"] is not None:
        return parse_positive(f"{match['after']}{match['scale'].upper()}")
    return parse_positive(f"{match['before']}{match['scale2'].upper()}")


def _parse_time_s(text: str) -> float | None:
    """Return the time of a step, where it has a unit: a bare ``time`` could be anything."""
    for match in _TIME.finditer(text):
        unit = (match[1] or match[2] or match[4] or "").lower()
        value = parse_positive(match[3])
        if value is not None and unit in ("ms", "s", "sec"):
            return value / 1e3 if unit == "ms" else value
    bare = _BARE_MS.search(text)
    value = parse_positive(bare[1]) if bare else None
    return value / 1e3 if value else None
