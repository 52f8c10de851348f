"""Does an audit that looked nothing up say so, and does a hole end it?

The documents have the form of pip-audit 2.10's ``--format=json``: a package that the database does not know has
``skip_reason`` instead of ``version`` and ``vulns``, and pip-audit itself then ends with 0 and "No known
vulnerabilities found".
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from deploy.packages import audit
from deploy.packages.audit import Audit, compute_status, format_report, parse_pins, parse_report

BAD = {"name": "django", "version": "1.11", "vulns": [{"id": "PYSEC-2019-13"}]}


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What each database answers: a list of packages, or text that is no JSON."""
    said: dict[str, Any] = {}

    def run(words: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        answer = said.get(words[words.index("-s") + 1], "")
        out = answer if isinstance(answer, str) else json.dumps({"dependencies": answer, "fixes": []})
        return subprocess.CompletedProcess(words, 0, out, "connection refused\n" if not out else "")

    monkeypatch.setattr(audit.subprocess, "run", run)
    return said


def test_every_pin_of_the_lock_is_asked_about(root: Path) -> None:
    text = (root / "requirements.lock").read_text(encoding="utf-8")
    heads = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
    assert len(parse_pins(text)) == len(heads) > 50
    assert audit.KNOWN_BAD[0] not in dict(parse_pins(text))


def test_what_was_skipped_was_not_looked_up() -> None:
    document = {"dependencies": [{"name": "alembic", "skip_reason": "not found on PyPI"}, BAD]}
    assert parse_report(document) == {("django", "1.11"): ("PYSEC-2019-13",)}


def test_a_mirror_that_knows_no_hole_of_anything_is_not_believed(answers: dict[str, Any]) -> None:
    answers["pypi"] = [{"name": "numpy", "version": "2.0", "vulns": []}, {**BAD, "vulns": []}]
    found = audit.audit([("numpy", "2.0")])
    assert found.unknown == (("numpy", "2.0"),)
    assert compute_status(found, skip_offline=False) == audit.NOT_LOOKED_UP
    assert "NOT LOOKED UP: 1 of 1" in format_report(found, 1)[0]


def test_without_a_database_nothing_is_called_sound(answers: dict[str, Any]) -> None:
    found = audit.audit([("numpy", "2.0")])
    text = "\n".join(format_report(found, 1))
    assert "no known hole" not in text
    assert "connection refused" in text
    assert compute_status(found, skip_offline=False) == audit.NOT_LOOKED_UP
    assert compute_status(found, skip_offline=True) == audit.SOUND


def test_the_second_database_is_asked_for_what_the_first_does_not_know(answers: dict[str, Any]) -> None:
    answers["pypi"] = [{"name": "numpy", "version": "2.0", "vulns": []}, {"name": "alembic", "skip_reason": "?"}, BAD]
    answers["osv"] = [{"name": "alembic", "version": "1.0", "vulns": []}, BAD]
    pins = [("numpy", "2.0"), ("alembic", "1.0")]
    found = audit.audit(pins)
    assert found == Audit(holes={}, unknown=())
    assert format_report(found, 2) == ["audit: 2 pinned packages looked up, no known hole"]
    assert compute_status(found, skip_offline=False) == audit.SOUND


def test_a_hole_ends_it_also_where_others_were_not_looked_up(answers: dict[str, Any]) -> None:
    answers["pypi"] = [{"name": "numpy", "version": "2.0", "vulns": [{"id": "CVE-1"}, {"id": "CVE-2"}]}, BAD]
    found = audit.audit([("numpy", "2.0"), ("alembic", "1.0")])
    assert format_report(found, 2)[0] == "audit: HOLE in numpy==2.0: CVE-1, CVE-2"
    assert compute_status(found, skip_offline=True) == audit.HOLES


def test_versions_for_several_pythons_are_asked_about_one_after_the_other(answers: dict[str, Any]) -> None:
    answers["pypi"] = [{"name": "numpy", "version": version, "vulns": []} for version in ("1.26", "2.0")] + [BAD]
    assert audit.audit([("numpy", "1.26"), ("numpy", "2.0")]).unknown == ()
