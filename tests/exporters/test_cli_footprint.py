"""Does the exporter stay small: nothing heavy imported, no more memory after many scrapes? Nothing is timed here."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from opsk_exporters.cli import keep_small
from tests.fakes.exporter import Exporter
from tests.fakes.full_node import full_node
from tests.fakes.nvml import Nvml
from tests.fakes.nvml_gpus import make_h100_node

HEAVY = {"numpy", "scipy", "pydantic", "sqlmodel", "sqlalchemy", "textual", "rich", "rustworkx", "yaml", "asyncio"}
WARM_UP, SCRAPES = 100, 150
SAYING_WHAT_IT_IMPORTED = """
import atexit, sys
atexit.register(lambda: print("imported:", *{name.partition(".")[0] for name in sys.modules}, file=sys.stderr))
from opsk.cli.main import main
main()
"""
GROWTH_BYTES = 4e6
"""150 scrapes of 1,300 series: a leak of one small object a series would be 12 MB or more."""
RSS_BUDGET_BYTES = 60e6
"""Of the design; the benchmark measures it on a node of full size."""


def test_nothing_heavy_is_imported_however_much_there_is_to_read(tmp_path: Path) -> None:
    node, nvml = full_node(tmp_path, hcas=2), Nvml(tmp_path, make_h100_node(2))
    done = subprocess.run(
        [sys.executable, "-c", SAYING_WHAT_IT_IMPORTED, "exporter", "--once"],
        env={**os.environ, **nvml.environment, "OPSK_CONFIG": str(node.site_file)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    imported = set(done.stderr.rpartition("imported: ")[2].split())
    assert {"opsk", "opsk_exporters", "pynvml", "prometheus_client"} <= imported
    assert imported & HEAVY == set()
    assert "opsk_gpu_power_watts{" in done.stdout


def test_memory_is_flat_over_many_scrapes(tmp_path: Path) -> None:
    node, nvml = full_node(tmp_path), Nvml(tmp_path)
    with Exporter(environment={**nvml.environment, "OPSK_CONFIG": str(node.site_file)}) as exporter:
        for _ in range(WARM_UP):
            exporter.get()
        before = exporter.resident_bytes()
        for number in range(SCRAPES):
            exporter.get(Accept_Encoding="gzip" if number % 2 else "identity")
        after = exporter.resident_bytes()
    assert after - before < GROWTH_BYTES
    assert after < 1.2 * RSS_BUDGET_BYTES


@pytest.mark.parametrize("why", [OSError("no libc"), AttributeError("mallopt")])
def test_an_allocator_of_another_libc_is_left_alone(monkeypatch: pytest.MonkeyPatch, why: Exception) -> None:
    asked: list[object] = []

    def refuse(name: object) -> None:
        asked.append(name)
        raise why

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    keep_small()
    keep_small()
    assert asked == [None, None]
