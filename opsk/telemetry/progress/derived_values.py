"""Derives the missing values of a progress record: rates from batch size and time, times from rates.

Every derived value is marked as such.
"""

from __future__ import annotations

from collections.abc import Mapping

_LONGEST_STEP_S = 7 * 86400.0


def derive_values(
    stated: Mapping[str, float],
    facts: Mapping[str, float],
    *,
    tokens_before: float | None,
    steps_since: int | None,
    seconds_since: float | None,
) -> tuple[dict[str, float], tuple[str, ...]]:
    """Return all values of a step, and the names of those that were computed.

    Parameters
    ----------
    stated
        What the line states.
    facts
        What holds for the run: ``world`` GPUs, ``seq`` tokens a sample, ``batch`` samples a step.
    tokens_before
        Tokens consumed at the record before.
    steps_since, seconds_since
        Steps and time between the record before and this one.
    """
    values = dict(stated)
    batch = stated.get("batch") or facts.get("batch")
    tokens = _compute_tokens_per_step(stated, facts, batch, tokens_before, steps_since)
    world = facts.get("world")
    _set(values, "tokens_per_s", _multiply(values.get("tokens_per_s_per_gpu"), world))
    _set(values, "step_s", _divide(tokens, values.get("tokens_per_s")))
    _set(values, "step_s", _divide(batch, values.get("samples_per_s")))
    if steps_since and seconds_since is not None and 0 < seconds_since / steps_since < _LONGEST_STEP_S:
        _set(values, "step_s", seconds_since / steps_since)
    step_s = values.get("step_s")
    _set(values, "samples_per_s", _divide(batch, step_s))
    _set(values, "tokens_per_s", _divide(tokens, step_s))
    _set(values, "tokens_per_s_per_gpu", _divide(values.get("tokens_per_s"), world))
    return values, tuple(name for name in values if name not in stated)


def _compute_tokens_per_step(
    stated: Mapping[str, float],
    facts: Mapping[str, float],
    batch: float | None,
    tokens_before: float | None,
    steps_since: int | None,
) -> float | None:
    """Return how many tokens a step trains: as stated, by the batch, or by what was consumed since."""
    if "batch_tokens" in stated:
        return stated["batch_tokens"]
    by_batch = _multiply(batch, stated.get("seq") or facts.get("seq"))
    if by_batch is not None:
        return by_batch
    consumed = stated.get("consumed_tokens")
    if consumed is None or tokens_before is None or not steps_since or consumed <= tokens_before:
        return None
    return (consumed - tokens_before) / steps_since


def _set(values: dict[str, float], name: str, value: float | None) -> None:
    if value is not None:
        values.setdefault(name, value)


def _divide(part: float | None, whole: float | None) -> float | None:
    return part / whole if part and whole else None


def _multiply(first: float | None, second: float | None) -> float | None:
    return first * second if first and second else None
