"""What papers and talks state, against what comes out; all stated numbers are the papers'."""

from __future__ import annotations

import pytest

from opsk.network_design.papers import PAPERS, QUANTITIES, Compared, compare_statements, format_verdict, load_paper


@pytest.fixture(scope="module")
def rail_only() -> tuple[Compared, ...]:
    return compare_statements(load_paper("rail-only"))


def table_2(compared: tuple[Compared, ...], hb_domain: int, kind: str) -> list[Compared]:
    section = f"table II, K = {hb_domain}"
    return [row for row in compared if row.section == section and row.what.endswith(f"{kind} saved")]


def test_all_six_rows_of_table_ii_come_out_with_domains_of_256(rail_only: tuple[Compared, ...]):
    cost, power = table_2(rail_only, 256, "cost"), table_2(rail_only, 256, "power")
    assert all(row.agrees for row in [*cost, *power])
    # 37.5 is printed as 37: cut, not rounded
    assert [row.stated for row in cost] == [0.38, 0.77, 0.62, 0.38, 0.38, 0.77]
    assert [row.stated for row in power] == [0.37, 0.75, 0.6, 0.37, 0.37, 0.75]


def test_with_servers_as_domains_half_of_the_rows_save_nothing(rail_only: tuple[Compared, ...]):
    # 32,768 GPUs: 0 / 38.3 / 0 % at radix 64 / 128 / 256; 65,536: 0 / 38.3 / 38.3 %
    cost = table_2(rail_only, 8, "cost")
    assert [round(row.computed, 3) for row in cost] == [0.0, 0.383, 0.0, 0.0, 0.383, 0.383]
    assert {row.stated for row in cost} == {None}
    assert {row.agrees for row in cost} == {None}


def test_an_all_to_all_is_slower_by_the_ratio_of_rates(rail_only: tuple[Compared, ...]):
    found = {row.what: row for row in rail_only if row.section == "section IV.B" and row.stated}
    assert {name: round(row.computed, 4) for name, row in found.items()} == {
        "DGX A100: all-to-all is slower by": 0.0833,
        "DGX H100: all-to-all is slower by": 0.1111,
    }
    assert [(row.stated, row.agrees) for row in found.values()] == [(0.082, True), (0.112, True)]


def test_most_of_an_all_reduce_stays_in_the_domain(rail_only: tuple[Compared, ...]):
    # equation 1 for 32 x 2 GPUs: 31/32 against 1/64
    shares = [row for row in rail_only if row.section == "section III.B"]
    assert [(round(row.computed, 3), row.agrees) for row in shares] == [(0.984, True), (0.016, True)]


def test_what_does_not_come_out_differs(rail_only: tuple[Compared, ...]):
    wrong = {row.what: row for row in rail_only if row.agrees is False}
    # three quarters of the switches in the text, three fifths in the table; no prices of the table make 200 M USD
    assert set(wrong) == {"switches that rail-only needs at radix 64", "30,000 GPUs in a full-bisection Clos"}
    assert all(row.why for row in wrong.values())


def test_everything_that_the_ntt_talk_prints_comes_out():
    found = compare_statements(load_paper("ntt"))
    stated = {entry.what: entry.stated for entry in found}
    assert list(stated.values()) == [14, 7, 3, 63, 63, None, 63 / 32, 63 / 32, 1, 0.4375, 1.5]
    assert all(entry.agrees for entry in found if entry.stated is not None)
    assert next(entry.computed for entry in found if entry.stated is None) == 1


def test_statements_that_need_predicted_steps_are_left_out_without_them(rail_only: tuple[Compared, ...]):
    assert not [row for row in rail_only if row.section.startswith("figure")]
    assert compare_statements(load_paper("titan")) == ()


def test_the_verdict_counts_what_agrees(rail_only: tuple[Compared, ...]):
    counts, headline = format_verdict(load_paper("rail-only"), rail_only)
    comparable = [row for row in rail_only if row.agrees is not None]
    assert counts.startswith(f"{sum(bool(row.agrees) for row in comparable)} of {len(comparable)} statements")
    assert "3 of the 6 rows of table II save nothing, the others 38%" in headline


@pytest.mark.parametrize("name", PAPERS)
def test_every_statement_has_a_quantity_and_a_place_in_the_paper(name: str):
    steps = {"step_change", "smaller_change", "share_of_falls", "change_difference", "step_rise", "nic_slowdown",
             "halving_growth"}  # fmt: skip
    for statement in load_paper(name)["statements"]:
        assert statement["quantity"] in {*QUANTITIES, *steps}
        assert statement["section"]
        assert all(len(row) == len(statement["columns"]) for row in statement.get("rows", ()))
