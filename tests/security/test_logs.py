"""Can a user write lines into the log of a daemon, or fill it?"""

from __future__ import annotations

import json
import logging

import pytest

from opsk_jobcheck.records.recorder import filter_records

FORGED = "\nopsk advisor: records: ERROR the store was opened by root\x1b[2J"


def lines(count: int) -> list[str]:
    return [json.dumps({"kind": "measured", "job": "1", FORGED: number, "cluster": "c"}) for number in range(count)]


def test_no_record_of_a_user_begins_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    records = [*lines(1), FORGED, json.dumps({"kind": FORGED})]
    assert filter_records(records, cluster=lambda: "c", may=lambda _: True) == []
    told = [record.getMessage() for record in caplog.records]
    assert told
    assert all(line.isprintable() and len(line) < 1000 for line in told)


def test_a_thousand_bad_records_are_a_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    filter_records(lines(1000), cluster=lambda: "c", may=lambda _: True)
    assert 1 <= len(caplog.records) <= 5
    assert "997 more" in caplog.records[-1].getMessage()
