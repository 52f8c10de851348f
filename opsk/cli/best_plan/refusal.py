"""How does ``opsk plan`` say that no plan is legal?"""

from __future__ import annotations

from opsk.cli.best_plan.request import Asked
from opsk.errors import InputError
from opsk.planner.best_plan.emptiness import Relaxation, broken_rules, relaxations
from opsk.text import escape


def refused_request(asked: Asked) -> InputError:
    """Return the error that names the constraint which empties the space, and the nearest that does not."""
    request = asked.request
    what = f"no plan is legal for {request.model.name} on {request.gpus} GPUs with batch {request.global_batch}"
    if broken := broken_rules(request):
        return InputError(
            escape(f"{what}: {'; '.join(broken)}"),
            hint="no axis would change that: ask for something else there",
        )
    found = relaxations(request)
    if not found:
        return InputError(escape(what), hint="leave out some of what is fixed: no one or two of them are to blame")
    blamed = "; ".join(f"{one.constraint} {one.asked}" for one in found)
    return InputError(
        escape(f"{what}: ruled out by {blamed}"),
        hint=escape("there are plans with " + _offers(found)),
    )


def _offers(found: list[Relaxation]) -> str:
    """Return what can be asked instead."""
    return ", or ".join(
        f"{one.constraint} {' or '.join(one.nearest)}" if one.nearest else f"{one.constraint} {one.asked} left out"
        for one in found
    )
