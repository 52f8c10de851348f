"""Tests the GPUs in use on a node: of several types, without a type, in several partitions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from opsk.slurm.commands.node_text import LOAD_COLUMNS, NodeLoad, parse_loads
from tests.fakes.slurm_captures import tables

SEPARATOR = "|0123|"
ROW = {
    "NodeList": "n1", "StateComplete": "mixed+planned", "Partition": "gpu*", "Available": "up",
    "Gres": "gpu:h100:8(S:0-1)", "GresUsed": "gpu:h100:3(IDX:0,2-3)", "CPUsState": "2/222/0/224", "Reason": "none",
}  # fmt: skip


def loads(*rows: dict[str, str]) -> tuple[NodeLoad, ...]:
    text = "".join("".join(row[name] + SEPARATOR for name in LOAD_COLUMNS) + "\n" for row in rows)
    return parse_loads(text, LOAD_COLUMNS, SEPARATOR)


def test_a_node_is_read_whole() -> None:
    assert loads(ROW) == (
        NodeLoad(
            name="n1", words=("MIXED", "PLANNED"), partitions={"gpu": True}, gpus={"h100": 8}, gpus_used={"h100": 3},
            cpus_allocated=2, cpus_idle=222, cpus_other=0,
        ),
    )  # fmt: skip


def test_a_node_of_several_partitions_is_one_node() -> None:
    (node,) = loads(ROW, ROW | {"Partition": "debug", "Available": "down"})
    assert node.partitions == {"gpu": True, "debug": False}


@pytest.mark.parametrize(
    ("gres", "used", "gpus", "gpus_used"),
    [
        ("gpu:4", "gpu:(null):2(IDX:0-1)", {"": 4}, {"": 2}),
        ("gpu:4", "gpu:0", {"": 4}, {}),
        ("(null)", "(null)", {}, {}),
        ("gpu:a:2,gpu:b:2", "gpu:a:0(IDX:N/A),gpu:b:1(IDX:2)", {"a": 2, "b": 2}, {"a": 0, "b": 1}),
        ("gpu:h100:6(S:0),gpu:1g.10gb:7(S:1)", "gpu:h100:1(IDX:0),gpu:1g.10gb:3(IDX:6-8)", {"h100": 6, "1g.10gb": 7},
         {"h100": 1, "1g.10gb": 3}),
        ("gpu:h100:8(S:0),shard:64(S:0)", "gpu:h100:0(IDX:N/A),shard:h100:5(5/8)", {"h100": 8}, {"h100": 0}),
    ],
)  # fmt: skip
def test_gpus_are_counted_by_type(gres: str, used: str, gpus: dict[str, int], gpus_used: dict[str, int]) -> None:
    (node,) = loads(ROW | {"Gres": gres, "GresUsed": used})
    assert (node.gpus, node.gpus_used) == (gpus, gpus_used)


def test_marks_beside_a_state_are_no_words() -> None:
    assert loads(ROW | {"StateComplete": "idle*+drain~"})[0].words == ("IDLE", "DRAIN")


@pytest.mark.shared
@pytest.mark.parametrize("release", ["22.05", "24.11", "25.11", "26.05"])
def test_real_nodes_are_as_busy_as_scontrol_says(shared: Path, release: str) -> None:
    folder = shared / "data" / "real" / "slurm-json" / release
    found = loads(*(row | {"Available": "up"} for row in tables(folder)["sinfo"]))
    records = (folder / "scontrol_d_show_nodes.txt").read_text(encoding="utf-8").split("NodeName=")[1:]
    truth = {
        record.split()[0]: (
            int(re.search(r"CPUAlloc=(\d+)", record)[1]),  # type: ignore[index]
            sum(map(int, re.findall(r"AllocTRES=.*?gres/gpu=(\d+)", record))),
            set(re.search(r"State=(\S+)", record)[1].split("+")),  # type: ignore[index]
        )
        for record in records
    }
    assert {node.name: (node.cpus_allocated, sum(node.gpus_used.values()), set(node.words)) for node in found} == truth
