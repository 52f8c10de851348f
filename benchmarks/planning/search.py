"""Measures time and memory of the search for the best plan: ``python -m benchmarks.planning.search [NAME...]``.

A 1T model on 4,096 GPUs, 175B on 1,024, 405B on 65,536 GPUs with sequences of 128k tokens, DeepSeek-V3 on 2,048; every
legal plan is evaluated or bounded away. Each space is searched in a process of its own, three times; the median is
shown, and what is imported before is not counted. Then 175B on more and more GPUs. ``--walk`` evaluates every plan
instead, which takes minutes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.found import Found, arguments, run
from benchmarks.process_use import own_peak_bytes, time_call
from opsk.hardware.catalog import cluster
from opsk.planning.search.request import PlanRequest
from opsk.planning.search.search import search_space
from opsk.planning.search.space import build_space
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Precision, Software
from opsk.workload.public_models.lookup import public_model

RUNS = 3
GPT_1T = ModelShape(
    name="GPT 1T",
    layers=128,
    hidden=25600,
    ffn=102400,
    heads=160,
    kv_heads=160,
    head_dim=160,
    vocab=51200,
    seq=2048,
    gated_mlp=False,
    tied_embeddings=True,
    learned_positions=True,
)
"""Narayanan et al. 2021, table 1."""


def gpt(model: ModelShape, gpus: int, batch: int) -> PlanRequest:
    """Return a GPT on DGX A100 80 GB, all plans of Megatron Core and beyond."""
    template = Plan(global_batch=batch, precision=Precision.BF16, software=Software.MEGATRON_CORE)
    return PlanRequest(model=model, cluster=cluster("selene"), template=template, gpus=gpus, global_batch=batch)


def get_model(name: str) -> ModelShape:
    """Return a public model."""
    model = public_model(name)
    if model is None:
        raise LookupError(f"{name} is not in the catalogue of public models")
    return model


def long_sequences(gpus: int) -> PlanRequest:
    """Return Llama 3.1 405B with sequences of 128k tokens: 16 of them a step for each of up to 32 replicas."""
    machine = replace(cluster("superpod-h100"), nodes=gpus // 8)
    template = Plan(global_batch=512, software=Software.MEGATRON_CORE)
    model = replace(get_model("Llama-3.1-405B"), seq=131072)
    return PlanRequest(model=model, cluster=machine, template=template, gpus=gpus, global_batch=512)


def deepseek_v3(gpus: int) -> PlanRequest:
    """Return DeepSeek-V3 with its batch on H100, all plans of Megatron Core and beyond."""
    template = Plan(global_batch=15360, software=Software.MEGATRON_CORE)
    machine = cluster("superpod-h100")
    return PlanRequest(
        model=get_model("DeepSeek-V3"), cluster=machine, template=template, gpus=gpus, global_batch=15360
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """What is searched: in words, on how many GPUs, in the short form too, and the request for so many."""

    label: str
    gpus: int
    short_gpus: int
    request: Callable[[int], PlanRequest]


SPACES: Mapping[str, Space] = {
    "1t": Space(
        label="1T, batch 4,096", gpus=4096, short_gpus=512, request=lambda gpus: gpt(GPT_1T, gpus, 4096)
    ),
    "175b": Space(
        label="175B, batch 1,536", gpus=1024, short_gpus=64,
        request=lambda gpus: gpt(get_model("GPT-3 175B"), gpus, 1536),
    ),
    "405b": Space(
        label="405B, 128k tokens, batch 512", gpus=65536, short_gpus=512, request=long_sequences
    ),
    "v3": Space(label="DeepSeek-V3, batch 15,360", gpus=2048, short_gpus=64, request=deepseek_v3),
}  # fmt: skip
GROWTH = (64, 256, 1024, 4096, 16384)
"""GPUs on which 175B is searched for."""


def search_once(request: PlanRequest, *, runs: int, walk: bool) -> dict[str, Any]:
    """Return the times of a search [s], the peak memory of this process [bytes], and what was found."""
    times = [time_call(lambda: list(search_space(build_space(request), walk=walk or None))[-1]) for _ in range(runs)]
    found = times[-1][0]
    best = found.best[0] if found.best else None
    return {
        "wall_s": statistics.median(wall for _, wall, _ in times),
        "cpu_s": statistics.median(cpu for _, _, cpu in times),
        "peak_bytes": own_peak_bytes(),
        "space": found.space,
        "evaluated": found.evaluated,
        "bounded": found.bounded,
        "best_s": best.step_s if best else None,
    }


def measure_search(name: str, gpus: int, *, runs: int = RUNS, walk: bool = False) -> dict[str, Any]:
    """Search a space in a process of its own; print and return what it tells."""
    command = [sys.executable, "-P", "-m", "benchmarks.planning.search", "--one", name, str(gpus), str(runs)]
    command += ["--walk"] if walk else []
    found = dict(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    unsettled = found["space"] - found["evaluated"] - found["bounded"]
    print(
        f"{SPACES[name].label}, {gpus:,} GPUs: {found['wall_s']:.2f} s ({found['cpu_s']:.2f} s CPU), peak "
        f"{found['peak_bytes'] / 1e6:.0f} MB; {found['space']:,} plans, {found['evaluated']:,} evaluated, "
        f"{found['bounded']:,} bounded away{f', {unsettled} NEITHER' if unsettled else ''}; "
        f"best {found['best_s'] or float('nan'):.3f} s a step",
        flush=True,
    )
    return found


def measure(asked: argparse.Namespace) -> Found:
    """Print and return the figures."""
    runs, found, spaces = 1 if asked.short or asked.walk else RUNS, Found(), []
    for name, space in SPACES.items():
        spaces.append(measure_search(name, space.short_gpus if asked.short else space.gpus, runs=runs, walk=asked.walk))
        found.figures[f"search_{name}_s"] = spaces[-1]["cpu_s"]
    found.figures["unsettled_count"] = sum(one["space"] - one["evaluated"] - one["bounded"] for one in spaces)
    found.figures["peak_bytes"] = max(one["peak_bytes"] for one in spaces)
    sizes = GROWTH[:2] if asked.short else GROWTH
    found.curves["gpus"] = [(gpus, measure_search("175b", gpus, runs=runs)["cpu_s"]) for gpus in sizes]
    return found


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("--walk", action="store_true", help="evaluate every plan, bound none")
    parser.add_argument("--one", nargs=3, metavar=("SPACE", "GPUS", "RUNS"), help=argparse.SUPPRESS)
    if one := (asked := parser.parse_args()).one:
        print(json.dumps(search_once(SPACES[one[0]].request(int(one[1])), runs=int(one[2]), walk=asked.walk)))
    else:
        run(measure, parser)
