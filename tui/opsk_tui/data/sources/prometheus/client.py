"""What does the site's Prometheus know? A few questions, each asked about as often as its answer can change."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterable, Mapping
from urllib.parse import urlencode

from opsk.units import MIB
from opsk_tui.data.sources.prometheus.answers import labelled, matrix
from opsk_tui.data.sources.prometheus.http import Access, RefusedError, Server
from opsk_tui.data.sources.prometheus.placing import Taking
from opsk_tui.data.sources.prometheus.questions import Question, questions
from opsk_tui.data.sources.readings import Readings

DEADLINE_S = 10.0
LARGEST_ANSWER_BYTES = 128 * MIB
PACES, SLOWEST_PACE = ((2_000, 0.3), (8_000, 1.0)), 1.6
"""Largest number of GPUs, and how much less often than usual is asked."""
MOST_NAMED = 64
"""Nodes, or GPUs that were lost, that are asked about by name at once."""
CPU_A_REFRESH_S = 0.03
"""What a refresh may cost; questions that it leaves are the first of the next one [s]."""


class PrometheusSource:
    """Keeps readings up to date.

    Parameters
    ----------
    url
        Where Prometheus answers.
    labels
        Labels that this cluster's series have.
    clock
        Seconds since 1970.
    """

    def __init__(
        self,
        url: str,
        readings: Readings,
        *,
        access: Access | None = None,
        labels: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._server = Server(url, access or Access(), deadline_s=DEADLINE_S, largest_bytes=LARGEST_ANSWER_BYTES)
        self._readings = readings
        self._taking = Taking(readings)
        self._clock = clock
        self._selector = ",".join(f"{name}={json.dumps(value)}" for name, value in (labels or {}).items())
        self._questions = list(questions())

    @property
    def shown(self) -> str:
        """Its address."""
        return self._server.shown

    def forget(self) -> None:
        """Read everything anew: the nodes are others."""
        self._taking.forget()
        for question in self._questions:
            question.asked_at_s = -math.inf

    def refresh(self, *, everything: bool = False, spent_s: float = 0.0) -> None:
        """Ask what is due, the longest overdue first; a few questions at a time, so that each refresh costs alike.

        Parameters
        ----------
        spent_s
            What others have spent since the last refresh of what it may cost [s of CPU]; a third is left all the same.

        Raises
        ------
        UnavailableError
            Prometheus does not answer.
        """
        now_s, pace = self._clock(), self._pace()
        due = [each for each in self._questions if everything or now_s - each.asked_at_s >= pace * each.every_s]
        # never asked: first, in their order, for where things are comes first; then the longest overdue
        due.sort(key=lambda each: 0.0 if each.asked_at_s == -math.inf else -(now_s - each.asked_at_s) / each.every_s)
        if not everything:
            due.sort(key=lambda each: each.asked_at_s != -math.inf or each.may_wait)
        end = time.thread_time() + max(CPU_A_REFRESH_S - spent_s, CPU_A_REFRESH_S / 3)
        refused: list[RefusedError] = []
        for question in due:
            # spread over the interval: what is asked together at first is asked apart later
            first = question.asked_at_s == -math.inf and not question.may_wait
            if not first and not everything and time.thread_time() > end:
                break
            asked_at_s = now_s - (_phase(question.expr) * question.every_s if first else 0.0)
            try:
                self._put(question)
            except RefusedError as error:
                refused.append(error)
            question.asked_at_s = asked_at_s
        if refused and len(refused) == len(due):
            raise refused[0]
        if self._taking.lost:
            self._find_lost()
        with self._readings.lock:
            for progress in self._readings.progress.values():
                progress.note(now_s)

    def over_time(self, expr: str, since_s: float, until_s: float, step_s: float) -> list[
        tuple[Mapping[str, str], tuple[tuple[float, float], ...]]
    ]:  # fmt: skip
        """Return the series of an expression over a time; ``SEL`` in it stands for the site's labels.

        Raises
        ------
        UnavailableError
            Prometheus does not answer.
        """
        body = self._ask("query_range", expr, start=f"{since_s:.3f}", end=f"{until_s:.3f}", step=f"{step_s:.3f}")
        return list(matrix(body))

    def now(self, expr: str) -> list[tuple[Mapping[str, str], float]]:
        """Return the series of an expression now; ``SEL`` in it stands for the site's labels.

        Raises
        ------
        UnavailableError
            Prometheus does not answer.
        """
        return list(labelled(self._ask("query", expr)))

    def _pace(self) -> float:
        """Return how much less often than usual is asked: a small cluster costs nothing and is seen as it is now."""
        gpus = len(self._readings.nodes) * self._readings.slots
        return next((pace for most, pace in PACES if gpus <= most), SLOWEST_PACE)

    def _put(self, question: Question) -> None:
        """Ask a question, and take its answer in."""
        if question.by_node:
            body = self._ask("query", question.by_node)
            with self._readings.lock:
                mixed = self._taking.take_by_node(question, body)
            if not mixed:
                return
            if len(mixed) <= MOST_NAMED:
                body = self._ask("query", question.expr.replace("SEL", f'node=~"{one_of(mixed)}",SEL'))
                with self._readings.lock:
                    self._taking.take_more(question, body)
                return
        body = self._ask("query", question.expr)
        with self._readings.lock:
            is_new = self._taking.take(question, body)
        if is_new:
            self.forget()

    def _find_lost(self) -> None:
        """Learn where GPUs were that had been lost before anybody looked: from what they told of themselves then."""
        names = one_of(uuid for _, uuid in sorted(self._taking.lost)[:MOST_NAMED])
        selector = f'gpu=~"{names}",SEL'
        told = self.now(f"max by (node, gpu, index, slurm_index) (last_over_time(opsk_gpu_info{{{selector}}}[1d]))")
        with self._readings.lock:
            self._taking.take_found(told)

    def _ask(self, path: str, expr: str, **parameters: str) -> bytes:
        body = urlencode({"query": expr.replace("SEL", self._selector), **parameters}).encode("ascii")
        return self._server.ask(
            "POST", f"/api/v1/{path}", body, **{"Content-Type": "application/x-www-form-urlencoded"}
        )


def one_of(names: Iterable[str]) -> str:
    """Return what a label must match to be one of some names, within quotes of PromQL."""
    return "|".join(re.escape(name).replace("\\", "\\\\").replace('"', '\\"') for name in names)


def _phase(text: str) -> float:
    """Return a number from 0 to 1 that differs from question to question and is always the same."""
    return (sum(map(ord, text)) * 0.6180339887) % 1.0
