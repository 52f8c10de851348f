"""Is nothing worked out twice of the very same objects, and never what belongs to others?"""

from __future__ import annotations

from opsk.diagnosis.events.findings import cache_last_call


def test_it_is_worked_out_once_and_for_others_anew() -> None:
    asked: list[tuple[int, ...]] = []

    @cache_last_call
    def total(numbers: tuple[int, ...], more: tuple[int, ...] = ()) -> int:
        asked.append(numbers)
        return sum(numbers) + sum(more)

    first, equal = tuple(range(1000)), tuple(range(1000))
    assert [total(first), total(first), total(equal), total(first)] == [499500] * 4
    assert [each is first for each in asked] == [True, False, True], "equal is not the same"
    assert total(first, (1,)) == 499501
    assert total(first, more=(2,)) == 499502
    assert total(first) == 499500


def test_no_other_object_takes_the_place_of_the_last_one() -> None:
    """Its arguments are kept: else a new tuple could lie where the last one was, and be taken for it."""

    @cache_last_call
    def length(numbers: tuple[int, ...]) -> int:
        return len(numbers)

    assert [length((*range(number),)) for number in range(200)] == list(range(200))
