"""Separates the trainings of a script that starts several: one after another, in a loop over settings, or at once.

Counted in 394 public scripts that train: 34 start more than one, 27 of them the same program with other settings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.bash.values import RUNS_SHELL_TEXT, Invocation, Run
from opsk_jobcheck.scripts.frameworks.recognition import find_training_command, select_commands
from opsk_jobcheck.scripts.frameworks.registry import READERS
from opsk_jobcheck.scripts.launchers.programs import CONNECTIVITY, filter_training, find_program
from opsk_jobcheck.scripts.settings.reader import find_best_match

MAX_RUNS = 6
"""Trainings of one script that are read; of more, those at the ends of what a loop runs over."""
MAX_COMMANDS = 1024
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?$")
_MAX_DIGITS = 12
_RANK = re.compile(r"--?(?:node|machine|global|local|process)[_-](?:rank|id)")
_SIZES = frozenset({"plan.nodes", "plan.gpus", "plan.gpus_per_node", "plan.dp", "plan.global_batch"})
"""Fields in which ranks of one training differ where a script starts each by a command of its own."""


def separate_runs(result: Run) -> tuple[list[Run], int]:
    """Return what a script runs as if it started one of its trainings alone, for each, and how many it starts.

    Only trainings that certainly start count, each text once. There are no runs where fewer than two start.
    """
    commands = filter_training(select_commands(result.invocations))[:MAX_COMMANDS]
    if sum(map(_may_be_separate, commands)) < 2:
        return [], min(1, len(commands))
    trainings = {_drop_ranks(entry.shown_words): entry for entry in reversed(_select_trainings(commands))}
    if len(trainings) < 2:
        return [], len(trainings)
    rows = list(reversed(trainings.values()))
    others = {id(entry) for entry in commands if _drop_ranks(entry.shown_words) in trainings}
    return [_keep_one(result, entry, others) for entry in _select_ends(rows)], len(rows)


def list_other_runs(workload: Workload, runs: Iterable[Workload]) -> tuple[Workload, ...]:
    """Return the runs that train with other settings than the workload, each of these settings once."""
    known = {_summarise(workload)}
    others: list[Workload] = []
    for run in runs:
        key = _summarise(run)
        if run.is_training and key not in known:
            known.add(key)
            others.append(run)
    return tuple(others)


def list_differences(workload: Workload, others: Iterable[Workload]) -> tuple[str, ...]:
    """Return the fields of model and plan in which a run differs from others."""
    different = {name for other in others for name in _compare(workload, other)}
    return tuple(name for name, _ in _list_fields(workload) if name in different)


def _drop_ranks(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of a command without its rank, in which the commands of one training differ on its nodes."""
    rows = zip(words, ("", *words), strict=False)
    return tuple(
        word for word, before in rows if not (_RANK.fullmatch(word.partition("=")[0]) or _RANK.fullmatch(before))
    )


def _select_trainings(commands: Sequence[Invocation]) -> list[Invocation]:
    """Return the commands that certainly train; the turns of a command that differ in values alone are one kind."""
    kinds: dict[tuple[object, ...], bool] = {}
    trainings: list[Invocation] = []
    for entry in commands:
        names = tuple(word for word in entry.shown_words if word.startswith("-") or word.endswith(".py"))
        kind = (entry.line, entry.certain, len(entry.words), entry.shown_words[:1], names)
        if kind not in kinds:
            kinds[kind] = _certainly_trains(entry)
        if kinds[kind]:
            trainings.append(entry)
    return trainings


def _may_be_separate(invocation: Invocation) -> bool:
    """Return whether a command certainly runs, and is more than the shell of another one."""
    return invocation.certain and RUNS_SHELL_TEXT not in invocation.facts


def _certainly_trains(invocation: Invocation) -> bool:
    """Return whether a command certainly runs, and trains: a reader knows it, or its name or launcher says so."""
    if not _may_be_separate(invocation):
        return False
    match = find_best_match(READERS, [invocation])
    if match is not None:
        return match[1].framework != CONNECTIVITY
    return find_program(invocation) is not None and find_training_command([invocation]) is not None


def _keep_one(result: Run, chosen: Invocation, others: set[int]) -> Run:
    """Return what a script runs without the other trainings."""
    entries = tuple(entry for entry in result.invocations if entry is chosen or id(entry) not in others)
    return replace(result, invocations=entries)


def _select_ends(rows: list[Invocation]) -> list[Invocation]:
    """Return the trainings to read; of many, for each command the one with the largest and with the smallest numbers.

    Of loops over settings that is where micro-batch, length and model are largest together, and smallest.
    """
    if len(rows) <= MAX_RUNS:
        return rows
    by_line: dict[int, list[Invocation]] = {}
    for entry in rows:
        by_line.setdefault(entry.line, []).append(entry)
    ends = [_sort_by_numbers(group) for group in by_line.values()]
    chosen = [*(group[-1] for group in ends), *(group[0] for group in ends), *rows]
    selected = set(list(dict.fromkeys(map(id, chosen)))[:MAX_RUNS])
    return [entry for entry in rows if id(entry) in selected]


def _sort_by_numbers(rows: list[Invocation]) -> list[Invocation]:
    """Return the turns of one command, those with small numbers first; each word counts by its rank among all."""
    scores = dict.fromkeys(map(id, rows), 0.0)
    for column in zip(*(entry.shown_words for entry in rows), strict=False):
        if len(set(column)) > 1:
            numbers = [_find_number(word) or 0.0 for word in column]
            ranks = {number: rank for rank, number in enumerate(sorted(set(numbers)))}
            for entry, number in zip(rows, numbers, strict=True):
                scores[id(entry)] += ranks[number] / len(ranks)
    return sorted(rows, key=lambda entry: scores[id(entry)])


def _find_number(word: str) -> float | None:
    """Return the number at the end of a word."""
    match = _NUMBER.search(word[-_MAX_DIGITS:])
    return float(match[0]) if match is not None else None


def _list_fields(workload: Workload) -> Iterator[tuple[str, object]]:
    """Yield what is stated of a model and a plan by field, without what ranks of one training differ in."""
    for group, stated in (("model", workload.model), ("plan", workload.plan)):
        for name in type(stated).__slots__:
            field = f"{group}.{name}"
            if field not in _SIZES:
                yield field, getattr(stated, name)


def _compare(workload: Workload, other: Workload) -> Iterator[str]:
    """Yield the fields in which two runs differ."""
    rows = zip(_list_fields(workload), _list_fields(other), strict=True)
    yield from (name for (name, value), (_, second) in rows if value != second)


def _summarise(workload: Workload) -> tuple[object, ...]:
    """Return what makes a run another training than a second one."""
    unknown = tuple(sorted(entry.field for entry in workload.unknown if entry.field not in _SIZES))
    return workload.framework, tuple(value for _, value in _list_fields(workload)), workload.options, unknown
