"""Do the dashboards have data where real exporters of a lab are scraped: real Slurm, a real log, devices of its nodes?

``tests/deploy/test_grafana.py`` asks the same queries of half an hour that is made up, with more faults and by the
collectors' own code, but with some series written by hand (power, training, slurm, the exporter's own), because time
has to pass there as the test wants. Here none is, and it is checked that real exporters give all of those, with these
names and labels.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.grafana import generate
from deploy.grafana.dashboards import ALL
from deploy.grafana.sketch_data import Source
from opsk.lab.programs import find_missing
from tests.fakes.lab_cluster import Scraped
from tests.fakes.lab_node import NODES, Moment, Node
from tests.fakes.prometheus_server import LabPrometheus, programs
from tests.fakes.watched_lab import (
    IDLES,
    OPSK,
    PREDICTED,
    TRAIN,
    WAITS,
    WATCHED,
    WatchedLab,
    await_that,
    watched_lab_up,
)

pytestmark = [pytest.mark.slurm, pytest.mark.fabric, pytest.mark.timeout(400)]

GPUS = 4
"""GPUs of a node of the lab."""
SCRAPED_FOR_S = 60.0
LATE_S = 120.0
"""On a machine with too much to do exporters are scraped late, and a rate wants two scrapes after the fault."""
EMPTY = {
    ("opsk-cluster", "Jobs with GPUs"): "a GPU has to idle for 15 minutes before it is called idle",
    ("opsk-fabric", "Ports with errors"): "a link that was taken away makes no errors that go on",
    ("opsk-gpu-health", "Banks without spare rows"): "one remapped row uses up no bank",
    ("opsk-gpu-health", "GPUs with processes of no job"): "nobody else uses the lab's GPUs",
    ("opsk-gpu-health", "PCIe replays and errors"): "the lab breaks no PCIe link",
    ("opsk-gpu-health", "Services of the NVLink fabric"): "services are this machine's: it has no Fabric Manager",
    ("opsk-gpu-health", "Slowed down by heat"): "the lab's GPUs are cool",
    ("opsk-job", "GPUs idle"): "as above",
    ("opsk-job", "Throttling"): "what holds the lab's jobs back is power, which has a panel of its own",
    ("opsk-power", "GPUs with a lower power limit than default"): "the lab changes no limit",
    ("opsk-power", "Nodes over budget"): "the nodes draw less than eight H100s may",
    ("opsk-power", "Nodes that draw most"): "the budget is a line for sites that have set one",
    ("opsk-exporters", "Collectors that fail"): "none does",
    ("opsk-exporters", "Exporters down"): "none is",
    ("opsk-exporters", "Failures"): "there were none",
    ("opsk-exporters", "Values that could not be read"): "all can",
}
"""Panels of which a query gives nothing in this lab, and why that is right; all others must have data."""


@pytest.fixture(scope="module")
def lab() -> Iterator[WatchedLab]:
    """A lab with jobs and faults, scraped for a minute."""
    if absent := find_missing():
        pytest.skip("not installed: " + ", ".join(f"{name} (package {package})" for name, package in absent.items()))
    if programs() is None:
        pytest.skip("prometheus (Debian package prometheus) is not installed")
    top = Path(tempfile.mkdtemp(prefix="opsk-test-"))
    top.chmod(0o755)
    try:
        yield _busy_and_broken(watched_lab_up(top))
    finally:
        subprocess.run([*OPSK, "lab", "down", "--purge", "--dir", str(top / "lab")], check=True, timeout=120)


def _busy_and_broken(lab: WatchedLab) -> WatchedLab:
    train = lab.submit("train", TRAIN)
    assert train == "1"
    lab.submit("idles", IDLES)
    lab.submit("waits", WAITS)
    words = ["scontrol", "update", f"job={train}", f"admincomment={PREDICTED}"]
    subprocess.run(words, env=dict(lab.environment), check=True, timeout=60)
    jobs = Path(lab.status["devices"]["n0"]) / "jobs"
    key = f"{lab.status['cluster']}.{train}"
    await_that("the job is on its nodes", (jobs / key).exists)
    # The file with bounds is a site's to write; see `opsk_exporters.jobs.training`.
    (jobs / f"{key}.advice").write_text(PREDICTED, encoding="ascii")
    await_that("its log is read", lambda: "opsk_training_step_seconds{" in lab.page("n0"))
    # A GPU that is lost before its exporter saw it has no UUID, and its series is named by its index.
    await_that("all GPUs have answered", lambda: all(_count_gpus_up(lab.page(node)) == GPUS for node in WATCHED))
    time.sleep(5.0)  # a rate wants two scrapes before the GPUs are lost
    for words in (
        ("gpu", "n1", "3"), ("gpu", "n0", "3", "--xid", "94"), ("gpu", "n0", "2", "--xid", "64"),
        ("gpu", "n0", "1", "--xid", "74"), ("nic", "n1", "3"), ("domain", "n1"),
    ):  # fmt: skip
        lab.opsk("break", *words)
    time.sleep(max(0.0, lab.started_unix_s + SCRAPED_FOR_S - time.time()))
    await_that("rules are evaluated", lambda: bool(lab.prometheus.now("opsk:job_power:watts")))
    # The panel of energy adds up full minutes; where the lab took long to come up, none has data yet.
    minutes = "sum_over_time(opsk:node_power:watts[10m:1m])"
    await_that("a full minute has data", lambda: bool(lab.prometheus.now(minutes)))
    return lab


def _count_gpus_up(page: str) -> int:
    """Return how many GPUs of a scraped page answer."""
    return sum(line.startswith("opsk_gpu_up{") and line.endswith(" 1.0") for line in page.splitlines())


def panels() -> Iterator[tuple[str, dict[str, Any]]]:
    for uid in ALL:
        page = json.loads((generate.HERE / f"{uid}.json").read_text(encoding="utf-8"))
        yield from ((uid, panel) for panel in page["panels"] if panel["type"] != "row")


PANELS = list(panels())


def answers(prometheus: LabPrometheus, panel: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """What each query of a panel gives, by its text."""
    asked = Source(
        prometheus.url, prometheus.start_unix_s, prometheus.end_unix_s, step_s=15.0,
        variables={"$cluster": ".*", "$node": ".*", "$job": "1"},
    )  # fmt: skip
    found = {}
    for target in panel["targets"]:
        # What stands for nothing (or vector(0)) would hide that there is no data.
        expr = asked.fill_variables(target["expr"]).removesuffix(" or vector(0)")
        found[expr] = prometheus.now(expr) if target["instant"] else prometheus.over_time(expr, 5.0)
    return found


@pytest.mark.parametrize(("uid", "panel"), PANELS, ids=[f"{uid}: {panel['title']}" for uid, panel in PANELS])
def test_every_query_has_data_of_real_exporters(lab: WatchedLab, uid: str, panel: dict[str, Any]) -> None:
    found = answers(lab.prometheus, panel)
    if (uid, panel["title"]) in EMPTY:
        return
    end = time.monotonic() + LATE_S
    while not all(found.values()) and time.monotonic() < end:
        time.sleep(2.0)
        found = answers(lab.prometheus, panel)
    assert [expr for expr, series in found.items() if not series] == []


def test_panels_that_may_be_empty_are_there() -> None:
    assert {(uid, panel["title"]) for uid, panel in PANELS} >= EMPTY.keys()


def shape(series: str) -> tuple[str, frozenset[str]]:
    """Name and labels' names of a series in a page."""
    name, _, inside = series.rpartition(" ")[0].partition("{")
    return name, frozenset(label.partition("=")[0] for label in inside.removesuffix("}").split(",") if label)


def test_what_the_made_up_cluster_has_by_hand_real_exporters_say_in_the_same_words(lab: WatchedLab) -> None:
    said = {shape(line) for node in WATCHED for line in lab.page(node).splitlines() if not line.startswith("#")}
    moment = Moment(time.time(), step=55)
    by_hand = set(
        itertools.chain.from_iterable(
            map(shape, Scraped(Node(number, moment))._by_hand()) for number in range(len(NODES))
        )
    )
    assert by_hand - said == set()


def test_faults_of_the_lab_raise_their_alerts(lab: WatchedLab) -> None:
    def raised() -> set[tuple[str, str]]:
        alerts = lab.prometheus.ask("alerts")["alerts"]
        return {(alert["labels"]["alertname"], alert["labels"].get("node", "")) for alert in alerts}

    expected = {
        ("OpskGpuLost", "n1"),
        ("OpskInfinibandPortDown", "n1"),
        ("OpskNvlinkDown", "n1"),
        ("OpskRowRemapPending", "n0"),
        ("OpskXidDrain", "n0"),
        ("OpskXidDrain", "n1"),
    }
    await_that(f"{expected} are raised", lambda: raised() >= expected)


def test_a_prometheus_knows_nodes_by_their_names(lab: WatchedLab) -> None:
    found = lab.prometheus.now("up")
    assert {(series["metric"]["cluster"], series["metric"]["node"], series["value"][1]) for series in found} == {
        (lab.status["cluster"], "n0", "1"), (lab.status["cluster"], "n1", "1")
    }  # fmt: skip


def test_ports_of_the_lab_have_the_rails_of_its_subnet(lab: WatchedLab) -> None:
    found = lab.prometheus.now('opsk_infiniband_port_info{node="n0"}')
    assert {(series["metric"]["device"], series["metric"]["rail"], series["metric"]["leaf"]) for series in found} == {
        (f"mlx5_{rail}", str(rail), f"leaf{rail}") for rail in range(4)
    }


def test_a_repaired_gpu_answers_in_the_next_scrape(lab: WatchedLab) -> None:
    def up() -> list[float]:
        """Return the value of each series; none where Prometheus has not scraped the node within its look-back."""
        return [float(series["value"][1]) for series in lab.prometheus.now('opsk_gpu_up{node="n1",gpu=~".*003"}')]

    await_that("the GPU that was broken does not answer", lambda: up() == [0.0])
    lab.opsk("repair", "gpu", "n1", "3")
    await_that("the GPU answers again", lambda: up() == [1.0])
