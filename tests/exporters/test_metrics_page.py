"""Do all metrics keep to one discipline, does Prometheus' linter like them all, and does the page say them all?"""

from __future__ import annotations

import ast
import re
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from opsk_exporters.catalogue import COLLECTORS
from opsk_exporters.core.collector import Scraper
from opsk_exporters.core.exposition import Writer
from opsk_exporters.core.server import build_registry
from tests.fakes.every_metric import every_collector, every_node

ROOT = Path(__file__).resolve().parents[2]
NAME = re.compile(r"opsk_[a-z0-9]+(?:_[a-z0-9]+)*")
NOT_BASE_UNITS = re.compile(r"_(ms|milliseconds|minutes|hours|mb|gb|mib|gib|kib|bits|milliwatts|kwh|mhz|percent)(_|$)")
HOSTILE_LABELS = {"path", "file", "timestamp", "time", "exe", "cmdline", "command", "uuid", "pid"}
"""Labels whose values nobody can count, or that would be another word for what other series call otherwise."""


@pytest.fixture(autouse=True)
def own_procfs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the next test psutil's own place of procfs back."""
    monkeypatch.setattr("psutil.PROCFS_PATH", "/proc")


@pytest.fixture(scope="module")
def generator() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs" / "programs" / "metrics.py"))


@pytest.fixture(scope="module")
def metrics(generator: dict[str, Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = generator["metrics"]()
    return found


@pytest.fixture
def scrape(tmp_path: Path) -> str:
    """A whole scrape of a node that has everything, at its second look."""
    scraper = Scraper(every_collector(every_node(tmp_path)), deadline_s=30.0)
    scraper.scrape()
    assert scraper.scrape().failed == ()
    return Writer().text(build_registry(scraper).collect()).decode("utf-8")


def test_prometheus_linter_likes_the_whole_scrape(scrape: str) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool (Debian package prometheus) is not installed")
    done = subprocess.run(
        [promtool, "check", "metrics"], input=scrape, capture_output=True, text=True, timeout=60, check=False
    )
    # The exporter's own process metrics are prometheus_client's.
    said = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("opsk_exporter_process_")]
    assert said == []
    assert all(f'opsk_collector_success{{collector="{name}"}} 1.0' in scrape for name in COLLECTORS)


def test_a_family_is_written_once_though_two_collectors_fill_it(scrape: str) -> None:
    types = [line for line in scrape.splitlines() if line.startswith("# TYPE ")]
    assert len(types) == len(set(types))
    both = [line for line in scrape.splitlines() if line.startswith("opsk_gpu_power_watts{")]
    assert len(both) > 2


def test_no_series_comes_twice(scrape: str) -> None:
    series = [line.rpartition(" ")[0] for line in scrape.splitlines() if not line.startswith("#")]
    assert sorted(series) == sorted(set(series))


def test_names_units_labels_and_help_texts_keep_to_the_rules(metrics: dict[str, list[Any]]) -> None:
    wrong = []
    for collector, named in metrics.items():
        for each in named:
            if each.name.startswith("opsk_exporter_process_"):
                continue
            rules = (
                ("name", NAME.fullmatch(each.name)),
                ("_total", each.name.endswith("_total") == (each.kind == "counter")),
                ("_info", each.name.endswith("_info") == (each.kind == "info")),
                ("unit", not NOT_BASE_UNITS.search(each.name)),
                ("help", each.help_text.endswith(".") and len(each.help_text) > 3),
                ("labels", not HOSTILE_LABELS.intersection(each.labels) or each.kind == "info"),
            )
            wrong += [f"{collector}: {each.name}: {rule}" for rule, kept in rules if not kept]
    assert wrong == []


def test_two_collectors_mean_the_same_by_one_metric(metrics: dict[str, list[Any]]) -> None:
    said: dict[str, set[tuple[str, frozenset[str], str]]] = {}
    for named in metrics.values():
        for each in named:
            said.setdefault(each.name, set()).add((each.kind, frozenset(each.labels), each.help_text))
    assert {name: ways for name, ways in said.items() if len(ways) > 1} == {}


def test_every_name_in_the_code_is_on_the_page(metrics: dict[str, list[Any]]) -> None:
    shown = {each.name for named in metrics.values() for each in named}
    missing = []
    for path in sorted((ROOT / "exporters" / "opsk_exporters").rglob("*.py")):
        for whole, name in names_in(path):
            if not (name in shown if whole else any(each.startswith(name) for each in shown)):
                missing.append(f"{path.name}: {name}")
    assert missing == []


def names_in(path: Path) -> list[tuple[bool, str]]:
    """Return names of metrics that a module writes down: whole ones, and beginnings of such as are put together."""
    found = []
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            if node.func.attr not in ("gauge", "counter", "info"):
                continue
            name = node.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                found.append((True, name.value))
            elif isinstance(name, ast.JoinedStr) and isinstance(name.values[0], ast.Constant):
                found.append((False, str(name.values[0].value)))
    return [(whole, name) for whole, name in found if name.startswith("opsk_")]


def test_the_page_is_as_the_collectors_say(generator: dict[str, Any]) -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    assert page == generator["page"](), "run python docs/programs/metrics.py"


def test_every_collector_has_a_section(generator: dict[str, Any]) -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    assert [name for name in COLLECTORS if f"\n## {name}\n\n{generator['SOURCES'][name]}\n" not in page] == []
