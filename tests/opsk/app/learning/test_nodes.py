"""Are measurements of other GPUs and drivers, and torn ones, refused or passed over, and doubts named?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opsk.app.learning.nodes import list_stored_nodes, read_nodes, read_probe, store_node
from opsk.config import SiteConfig
from opsk.errors import InputError
from tests.fakes.probe_documents import LOADED, probe_document

SITE = SiteConfig(cluster="superpod-h100")


def write(path: Path, **more: Any) -> Path:
    machine = {**probe_document()["machine"], **more.pop("machine", {})}
    path.write_text(json.dumps(probe_document(machine=machine, **more)), encoding="utf-8")
    return path


def test_a_measurement_of_another_gpu_than_the_sites_is_refused(tmp_path: Path) -> None:
    other = write(tmp_path / "a100.json", machine={"gpu": "NVIDIA A100-SXM4-80GB"})
    with pytest.raises(InputError, match=r"a100\.json: measured on a100-sxm-80gb, and superpod-h100 has h100-sxm"):
        read_nodes([other], (), SITE)


@pytest.mark.parametrize("text", ['{"format": "opsk-probe", "ver', "", "[]", "\x00"])
def test_a_torn_document_is_an_error_where_it_is_named_and_a_warning_at_night(tmp_path: Path, text: str) -> None:
    torn = tmp_path / "torn.json"
    torn.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"torn\.json"):
        read_nodes([torn], (), SITE)
    nodes = read_nodes((), [torn, write(tmp_path / "whole.json")], SITE)
    assert len(nodes.measurements) == 1
    assert "torn.json" in nodes.warnings[0]


def test_only_the_last_driver_of_a_gpu_counts(tmp_path: Path) -> None:
    old = write(tmp_path / "old.json", machine={"driver": "550.54"}, measured_at="2026-01-01T00:00:00Z")
    new = write(tmp_path / "new.json", measured_at="2026-05-01T00:00:00Z")
    nodes = read_nodes([old, new], (), SITE)
    assert [item.document.machine.driver for item in nodes.measurements] == ["570.1"]
    assert "with driver 550.54; a later one has 570.1" in nodes.warnings[0]


def test_a_clock_that_heat_held_down_is_reported(tmp_path: Path) -> None:
    hot = {"precision": "bf16", "m": 8192, "k": 8192, "n": 8192, "time_s": 1e-3, "spread": 0.01, "flop_per_s": 5e14}
    path = write(tmp_path / "hot.json", matmul=[{**hot, **LOADED, "is_throttled": True}], memory=[], sustained=[])
    assert "heat held the clock down in 100" in read_nodes([path], (), SITE).warnings[0]


def test_a_kept_document_is_read_again(tmp_path: Path) -> None:
    path = write(tmp_path / "p.json")
    store_node(tmp_path, read_probe(path), path.read_text(encoding="utf-8"))
    (stored,) = list_stored_nodes(tmp_path)
    assert stored.name == "2026-05-01T10-00-00Z-NVIDIA-H100-80GB-HBM3.json"
    assert len(read_nodes((), [stored], SITE).measurements) == 1


@pytest.mark.parametrize(
    ("drivers", "weight", "said"),
    [
        ({}, 1.0, []),
        ({"570.1": 3, "550.54": 3}, 1.0, []),
        ({"580.2": 5, "570.1": 1}, 1.0, ["measured with driver 570.1, and 5 of 6 nodes have 580.2"]),
        ({"580.2": 6}, 0.25, ["measured with driver 570.1, and 6 of 6 nodes have 580.2: it counts less"]),
        ({"580\x1b[2": 1}, 0.25, ["and the node that answers has 580\\x1b[2: it counts less"]),
    ],
)
def test_a_driver_that_no_node_has_any_more_counts_less(
    tmp_path: Path, drivers: dict[str, int], weight: float, said: list[str]
) -> None:
    nodes = read_nodes([write(tmp_path / "p.json")], (), SITE, drivers)
    assert [item.weight for item in nodes.measurements] == [weight]
    assert [text for text in said if any(text in warning for warning in nodes.warnings)] == said
    assert len(nodes.warnings) == len(said)
