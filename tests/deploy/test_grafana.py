"""Do the dashboards show what they promise, each panel in its place, and does every query have data?"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models import dashboard as models

from deploy.grafana import generate
from deploy.grafana.dashboards import ALL
from deploy.grafana.sketch import DARK, LIGHT, draw
from deploy.grafana.sketch_data import Source, format_value
from tests.fakes.lab_node import IDLE, NODES, TRAINING
from tests.fakes.prometheus_server import LabPrometheus, lab_prometheus, programs

VARIABLES = {"$cluster": ".*", "$node": ".*", "$job": TRAINING}
MAY_BE_EMPTY = {
    ("opsk-cluster", "Alerts"): "no alert fires in the lab: Prometheus evaluates alerts for the present only",
    ("opsk-exporters", "Exporters down"): "all exporters of the lab answer",
    ("opsk-gpu-health", "Memory cannot be repaired"): "no GPU of the lab is worn out",
    ("opsk-gpu-health", "Not sound in NVLink domain"): "all GPUs of the lab have joined their domain",
    ("opsk-job", "GPUs idle"): "the job that the panels show uses all its GPUs",
    ("opsk-power", "Nodes over budget"): "no node of the lab draws as much as 8 H100s",
}
"""Panels whose query gives 0 or nothing in the lab, and why that is right."""
ADDED_TO_ANNOTATIONS = ("titleFormat", "textFormat", "useValueForTime", "step")
"""What Grafana has for annotations from Prometheus, and the SDK's class has not."""


def dashboards() -> dict[str, dict[str, Any]]:
    """All dashboards as they are in the repository."""
    return {uid: json.loads((generate.HERE / f"{uid}.json").read_text(encoding="utf-8")) for uid in ALL}


DASHBOARDS = dashboards()


def panels(uid: str) -> list[dict[str, Any]]:
    """The panels of a dashboard, without titles of rows."""
    return [panel for panel in DASHBOARDS[uid]["panels"] if panel["type"] != "row"]


def every_panel() -> Iterator[tuple[str, dict[str, Any]]]:
    for uid in DASHBOARDS:
        for panel in panels(uid):
            yield uid, panel


def named(uid: str, panel: dict[str, Any]) -> str:
    return f"{uid}: {panel['title']}"


PANELS = list(every_panel())
IDS = [named(uid, panel) for uid, panel in PANELS]


@pytest.fixture(scope="module")
def lab(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabPrometheus]:
    """A Prometheus with half an hour of the made-up cluster."""
    if programs() is None:
        pytest.skip("prometheus (Debian package prometheus) is not installed")
    rules = (root / "deploy" / "prometheus" / "opsk-rules.yml",)
    with lab_prometheus(tmp_path_factory.mktemp("lab"), rules) as running:
        yield running


def source(lab: LabPrometheus) -> Source:
    return Source(lab.url, lab.start_unix_s, lab.end_unix_s, variables=VARIABLES)


def test_files_are_what_the_code_makes(root: Path) -> None:
    command = [sys.executable, "-m", "deploy.grafana.generate", "--check"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path.stem for path in (root / "deploy" / "grafana").glob("*.json")} == set(ALL)


@pytest.mark.parametrize("uid", ALL)
def test_the_schema_of_the_sdk_knows_all_of_it(uid: str) -> None:
    register_default_plugins()
    said = json.loads(json.dumps(DASHBOARDS[uid]))
    for annotation in said["annotations"]["list"]:
        for name in ADDED_TO_ANNOTATIONS:
            del annotation[name]
    read = models.Dashboard.from_json(said)
    assert json.loads(json.dumps(read, cls=JSONEncoder)) == said


@pytest.mark.parametrize("uid", ALL)
def test_panels_do_not_overlap_and_fill_24_columns(uid: str) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in DASHBOARDS[uid]["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        for cell in itertools.product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])):
            assert cell not in taken, f"{panel['title']} lies on {taken[cell]}"
            taken[cell] = panel["title"]
    lines = {y for _x, y in taken}
    assert len(taken) == 24 * len(lines), "a gap"
    assert lines == set(range(max(lines) + 1))


@pytest.mark.parametrize(("uid", "panel"), PANELS, ids=IDS)
def test_a_panel_has_unit_description_and_legend(uid: str, panel: dict[str, Any]) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    assert defaults["unit"]
    assert defaults["thresholds"]["steps"][0].get("value") is None
    assert len(panel["description"]) >= 25
    assert panel["description"].endswith(".")
    assert defaults["noValue"]
    assert panel["datasource"]["uid"] == "${datasource}"
    if panel["type"] in ("timeseries", "status-history"):
        assert panel["options"]["legend"]["showLegend"]
        assert all(target["legendFormat"] != "__auto" for target in panel["targets"])
    references = [target["refId"] for target in panel["targets"]]
    assert len(references) == len(set(references)) > 0


def test_titles_and_numbers_of_panels_are_unique() -> None:
    for uid, said in DASHBOARDS.items():
        numbers = [panel["id"] for panel in said["panels"]]
        assert len(numbers) == len(set(numbers)), uid
        keys = [(panel["title"], panel["type"]) for panel in panels(uid)]
        assert len(keys) == len(set(keys)), uid


def test_links_lead_to_dashboards_that_there_are() -> None:
    text = json.dumps(list(DASHBOARDS.values()))
    linked = set(re.findall(r"/d/([a-z-]+)", text))
    assert "opsk-job" in linked
    assert linked <= set(ALL)
    assert all(said["tags"] == ["opsk"] and said["links"][0]["tags"] == ["opsk"] for said in DASHBOARDS.values())


def test_every_metric_is_one_that_the_exporter_has(root: Path) -> None:
    page = (root / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    known = set(re.findall(r"`(opsk_[a-z0-9_]+)`", page))
    rules = root / "deploy" / "prometheus"
    records = set(re.findall(r"record: (opsk:\S+)", (rules / "opsk-rules.yml").read_text(encoding="utf-8")))
    asked = "\n".join(target["expr"] for _uid, panel in PANELS for target in panel["targets"])
    for name in ("opsk-rules.yml", "opsk-alerts.yml"):
        asked += "\n" + "\n".join(re.findall(r"^\s+expr:.*(?:\n\s{10,}.*)*", (rules / name).read_text("utf-8"), re.M))
    for name in set(re.findall(r"\bopsk_[a-z0-9_]+", asked)):
        assert name in known, name
    assert set(re.findall(r"\bopsk:[a-z0-9_:]+", asked)) <= records


@pytest.mark.parametrize(("uid", "panel"), PANELS, ids=IDS)
def test_every_query_has_data(lab: LabPrometheus, uid: str, panel: dict[str, Any]) -> None:
    asked = source(lab)
    for target in panel["targets"]:
        # What stands for nothing (or vector(0)) would hide that there is no data.
        expr = asked.fill_variables(target["expr"]).removesuffix(" or vector(0)")
        found = lab.now(expr) if target["instant"] else lab.over_time(expr)
        if (uid, panel["title"]) not in MAY_BE_EMPTY:
            assert found, expr


def test_panels_that_may_be_empty_are_there() -> None:
    assert {(uid, panel["title"]) for uid, panel in PANELS} >= MAY_BE_EMPTY.keys()


@pytest.mark.parametrize("uid", ALL)
def test_annotations_and_variables_have_data(lab: LabPrometheus, uid: str) -> None:
    asked = source(lab)
    for annotation in DASHBOARDS[uid]["annotations"]["list"]:
        found = lab.over_time(asked.fill_variables(annotation["expr"]))
        # The value is the time of the mark in milliseconds.
        times = [float(value) / 1000 for series in found for _at, value in series["values"]]
        assert times, annotation["name"]
        assert all(lab.start_unix_s - 3600 <= at <= lab.end_unix_s for at in times), annotation["name"]
        labels = set(re.findall(r"\{\{(\w+)\}\}", annotation["titleFormat"] + annotation["textFormat"]))
        assert labels <= set(found[0]["metric"])
    expected = {"cluster": {"lab"}, "node": set(NODES), "job": {TRAINING, IDLE, "4713"}}
    for variable in DASHBOARDS[uid]["templating"]["list"]:
        if variable["type"] == "query":
            match = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
            assert match is not None
            values = lab.ask(f"label/{match[2]}/values", **{"match[]": asked.fill_variables(match[1])})
            assert set(values) == expected[variable["name"]]


def test_the_straggler_of_the_lab_stands_first(lab: LabPrometheus) -> None:
    panel = next(panel for panel in panels("opsk-job") if panel["title"].startswith("Clock against"))
    found = source(lab).series(panel["targets"][0])
    assert found[0].name == "node2 GPU 1"
    # 1.41 of 1.98 GHz
    assert found[0].last == pytest.approx(1.41 / 1.98)
    assert [series.last for series in found[1:]] == pytest.approx([1.0] * 7)


def test_a_lost_gpu_keeps_its_index_beside_its_xid(lab: LabPrometheus) -> None:
    panel = next(panel for panel in panels("opsk-gpu-health") if panel["title"] == "XIDs, by GPU")
    found = {
        (series.labels["node"], series.labels.get("index"), series.labels["xid"]): series.last
        for series in source(lab).series(panel["targets"][0])
    }
    assert found == {("node4", "3", "79"): 1.0, ("node4", "0", "94"): 1.0, ("node3", "0", "31"): 3.0}


@pytest.mark.parametrize("uid", ALL)
def test_a_sketch_shows_every_panel(lab: LabPrometheus, uid: str) -> None:
    for theme in (DARK, LIGHT):
        picture = draw(DASHBOARDS[uid], source(lab), theme)
        texts = [element.text or "" for element in ET.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")]
        for panel in panels(uid):
            assert any(text.rstrip("…") and panel["title"].startswith(text.rstrip("…")) for text in texts), panel[
                "title"
            ]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.4567, "percentunit", "45.7 %"),
        (6543.0, "watt", "6.543 kW"),
        (3 * 2**30, "bytes", "3 GiB"),
        (5400.0, "s", "1.5 h"),
        (0.02, "s", "20 ms"),
        (71.0, "celsius", "71.0 °C"),
        (4.0, "none", "4"),
        (float("nan"), "watt", ""),
    ],
)
def test_numbers_are_written_with_their_unit(value: float, unit: str, text: str) -> None:
    assert format_value(value, unit) == text


def test_provisioning_files_name_what_there_is(root: Path) -> None:
    folder = root / "deploy" / "grafana" / "provisioning"
    provider = yaml.safe_load((folder / "dashboards.yml").read_text(encoding="utf-8"))["providers"][0]
    assert provider["type"] == "file"
    assert provider["options"]["path"].startswith("/")
    kinds = [each["type"] for each in yaml.safe_load((folder / "datasources.yml").read_text("utf-8"))["datasources"]]
    assert kinds == ["prometheus"]
