"""Queries the site's Prometheus with a few expressions, each about as often as its answer can change."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterable, Mapping
from urllib.parse import urlencode

from opsk.units import MIB
from opsk_tui.data.sources.prometheus.answers import AnswerStore, parse_matrix, parse_vector
from opsk_tui.data.sources.prometheus.http import Access, RefusedError, Server
from opsk_tui.data.sources.prometheus.queries import Question, questions
from opsk_tui.data.sources.readings import Readings

DEADLINE_S = 10.0
MAX_ANSWER_BYTES = 128 * MIB
PACES, MAX_PACE = ((2_000, 0.3), (8_000, 1.0)), 1.6
"""Largest number of GPUs, and the factor on the query intervals."""
MAX_NAMED = 64
"""Nodes, or lost GPUs, that are queried by name at once."""
CPU_A_REFRESH_S = 0.03
"""CPU budget of a refresh; the remaining queries are the first of the next one [s]."""


class PrometheusSource:
    """Keeps readings up to date from Prometheus.

    Parameters
    ----------
    url
        The URL of Prometheus.
    labels
        Labels of this cluster's series.
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
        self._server = Server(url, access or Access(), deadline_s=DEADLINE_S, max_bytes=MAX_ANSWER_BYTES)
        self._readings = readings
        self._store = AnswerStore(readings)
        self._clock = clock
        self._selector = ",".join(f"{name}={json.dumps(value)}" for name, value in (labels or {}).items())
        self._questions = list(questions())

    @property
    def shown(self) -> str:
        """Its address."""
        return self._server.shown

    def forget(self) -> None:
        """Read everything again: the nodes have changed."""
        self._store.forget()
        for question in self._questions:
            question.asked_at_s = -math.inf

    def refresh(self, *, everything: bool = False, spent_s: float = 0.0) -> None:
        """Send the queries that are due, the longest overdue first; a few at a time, so that refreshes cost the same.

        Parameters
        ----------
        spent_s
            CPU time that others have spent of this budget since the last refresh [s]; at least a third remains.

        Raises
        ------
        UnavailableError
            Prometheus does not answer.
        """
        now_s, pace = self._clock(), self._pace()
        due = [each for each in self._questions if everything or now_s - each.asked_at_s >= pace * each.every_s]
        # new queries first, in their order, since positions come first; then the longest overdue
        due.sort(key=lambda each: 0.0 if each.asked_at_s == -math.inf else -(now_s - each.asked_at_s) / each.every_s)
        if not everything:
            due.sort(key=lambda each: each.asked_at_s != -math.inf or each.may_wait)
        end = time.thread_time() + max(CPU_A_REFRESH_S - spent_s, CPU_A_REFRESH_S / 3)
        refused: list[RefusedError] = []
        for question in due:
            # spread over the interval: queries that start together are separated later
            first = question.asked_at_s == -math.inf and not question.may_wait
            if not first and not everything and time.thread_time() > end:
                break
            asked_at_s = now_s - (_phase(question.expr) * question.every_s if first else 0.0)
            try:
                self._ask_and_store(question)
            except RefusedError as error:
                refused.append(error)
            question.asked_at_s = asked_at_s
        if refused and len(refused) == len(due):
            raise refused[0]
        if self._store.lost:
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
        return list(parse_matrix(body))

    def now(self, expr: str) -> list[tuple[Mapping[str, str], float]]:
        """Return the series of an expression now; ``SEL`` in it stands for the site's labels.

        Raises
        ------
        UnavailableError
            Prometheus does not answer.
        """
        return list(parse_vector(self._ask("query", expr)))

    def _pace(self) -> float:
        """Return the factor on the query intervals: a small cluster costs little and is queried often."""
        gpus = len(self._readings.nodes) * self._readings.slots
        return next((pace for max_gpus, pace in PACES if gpus <= max_gpus), MAX_PACE)

    def _ask_and_store(self, question: Question) -> None:
        """Send a query, and store its answer."""
        if question.by_node:
            body = self._ask("query", question.by_node)
            with self._readings.lock:
                mixed = self._store.take_by_node(question, body)
            if not mixed:
                return
            if len(mixed) <= MAX_NAMED:
                body = self._ask("query", question.expr.replace("SEL", f'node=~"{match_any(mixed)}",SEL'))
                with self._readings.lock:
                    self._store.take_more(question, body)
                return
        body = self._ask("query", question.expr)
        with self._readings.lock:
            is_new = self._store.take(question, body)
        if is_new:
            self.forget()

    def _find_lost(self) -> None:
        """Find the positions of GPUs that were lost before the start, from their earlier info series."""
        names = match_any(uuid for _, uuid in sorted(self._store.lost)[:MAX_NAMED])
        selector = f'gpu=~"{names}",SEL'
        infos = self.now(f"max by (node, gpu, index, slurm_index) (last_over_time(opsk_gpu_info{{{selector}}}[1d]))")
        with self._readings.lock:
            self._store.take_infos(infos)

    def _ask(self, path: str, expr: str, **parameters: str) -> bytes:
        body = urlencode({"query": expr.replace("SEL", self._selector), **parameters}).encode("ascii")
        return self._server.ask(
            "POST", f"/api/v1/{path}", body, **{"Content-Type": "application/x-www-form-urlencoded"}
        )


def match_any(names: Iterable[str]) -> str:
    """Return the regular expression that matches any of some names, quoted for PromQL."""
    return "|".join(re.escape(name).replace("\\", "\\\\").replace('"', '\\"') for name in names)


def _phase(text: str) -> float:
    """Return a number from 0 to 1 that differs between queries and is always the same."""
    return (sum(map(ord, text)) * 0.6180339887) % 1.0
