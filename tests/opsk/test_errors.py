from __future__ import annotations

import inspect

import pytest

from opsk import errors
from opsk.errors import ConfigError, ExitStatus, InputError, OpskError, PlanInfeasibleError, UnavailableError

ALL = [
    item
    for _, item in inspect.getmembers(errors, inspect.isclass)
    if issubclass(item, OpskError) and item is not PlanInfeasibleError
]


@pytest.mark.parametrize("error", ALL, ids=lambda error: error.__name__)
def test_every_error_says_what_is_wrong_and_what_to_do(error: type[OpskError]) -> None:
    raised = error("disk is full", hint="empty it")
    assert (str(raised), raised.message, raised.hint) == ("disk is full", "disk is full", "empty it")


@pytest.mark.parametrize(
    ("error", "status"),
    [(InputError, 2), (ConfigError, 2), (UnavailableError, 3), (errors.SlurmError, 3), (errors.LabError, 3)],
)
def test_wrong_input_and_a_missing_service_end_differently(error: type[OpskError], status: int) -> None:
    assert error("x").exit_status == status


def test_an_infeasible_plan_keeps_every_violation() -> None:
    raised = PlanInfeasibleError(("tp is 0", "dp is 0"), hint="raise them")
    assert raised.violations == ("tp is 0", "dp is 0")
    assert raised.message == "tp is 0; dp is 0"
    assert raised.exit_status == ExitStatus.USAGE
