"""Arithmetic by bash's rules; each expectation was printed by bash 5.2 for the same expression."""

from __future__ import annotations

import pytest

from opsk_jobcheck.scripts.bash.arithmetic import ArithmeticUnknownError, evaluate_arithmetic, find_assigned_names


def value(expression: str, **variables: str) -> int:
    return evaluate_arithmetic(expression, lambda name: variables.get(name, ""))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("7/2", 3),
        ("-7/2", -3),
        ("-7%3", -1),
        ("2**10", 1024),
        ("-2**2", 4),
        ("2**3**2", 512),
        ("0x1f + 010 + 2#101", 44),
        ("10#08", 8),
        ("1<<62<<1", -(2**63)),
        ("9223372036854775807+1", -(2**63)),
        ("1 ? 2 : 3", 2),
        ("0 && 1/0", 0),
        ("1 || 1/0", 1),
        ("(1,2)", 2),
        ("1--1", 2),
        ("", 0),
    ],
)
def test_expressions_have_the_value_that_bash_gives_them(expression: str, expected: int) -> None:
    assert value(expression) == expected


def test_a_variable_may_hold_an_expression() -> None:
    assert value("X*2", X="1+2") == 6


@pytest.mark.parametrize("expression", ["1_000", "08", "1/0", "2**-1", "3 4", "(1", "1 ?2", "X", "a[0]"])
def test_what_bash_refuses_or_needs_more_for_is_unknown(expression: str) -> None:
    with pytest.raises(ArithmeticUnknownError):
        value(expression, X="X")


def test_assignments_are_reported_once_the_whole_value_is_certain() -> None:
    held = {"I": "5", "J": "2"}
    result = evaluate_arithmetic(
        "I++ + (J *= 3) + I", held.__getitem__, assign=lambda name, number: held.update({name: str(number)})
    )
    assert (result, held) == (17, {"I": "6", "J": "6"})


def test_nothing_is_assigned_by_an_expression_without_a_value() -> None:
    held = {"I": "5"}
    with pytest.raises(ArithmeticUnknownError):
        evaluate_arithmetic("I=3, 1/0", held.__getitem__, assign=lambda name, number: held.update({name: str(number)}))
    assert held == {"I": "5"}


def test_names_that_an_expression_may_assign_are_found_without_evaluating_it() -> None:
    assert find_assigned_names("a++ + --b, c <<= $d, e == f, g[1]=2") == {"a", "b", "c", "g"}


def test_deep_nesting_is_given_up_not_followed() -> None:
    with pytest.raises(ArithmeticUnknownError):
        value("(" * 5000 + "1" + ")" * 5000)
