"""The picture of a prediction, on terminals of two widths, against what was read in review."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from opsk.cli.predict.text import print_prediction
from tests.golden.compare import assert_as_golden

GIB = 2**30


def spread(expected: float, factor: float) -> dict[str, float]:
    return {"low": expected / factor, "expected": expected, "high": expected * factor}


def document() -> dict[str, Any]:
    """A made-up answer in which every kind of line occurs; its sums are right, nothing else is meant."""
    return {
        "verdict": "tight",
        "model": {"name": "made", "seq": 8192},
        "plan": {
            **{"gpus": 64, "tp": 4, "pp": 4, "vpp": 2, "cp": 1, "ep": 1, "dp": 4, "micro_batch": 1},
            **{"global_batch": 512, "precision": "bf16", "recompute": "selective", "sharding": "zero1"},
            "software": "megatron-core",
        },
        "cluster": {"name": "superpod-h100", "gpu": "h100-sxm"},
        "memory": {
            "capacity_bytes": 79.1 * GIB,
            "total_bytes": spread(70 * GIB, 1.2),
            "allocated_bytes": 63 * GIB,
            "reserved_bytes": 66 * GIB,
            "device_bytes": 70 * GIB,
            "needed_bytes": spread(67 * GIB, 1.2),
            "components": {
                **{"weights": 8 * GIB, "gradients": 16 * GIB, "optimizer": 13 * GIB, "activations": 26 * GIB},
                **{"logits": 0.0, "slack": 3 * GIB, "communication": 3.2 * GIB, "context": 0.8 * GIB},
            },
            "stage": 0,
            "moment": "last backward",
            "fit_probability": 0.8,
        },
        "time": {
            "step_s": spread(60.0, 1.25),
            "tokens_per_s_per_gpu": spread(1092.0, 1.25),
            "tflops_per_gpu": spread(520.0, 1.25),
            "mfu": spread(0.526, 1.25),
            "hfu": spread(0.55, 1.25),
            "components": {
                **{"compute": 49.0, "recompute": 2.0, "tp": 5.0, "cp": 0.0, "ep": 0.0, "pp": 0.0, "dp": 0.1},
                **{"bubble": 2.0, "optimizer": 0.02, "overhead": 0.88, "straggler": 1.0},
            },
            "communication": {
                "tp": {"total_s": 9.0, "exposed_s": 5.0},
                "cp": {"total_s": 0.0, "exposed_s": 0.0},
                "ep": {"total_s": 0.0, "exposed_s": 0.0},
                "pp": {"total_s": 0.4, "exposed_s": 0.0},
                "dp": {"total_s": 2.3, "exposed_s": 0.1},
            },
        },
        "energy": {
            "step_j": spread(4.5e6, 1.4),
            "j_per_token": spread(1.07, 1.4),
            **{"gpu_w": 640.0, "host_w": 345.0, "network_w": 90.0, "job_w": 75e3, "pue": 1.1},
            "components": {
                **{"computing": 2.1e6, "memory_bound": 0.2e6, "communicating": 0.1e6, "waiting": 0.05e6},
                **{"idle": 0.001e6, "host": 1.3e6, "network": 0.34e6, "facility": 0.409e6},
            },
        },
        "checkpoint": {
            **{"size_bytes": 920 * GIB, "write_s": 61.7, "stall_s": 0.3, "interval_s": 1320.0, "mtbf_s": 2.85e6},
            **{"best_interval_s": 1320.0, "lost_fraction": 0.0012, "asynchronous": True},
        },
        "run": {
            **{"steps": 3_576_279.0, "tokens": 15e12, "time_s": spread(2.1e8, 1.25)},
            "energy_j": spread(1.6e13, 1.4),
        },
        "assumed": [
            {"field": "model.flash_attention", "value": True, "why": "the software of today fuses attention"},
            {"field": "plan.states", "value": "mixed", "why": "Megatron keeps gradients and master weights in fp32"},
            {"field": "checkpoint.mtbf_s", "value": 2.85e6, "why": "50,700 GPU hours between failures"},
            {"field": "checkpoint.write_bytes_per_s", "value": 15.5e9, "why": "\x1b[31mhostile\nwhy"},
        ],
    }


def drawn(width: int, shown: dict[str, Any]) -> str:
    console = Console(width=width, file=io.StringIO(), highlight=False)
    print_prediction(shown, console)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"


@pytest.mark.parametrize("width", [80, 120])
def test_the_picture_is_as_it_was_accepted(width: int):
    assert_as_golden(f"predict/picture-{width}.txt", drawn(width, document()))


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_no_line_is_wider_than_the_terminal(width: int):
    assert max(cell_len(line) for line in drawn(width, document()).splitlines()) <= width


def test_hostile_text_reaches_no_terminal():
    assert "\x1b" not in drawn(80, document())


def test_what_was_not_asked_for_is_not_shown():
    shown = document()
    del shown["checkpoint"], shown["run"]
    shown["assumed"] = []
    labels = {line.split(" ")[0] for line in drawn(100, shown).splitlines()}
    assert {"memory", "speed", "energy"} <= labels
    assert labels.isdisjoint({"saving", "run", "assumed"})


def test_communication_that_hides_wholly_is_still_named():
    assert "exposed of 400 ms" in drawn(100, document())
