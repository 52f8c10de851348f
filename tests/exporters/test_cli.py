"""Does ``opsk exporter`` do what it is told, and end when it is told?"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import pytest

from opsk_exporters.cli import COLLECTORS
from tests.fakes.procfs import write_procfs
from tests.fakes.sysfs import SysfsTree


def opsk(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(arguments), capture_output=True, text=True, timeout=120, check=False)


def command(arguments: Sequence[str | Path]) -> list[str]:
    return [sys.executable, "-m", "opsk", "exporter", *map(str, arguments)]


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    tree = SysfsTree(tmp_path / "sys")
    tree.add_hca(0)
    return tree.root


def test_once_prints_one_scrape(sysfs: Path, tmp_path: Path) -> None:
    done = opsk("--once", "--sysfs", sysfs, "--procfs", write_procfs(tmp_path / "proc"))
    assert done.returncode == 0, done.stderr
    assert 'opsk_infiniband_port_received_bytes_total{device="mlx5_0",port="1"} 4000.0\n' in done.stdout
    assert "opsk_host_load1 0.5\n" in done.stdout
    assert done.stdout.count("opsk_collector_success{") == len(COLLECTORS)


def test_only_the_named_collectors_run(sysfs: Path) -> None:
    done = opsk("--once", "--sysfs", sysfs, "--collectors", "infiniband")
    assert done.returncode == 0, done.stderr
    assert "opsk_host_" not in done.stdout
    assert 'opsk_collector_success{collector="infiniband"} 1.0' in done.stdout


def test_a_failed_collector_ends_once_with_status_3_after_the_others_were_printed(sysfs: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = opsk("--once", "--sysfs", sysfs, "--procfs", tmp_path / "empty")
    assert done.returncode == 3
    assert "opsk: collector failed: host\n" in done.stderr
    assert "opsk_infiniband_port_state{" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--collectors", "host,nvml"), "'nvml' is no collector"),
        (("--collectors", ","), "an empty list is no collector"),
        (("--listen", "nowhere"), "'nowhere' is no HOST:PORT"),
        (("--sysfs", "/no/such/folder"), "--sysfs"),
        (("--deadline", "0"), "--deadline"),
    ],
)
def test_wrong_usage_is_one_clear_line(arguments: tuple[str, ...], says: str) -> None:
    done = opsk("--once", *arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_told_to_stop(sysfs: Path, number: signal.Signals) -> None:
    arguments = command(["--listen", "127.0.0.1:0", "--sysfs", sysfs])
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, env={**os.environ}) as running:
        try:
            assert running.stderr is not None
            address = re.search(r"http://127\.0\.0\.1:\d+/metrics", running.stderr.readline())
            assert address is not None
            with urllib.request.urlopen(address[0], timeout=30) as answer:
                assert b"opsk_infiniband_port_state" in answer.read()
            running.send_signal(number)
            assert running.wait(timeout=60) == 0
        finally:
            running.kill()
