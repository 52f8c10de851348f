"""Runs a script for each task of its job array, where the task's number chooses what is trained."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from opsk_jobcheck.scripts.bash.values import Run, Text, literal
from opsk_jobcheck.scripts.frameworks.recognition import select_commands
from opsk_jobcheck.scripts.launchers.programs import filter_training, find_program
from opsk_jobcheck.scripts.separate_runs import MAX_RUNS

TASK = "SLURM_ARRAY_TASK_ID"
MAX_STEPS = 40_000
"""Work that all tasks of an array may make together."""
MAX_TASKS = 24
"""Tasks that a script is run for; a larger array is read as any one of its tasks."""
_RANGE = re.compile(r"(?P<first>\d{1,6})(-(?P<last>\d{1,6})(:(?P<step>\d{1,6}))?)?")


def list_tasks(spec: str) -> list[int]:
    """Return the numbers of an array's tasks, none where it has too many or they are not known.

    Examples
    --------
    >>> list_tasks("0-6:2,9%4"), list_tasks("1-1000"), list_tasks("x")
    ([0, 2, 4, 6, 9], [], [])
    """
    tasks: list[int] = []
    for part in spec.partition("%")[0].split(",")[: MAX_TASKS + 1]:
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            return []
        first, last, step = int(match["first"]), int(match["last"] or match["first"]), int(match["step"] or 1)
        tasks += range(first, last + 1, step or 1)[: MAX_TASKS + 1]
    return tasks if len(tasks) <= MAX_TASKS else []


def run_tasks(
    source: str, spec: str, given: Mapping[str, Text], start: Callable[[Mapping[str, Text]], Run]
) -> list[Run]:
    """Return what a script runs in the tasks of its array, each training once.

    There is none where the script does not look at the number, or where there are more trainings, or more work, than
    are read.

    Parameters
    ----------
    spec
        The value of ``--array``.
    given
        The variables that the job has.
    start
        Runs the script with some variables.
    """
    if TASK not in source:
        return []
    results: dict[tuple[tuple[str, ...], ...], Run] = {}
    steps = 0
    for task in list_tasks(spec):
        result = start({**given, TASK: literal(str(task), 0)})
        commands = filter_training(select_commands(result.invocations))
        key = tuple(entry.shown_words for entry in commands if find_program(entry) is not None)
        results.setdefault(key, result)
        steps += result.steps
        if len(results) > MAX_RUNS or steps > MAX_STEPS:
            return []
    return list(results.values())
