"""Does a summary of the audit log count what was asked and answered, whatever stands in the file?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from opsk.errors import InputError
from opsk_jobcheck.records.audit import audit_summary, render_summary, summarise_records
from opsk_jobcheck.service.advisor_command import advisor


def line(second: int, **fields: object) -> str:
    return json.dumps({"time": f"2026-01-01T00:00:{second:02}.000+00:00", **fields})


LINES = [
    line(1, kind="advise", uid=1, status="advice", verdict="fits", took_ms=10.0, queue_ms=0.1, think_ms=8.0),
    line(2, kind="shown", uid=1, took_ms=0.1),
    line(3, kind="submit", uid=0, for_uid=1, status="advice", verdict="oom", took_ms=2.0, enforced="hold",
         policy={"rule": 1, "action": "hold"}),
    line(4, kind="submit", uid=0, for_uid=2, status="later", took_ms=14.0, policy={"rule": 0, "action": "advise"}),
    line(5, uid=3, refused="not JSON", lost_before=7),
]  # fmt: skip


def test_everything_is_counted() -> None:
    summary = summarise_records(LINES)
    assert (summary["records"], summary["users"], summary["lost"], summary["unreadable"]) == (5, 3, 7, 0)
    assert summary["kinds"] == {"submit": 2, "advise": 1, "shown": 1, "refused": 1}
    assert summary["verdicts"] == {"fits": 1, "oom": 1}
    assert summary["statuses"] == {"advice": 2, "later": 1}
    assert summary["actions"] == {"hold": 1, "advise": 1}
    assert summary["enforced"] == {"hold": 1}
    assert summary["first"] < summary["last"]
    assert summary["times"]["submit"]["took_ms"] == {"median": 14.0, "p90": 14.0, "p99": 14.0, "max": 14.0}


def test_what_is_no_record_is_counted_and_passed_over() -> None:
    summary = summarise_records([*LINES, "half a li", "[" * 100_000, "[]", "{}", "\n"])
    assert (summary["records"], summary["unreadable"]) == (5, 4)


def test_an_empty_log_has_an_empty_summary() -> None:
    assert summarise_records([])["records"] == 0
    assert render_summary(summarise_records([]))


def test_hostile_words_do_not_reach_the_terminal() -> None:
    hostile = line(1, kind="\x1b[31m", status="a\nb", verdict="\u202e", took_ms=1)
    assert all(row.isprintable() for row in render_summary(summarise_records([hostile])))


def test_many_different_words_are_bounded() -> None:
    summary = summarise_records(line(1, kind=f"kind {number}") for number in range(1000))
    assert len(summary["kinds"]) <= 65


@given(st.lists(st.dictionaries(st.sampled_from(["time", "kind", "uid", "took_ms", "policy", "lost_before"]),
                                st.none() | st.booleans() | st.floats() | st.text() | st.integers())))  # fmt: skip
def test_no_record_raises(records: list[dict[str, object]]) -> None:
    render_summary(summarise_records(json.dumps(record) for record in records))


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        audit_summary(tmp_path / "none")


def test_the_command_prints_it(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_text("\n".join(LINES))
    text = CliRunner().invoke(advisor, ["--audit-summary", str(path)], catch_exceptions=False)
    assert "5 records of 3 users" in text.output
    assert "enforced  hold 1" in text.output
    document = CliRunner().invoke(advisor, ["--audit-summary", str(path), "--json"], catch_exceptions=False)
    assert json.loads(document.output)["records"] == 5


def test_a_log_that_somebody_has_tampered_with_is_summed_up_in_a_screenful(tmp_path: Path) -> None:
    """Numbers that Python prints no more, thousands of kinds, a line without end: counted, or left out."""
    log = tmp_path / "audit.jsonl"
    rows = [{"time": "t", "kind": f"\x1b[31m{number} " * 99, "took_ms": 1.0} for number in range(500)]
    rows += [{"time": "t", "lost_before": int("9" * 4000), "took_ms": int("9" * 4000)}] * 3
    text = "\n".join(json.dumps(row) for row in rows)
    log.write_text(f"{text}\n{'[' * (3 << 20)}\n{{'no': json}}\n")
    summary = audit_summary(log)
    assert summary["records"] == 503
    assert summary["lost"] == 0
    lines = render_summary(summary)
    assert len(lines) < 200
    assert all(line.isprintable() and len(line) < 9000 for line in lines)
