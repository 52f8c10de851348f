"""How are the questions "what if ..." asked at a terminal, and how do their answers look as JSON?"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

from opsk.cli.plan.document import fields_of
from opsk.cli.plan.request import Asked
from opsk.planning.search.found import Found
from opsk.planning.search.what_if import Answer, Question, answer, questions


def what_if_documents(asked: Asked, found: Found) -> Iterator[dict[str, Any]]:
    """Yield the answer to every question: the step of the best plan after the change, over that before it.

    Where several numbers of GPUs or batches were searched, what is asked is asked of those of the best plan.
    """
    if found.best:
        before = (found.best_fitting or found.best)[0]
        for answered in _answers(questions(asked.case_of(before.plan))):
            yield _document(answered, before.step_s)


def _answers(asked: Sequence[Question]) -> Iterator[Answer]:
    """Yield the answers, with a bar where somebody watches."""
    hidden = not sys.stderr.isatty()
    with click.progressbar(asked, label="opsk: asking what if", file=sys.stderr, hidden=hidden) as bar:
        for question in bar:
            yield answer(question)


def _document(answered: Answer, before_s: float) -> dict[str, Any]:
    """Return one answer; without a plan that can run there is no step."""
    question, best = answered.question, answered.best
    return {
        "what": question.what,
        "value": question.value,
        "step_s": best.step_s if best else None,
        "relative": best.step_s / before_s if best else None,
        "fits": answered.fits,
        "fit_probability": best.fit_probability if best else None,
        "plan": fields_of(best.plan) if best else None,
    }
