"""Do queries of the dashboards give the right numbers where nodes tell different things, or come and go?"""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.grafana import generate
from deploy.grafana.dashboards import ALL
from deploy.grafana.sketch_data import Source

HOUR = Source("", 0.0, 3600.0, step_s=60.0, variables={"$cluster": ".*", "$node": ".*", "$job": "7"})


def queries(part: str) -> list[str]:
    """All queries of panels and marks that hold a text, each once, with values for the variables."""
    found = []
    for uid in ALL:
        page = json.loads((generate.HERE / f"{uid}.json").read_text(encoding="utf-8"))
        targets = itertools.chain.from_iterable(panel.get("targets", ()) for panel in page["panels"])
        found += [asked["expr"] for asked in itertools.chain(targets, page["annotations"]["list"]) if "expr" in asked]
    return [HOUR.fill_variables(expr) for expr in dict.fromkeys(found) if part in expr]


def holds(folder: Path, series: dict[str, str], checks: list[dict[str, Any]]) -> None:
    """Have promtool ask and compare."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool (Debian package prometheus) is not installed")
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": checks,
    }
    path = folder / "case.yml"
    path.write_text(yaml.safe_dump({"rule_files": [], "evaluation_interval": "1m", "tests": [test]}), encoding="utf-8")
    done = subprocess.run([program, "test", "rules", path], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_job_that_only_one_node_knows_by_name_has_that_name_and_spoils_no_other(tmp_path: Path) -> None:
    asked = [expr for expr in queries("opsk_job_info") if "quantile" not in expr]
    assert len(asked) >= 3
    info = 'opsk_job_info{cluster="c",node="%s",job="%s",user="u",account="x",partition="p",name="%s"}'
    series = {info % (node, "7", name): "1x5" for node, name in (("a", ""), ("b", "train"), ("d", ""))}
    series |= {info % ("a", "8", ""): "1x5", info % ("a", "9", "one"): "1x5", info % ("b", "9", "other"): "1x5"}
    for job in ("7", "8"):
        series |= {
            f'{metric}{{cluster="c",node="a",job="{job}",gpu="G{job}"}}': "2x5"
            for metric in ("opsk_job_energy_joules_total", "opsk_job_gpu", "opsk_job_start_time_seconds")
        }
    told = {
        "opsk_job_energy_joules_total": ('account="x",', 2),
        "opsk_job_gpu{": ('account="x",partition="p",', 1),
        "opsk_job_start_time_seconds": ("", 2000),
    }
    checks = []
    for expr in asked:
        [(labels, value)] = [said for metric, said in told.items() if metric in expr]
        samples = [
            {"labels": f'{{cluster="c",job="{job}",user="u",{labels}{name}}}', "value": value}
            for job, name in (("7", 'name="train"'), ("8", ""))
        ]
        checks.append({"expr": expr, "eval_time": "2m", "exp_samples": samples})
    holds(tmp_path, series, checks)


def test_a_node_that_was_there_for_a_part_of_the_time_used_energy_in_that_part(tmp_path: Path) -> None:
    [expr] = [expr for expr in queries("opsk:node_power:watts") if "over_time" in expr]
    # 1200 W in six minutes are 120 Wh, 600 W in five minutes 50 Wh.
    series = {
        'opsk:node_power:watts{cluster="c",node="late"}': "_x54 1200x5",
        'opsk:node_power:watts{cluster="c",node="gone"}': "600x4 stale _x60",
    }
    holds(tmp_path, series, [{"expr": expr, "eval_time": "59m30s", "exp_samples": [{"labels": "{}", "value": 170}]}])


def test_errors_of_predictions_count_each_job_once_by_its_median(tmp_path: Path) -> None:
    asked = [expr for expr in queries("opsk:job_step:ratio_of_predicted") if expr.startswith("quantile(0.5, abs")]
    by_user = [expr for expr in queries("opsk_job_info") if "quantile by (user)" in expr]
    # Job 1 takes as long as predicted, but for one stall, job 2 twice as long, job 3 1.6 times: 0, 50 and 37.5 % off.
    series = {
        'opsk:job_step:ratio_of_predicted{cluster="c",job="1"}': "1 1 9 1 1",
        'opsk:job_step:ratio_of_predicted{cluster="c",job="2"}': "2x4",
        'opsk:job_step:ratio_of_predicted{cluster="c",job="3"}': "1.6 1.6 stale _ _",
        'opsk_job_info{cluster="c",node="a",job="1",user="ada"}': "1x4",
        'opsk_job_info{cluster="c",node="b",job="1",user=""}': "1x4",
        'opsk_job_info{cluster="c",node="a",job="2",user="ada"}': "1x4",
        'opsk_job_info{cluster="c",node="a",job="3",user="emmy"}': "1 1 stale _ _",
    }
    checks = [
        {"expr": expr, "eval_time": "4m", "exp_samples": [{"labels": "{}", "value": 0.375}]} for expr in asked[:1]
    ]
    users = [{"labels": '{user="emmy"}', "value": 0.375}, {"labels": '{user="ada"}', "value": 0.25}]
    checks += [{"expr": expr, "eval_time": "4m", "exp_samples": users} for expr in by_user]
    assert len(checks) == 2
    holds(tmp_path, series, checks)
