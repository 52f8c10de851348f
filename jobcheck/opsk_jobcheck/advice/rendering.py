"""How does advice read on a terminal? Plain lines, harmless whatever the script contained: few, all, or two of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from opsk.text import format_count
from opsk.workload.advice_record import Verdict
from opsk_jobcheck.advice.advice import Advice
from opsk_jobcheck.advice.network_words import network_line, shares_line
from opsk_jobcheck.advice.text import figures, job
from opsk_jobcheck.advice.text.line import LABEL_WIDTH, MAX_WIDTH, Line, Weight, cut, in_ascii, is_ascii_only

__all__ = ["MAX_LINES", "Detail", "detail_of", "is_ascii_only", "lines", "per_task", "short_lines"]

MAX_LINES = 6
"""So many lines a submission prints unless more are asked for."""
HOW_TO_SEE = "OPSK_ADVICE=long or opsk check --detail long"
SHORT = "many submissions wait: what may go better was not looked for; opsk check does"
_COUNTED = ("problem", "reason", "change", "finding")
"""Topics that are told with their number where they are left out."""
_FACTS = ("values read", "values assumed")


class Detail(StrEnum):
    """How much is said: the most useful six lines, all of it, or two lines."""

    DEFAULT = "default"
    LONG = "long"
    SHORT = "short"


def detail_of(environment: Mapping[str, str]) -> Detail:
    """Return what ``OPSK_ADVICE`` asks for; what it does not know, and ``off``, is for its reader to handle."""
    wanted = environment.get("OPSK_ADVICE", "").strip().lower()
    return Detail(wanted) if wanted in (Detail.LONG, Detail.SHORT) else Detail.DEFAULT


def lines(advice: Advice, detail: Detail | str = Detail.DEFAULT, *, ascii_only: bool = False) -> tuple[str, ...]:
    """Return the advice, a line each, without prefix or colour.

    Parameters
    ----------
    ascii_only
        True for a terminal that shows no other signs.
    """
    if detail == Detail.SHORT:
        told = list(_short(advice))
    elif detail == Detail.LONG:
        told = [row for line in _all(advice) for row in line.rows()]
    else:
        told = _few(_all(advice))
    return tuple(in_ascii(row) if ascii_only else row for row in told)


def short_lines(advice: Advice, *, ascii_only: bool = False) -> tuple[str, ...]:
    """Return the advice in two lines, for a submission whose user sees nothing else."""
    return lines(advice, Detail.SHORT, ascii_only=ascii_only)


def per_task(told: tuple[str, ...], *, is_array: bool, ascii_only: bool = False) -> tuple[str, ...]:
    """Return lines that say, for a job array, that they are about one of its tasks."""
    if not is_array or not told:
        return told
    note = " · each task of the array"
    return (f"{told[0]}{in_ascii(note) if ascii_only else note}", *told[1:])


def _short(advice: Advice) -> tuple[str, str]:
    """Return headline and verdict."""
    verdict = next(job.unknown(advice)) if advice.verdict is Verdict.UNKNOWN else figures.memory(advice)
    return job.headline(advice).row(), verdict.row()


def _all(advice: Advice) -> list[Line]:
    """Return all there is to say, in the order in which it is read."""
    told = [job.headline(advice)]
    if advice.verdict is Verdict.UNKNOWN:
        told += [*job.unknown(advice), *figures.mending(advice)]
    else:
        out = figures.ways_out(advice) if advice.verdict is not Verdict.FITS else ()
        told += [figures.memory(advice), *out, figures.speed(advice)]
        told += [*figures.improvements(advice), *figures.best(advice), *_network(advice)]
    if advice.is_short:
        told.append(Line(label="short", text=SHORT, brief=SHORT, weight=Weight.VERDICT))
    return [*told, *job.problems(advice), *job.read(advice), *job.assumed(advice)]


def _network(advice: Advice) -> Iterable[Line]:
    """Return where the ranks should go, and who else is on the links."""
    if text := network_line(advice):
        weight = Weight.NETWORK if advice.placement.placement is not None else Weight.NO_NETWORK
        brief = cut(text.replace(" of the traffic between nodes stays", " of traffic stays"), MAX_WIDTH - LABEL_WIDTH)
        yield Line(label="network", text=text, brief=brief, weight=weight, topic="network")
    if text := shares_line(advice):
        yield Line(label="shares", text=text, weight=Weight.SHARES, topic="shared links")


def _few(told: list[Line]) -> list[str]:
    """Return the lines that matter most, in their order; the last one says what was left out and how to see it."""
    rows = [line for line in told if line.weight is not Weight.NEVER]
    is_all = len(told) == len(rows) <= MAX_LINES and all(line.is_whole for line in rows)
    if is_all:
        return [line.row() for line in rows]
    order = sorted(range(len(rows)), key=lambda index: (rows[index].weight, index))
    kept = set(order[: MAX_LINES - 1])
    chosen = [line for index, line in enumerate(rows) if index in kept]
    return [*(line.row() for line in chosen), _more([line for line in told if all(line is not one for one in chosen)])]


def _more(left: list[Line]) -> str:
    """Return the line that says what was left out."""
    counts = {topic: sum(line.topic == topic for line in left) for topic in _COUNTED}
    numbers = [format_count(count, topic) for topic, count in counts.items() if count]
    others = list(dict.fromkeys(line.topic for line in left if line.topic and line.topic not in _COUNTED))
    if set(_FACTS) <= set(others):
        others = [*(topic for topic in others if topic not in _FACTS), "values read and assumed"]
    words = ", ".join([*numbers, *others]) or "all in full"
    text = f"{words}: {HOW_TO_SEE}"
    return Line(label="more", text=text, brief=text, weight=Weight.OTHER).row()
