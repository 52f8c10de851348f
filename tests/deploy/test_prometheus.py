"""Does Prometheus take the scrape file, and does it fit the exporter?"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from opsk_exporters.core.collector import DEFAULT_DEADLINE_S
from opsk_exporters.core.server import DEFAULT_LISTEN, ListenAddress


def seconds(text: str, key: str) -> float:
    """Return a duration of the scrape file."""
    found = re.search(rf"^\s+{key}: ([0-9]+)s$", text, re.MULTILINE)
    assert found is not None
    return float(found[1])


def test_prometheus_accepts_the_scrape_file(root: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool (Debian package prometheus) is not installed")
    done = subprocess.run(
        [promtool, "check", "config", str(root / "deploy" / "prometheus" / "scrape.yml")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_scrape_waits_longer_than_a_collector_may_take(root: Path) -> None:
    text = (root / "deploy" / "prometheus" / "scrape.yml").read_text(encoding="utf-8")
    assert DEFAULT_DEADLINE_S < seconds(text, "scrape_timeout") <= seconds(text, "scrape_interval")


def test_unit_scrape_file_and_default_name_one_port(root: Path) -> None:
    port = ListenAddress.parse(DEFAULT_LISTEN).port
    for name in ("prometheus/scrape.yml", "systemd/opsk-exporter.service"):
        ports = re.findall(r":(\d{4,5})\b", (root / "deploy" / name).read_text(encoding="utf-8"))
        assert set(map(int, ports)) == {port}, name
