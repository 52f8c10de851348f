"""Answers the what-if questions of ``opsk plan`` with a progress bar, and builds their JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

from opsk.cli.plan.document import build_plan_fields
from opsk.cli.plan.request import ParsedRequest
from opsk.planning.search.result import SearchResult
from opsk.planning.search.what_if import Answer, Question, answer, list_questions


def build_what_if_documents(parsed: ParsedRequest, result: SearchResult) -> Iterator[dict[str, Any]]:
    """Yield the answer to every question: the step of the best plan after the change, relative to that before it.

    Where several numbers of GPUs or batches were searched, the questions use those of the best plan.
    """
    if result.best:
        before = (result.best_fitting or result.best)[0]
        for answered in _answer_questions(list_questions(parsed.case_of(before.plan))):
            yield _build_document(answered, before.step_s)


def _answer_questions(pending: Sequence[Question]) -> Iterator[Answer]:
    """Yield the answers, with a progress bar on terminals."""
    hidden = not sys.stderr.isatty()
    with click.progressbar(pending, label="opsk: asking what if", file=sys.stderr, hidden=hidden) as bar:
        for question in bar:
            yield answer(question)


def _build_document(answered: Answer, before_s: float) -> dict[str, Any]:
    """Return the JSON of one answer; without a plan there is no step."""
    question, best = answered.question, answered.best
    return {
        "what": question.what,
        "value": question.value,
        "step_s": best.step_s if best else None,
        "relative": best.step_s / before_s if best else None,
        "fits": answered.fits,
        "fit_probability": best.fit_probability if best else None,
        "plan": build_plan_fields(best.plan) if best else None,
    }
