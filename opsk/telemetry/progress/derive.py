"""What follows from what a progress line says? Rates from the batch and the time, times from rates; each is said."""

from __future__ import annotations

from collections.abc import Mapping

_LONGEST_STEP_S = 7 * 86400.0


def derived(
    said: Mapping[str, float],
    facts: Mapping[str, float],
    *,
    tokens_before: float | None,
    steps_since: int | None,
    seconds_since: float | None,
) -> tuple[dict[str, float], tuple[str, ...]]:
    """Return all values of a step, and the names of those that were computed.

    Parameters
    ----------
    said
        What the line states.
    facts
        What holds for the run: ``world`` GPUs, ``seq`` tokens a sample, ``batch`` samples a step.
    tokens_before
        Tokens consumed at the record before.
    steps_since, seconds_since
        Steps and time between the record before and this one.
    """
    values = dict(said)
    batch = said.get("batch") or facts.get("batch")
    tokens = _tokens_a_step(said, facts, batch, tokens_before, steps_since)
    world = facts.get("world")
    _set(values, "tokens_per_s", _times(values.get("tokens_per_s_per_gpu"), world))
    _set(values, "step_s", _over(tokens, values.get("tokens_per_s")))
    _set(values, "step_s", _over(batch, values.get("samples_per_s")))
    if steps_since and seconds_since is not None and 0 < seconds_since / steps_since < _LONGEST_STEP_S:
        _set(values, "step_s", seconds_since / steps_since)
    step_s = values.get("step_s")
    _set(values, "samples_per_s", _over(batch, step_s))
    _set(values, "tokens_per_s", _over(tokens, step_s))
    _set(values, "tokens_per_s_per_gpu", _over(values.get("tokens_per_s"), world))
    return values, tuple(name for name in values if name not in said)


def _tokens_a_step(
    said: Mapping[str, float],
    facts: Mapping[str, float],
    batch: float | None,
    tokens_before: float | None,
    steps_since: int | None,
) -> float | None:
    """Return how many tokens a step trains: as stated, by the batch, or by what was consumed since."""
    if "batch_tokens" in said:
        return said["batch_tokens"]
    by_batch = _times(batch, said.get("seq") or facts.get("seq"))
    if by_batch is not None:
        return by_batch
    consumed = said.get("consumed_tokens")
    if consumed is None or tokens_before is None or not steps_since or consumed <= tokens_before:
        return None
    return (consumed - tokens_before) / steps_since


def _set(values: dict[str, float], name: str, value: float | None) -> None:
    if value is not None:
        values.setdefault(name, value)


def _over(part: float | None, whole: float | None) -> float | None:
    return part / whole if part and whole else None


def _times(one: float | None, other: float | None) -> float | None:
    return one * other if one and other else None
