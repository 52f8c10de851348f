"""What the rail-only paper states, against what comes out; all stated numbers are the paper's."""

from __future__ import annotations

from opsk.network_design.paper import HEADLINE_DOMAIN, SERVER_DOMAIN, compare_paper, table_2


def test_all_six_rows_of_table_ii_come_out_with_domains_of_256():
    rows = list(table_2(HEADLINE_DOMAIN))
    assert len(rows) == 12
    assert all(row.agrees for row in rows)
    # 37.5 is printed as 37: cut, not rounded
    assert [row.stated for row in rows if row.what.endswith("cost saved")] == [0.38, 0.77, 0.62, 0.38, 0.38, 0.77]
    assert [row.stated for row in rows if row.what.endswith("power saved")] == [0.37, 0.75, 0.6, 0.37, 0.37, 0.75]


def test_with_servers_as_domains_half_of_the_rows_save_nothing():
    # 32,768 GPUs: 0 / 38.3 / 0 % at radix 64 / 128 / 256; 65,536: 0 / 38.3 / 38.3 %
    saved = [round(row.computed, 3) for row in table_2(SERVER_DOMAIN) if row.what.endswith("cost saved")]
    assert saved == [0.0, 0.383, 0.0, 0.0, 0.383, 0.383]
    assert {row.stated for row in table_2(SERVER_DOMAIN)} == {None}


def test_an_all_to_all_is_slower_by_the_ratio_of_rates():
    found = {row.what: row for row in compare_paper() if row.section == "section IV.B" and row.stated}
    assert {name: round(row.computed, 4) for name, row in found.items()} == {
        "DGX A100: all-to-all is slower by": 0.0833,
        "DGX H100: all-to-all is slower by": 0.1111,
    }
    assert [(row.stated, row.agrees) for row in found.values()] == [(0.082, True), (0.112, True)]


def test_most_of_an_all_reduce_stays_in_the_domain():
    # equation 1 for 32 x 2 GPUs: 31/32 against 1/64
    shares = [row for row in compare_paper() if row.section == "section III.B"]
    assert [(round(row.computed, 3), row.agrees) for row in shares] == [(0.984, True), (0.016, True)]


def test_what_does_not_come_out_is_said_to_differ():
    wrong = {row.what: row for row in compare_paper() if row.agrees is False}
    # three quarters of the switches in the text, three fifths in the table; no prices of the table make 200 M USD
    assert set(wrong) == {"switches that rail-only needs at radix 64", "30,000 GPUs in a full-bisection Clos"}
    assert all(row.why for row in wrong.values())
