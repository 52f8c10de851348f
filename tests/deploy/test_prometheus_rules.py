"""Do the rules do what they say, and does each have a case that shows it?"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.prometheus import dcgm_names, foreign, from_dcgm, from_node_exporter
from opsk.hardware.xids import xid
from tests.fakes.node_exporter import PORT_NAMES
from tests.fakes.prometheus_server import RARE_COLLECTIONS

CASES = Path(__file__).parent / "rules"
FILES = {
    "alerts.test.yml": "opsk-alerts.yml",
    "rules.test.yml": "opsk-rules.yml",
    "from_dcgm.test.yml": "opsk-from-dcgm.yml",
    "from_node_exporter.test.yml": "opsk-from-node-exporter.yml",
    "from_slurm_exporter.test.yml": "opsk-from-slurm-exporter.yml",
}
RULES = tuple(FILES.values())
SEVERITIES = {"critical", "warning", "info"}


def promtool(*arguments: str | Path) -> str:
    """Run promtool; what it says when it is content."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool (Debian package prometheus) is not installed")
    environment = {**os.environ, **RARE_COLLECTIONS}
    done = subprocess.run(
        [program, *arguments], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def rules(root: Path, name: str) -> list[dict[str, Any]]:
    """All rules of a file."""
    document = yaml.safe_load((root / "deploy" / "prometheus" / name).read_text(encoding="utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


def expressions(name: str) -> str:
    """Everything that a file of cases asks and expects."""
    document = yaml.safe_load((CASES / name).read_text(encoding="utf-8"))
    found = []
    for test in document["tests"]:
        for check in test["promql_expr_test"]:
            found += [check["expr"], *(sample["labels"] for sample in check["exp_samples"])]
    return "\n".join(found)


@pytest.mark.parametrize("cases", FILES)
def test_cases_hold(cases: str) -> None:
    assert "SUCCESS" in promtool("test", "rules", CASES / cases)


@pytest.mark.parametrize("name", RULES)
def test_prometheus_accepts_the_rules(root: Path, name: str) -> None:
    promtool("check", "rules", root / "deploy" / "prometheus" / name)


@pytest.mark.parametrize(("cases", "name"), FILES.items())
def test_every_rule_has_a_case(root: Path, cases: str, name: str) -> None:
    text = expressions(cases)
    for rule in rules(root, name):
        if "record" in rule:
            labels = [f'{key}="{value}"' for key, value in rule.get("labels", {}).items()]
            asked = [line for line in text.split("\n") if rule["record"] in line or line.startswith("{")]
            assert any(all(label in line for label in labels) for line in asked), (rule["record"], labels)
        else:
            fired = [line for line in text.split("\n") if f'ALERTS{{alertname="{rule["alert"]}",' in line]
            assert any(f'severity="{rule["labels"]["severity"]}"' in line for line in fired), rule["alert"]


def test_every_alert_has_a_case_in_which_it_is_quiet(root: Path) -> None:
    document = yaml.safe_load((CASES / "alerts.test.yml").read_text(encoding="utf-8"))
    quiet = {test["name"] for test in document["tests"] if not test["promql_expr_test"][0]["exp_samples"]}
    assert quiet == {f"{rule['alert']} is quiet" for rule in rules(root, "opsk-alerts.yml")}


def test_alerts_say_what_to_do(root: Path) -> None:
    fired = expressions("alerts.test.yml")
    for rule in rules(root, "opsk-alerts.yml"):
        assert rule["labels"]["severity"] in SEVERITIES, rule["alert"]
        assert set(rule["annotations"]) == {"summary", "description", "runbook"}, rule["alert"]
        # What a text names must be a label that the alert has when it fires.
        line = next(line for line in fired.split("\n") if f'="{rule["alert"]}",' in line and "severity=" in line)
        named = set(re.findall(r"\$labels\.([a-z_]+)", "".join(rule["annotations"].values())))
        optional = {"source"} if rule["alert"] == "OpskDataStale" else set()
        assert named - optional <= set(re.findall(r"([a-z_]+)=", line)), rule["alert"]
        assert re.fullmatch(r"(?:[A-Z]|\{\{).{9,99}", rule["annotations"]["summary"]), rule["alert"]


def test_written_rules_are_up_to_date(root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "deploy.prometheus.foreign", "--check"],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_for_other_exporters_are_as_the_infiniband_collector_has_them() -> None:
    # The table of the tests was compared with a real node_exporter, value by value.
    for ours, theirs in from_node_exporter.PORTS.items():
        assert PORT_NAMES[theirs] == ours


def test_classes_of_xids_are_those_of_the_catalogue() -> None:
    for name, codes in from_dcgm.xid_class_codes().items():
        assert {xid(code).class_.value for code in codes} == {name}


def test_new_names_of_dcgm_are_base_units() -> None:
    for value in dcgm_names.DCGM:
        if value.factor != 1 and value.new:
            assert value.new.endswith(("_RATIO", "_BYTES", "_HERTZ", "_JOULES_TOTAL")), value


def test_files_are_named_as_the_table_names_them(root: Path) -> None:
    assert {path.name for path in (root / "deploy" / "prometheus").glob("opsk-from-*.yml")} == set(foreign.FILES)
