"""Training jobs that lose time to causes that are known, second by second of every rank; who analyses them is not told.

A step is played out: each rank computes at its own pace, all wait for the slowest, then for the network, for input and
for what is done between steps. What exporters would count in that time is added up rank by rank: kernels that run
(those of collectives that wait too), multiprocessors and tensor cores at work, clocks, power, time held down by a
reason, credit that ports wait for, and what hosts are short of. Nothing here knows how losses are told from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.predict import predict
from opsk.costmodel.table import PlanTable
from opsk.hardware import catalog
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Recompute, Sharding
from opsk.workload.public_models.lookup import public_model

CAUSES = (
    "straggler",
    "thermal_cap",
    "power_cap",
    "congested_link",
    "data_loading",
    "checkpointing",
    "recompute",
    "wrong_plan",
)
MEASURED_CAUSES = CAUSES[:6]
NETWORK_AXES = ("pp", "dp", "ep")
GPUS_PER_NODE = 8
MOST_CLOCK_HZ = 1.98e9
_MODEL_ERROR = 0.08
"""Standard deviation of log(true step / predicted step) where nothing is wrong."""
_INTERVAL_STEPS = 120


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A job to draw from: what it trains, on what, cut how."""

    name: str
    cluster: str
    model: ModelShape
    plan: Plan

    def time(self) -> tuple[float, float, float, dict[str, float], dict[str, tuple[float, float]], float]:
        """Return low, expected and high step time, parts, network axes (all, hidden at most), and MFU."""
        table = predict(self.model, PlanTable.of([self.plan]), catalog.cluster(self.cluster), DEFAULT).time

        def one(column: object) -> float:
            return float(np.ravel(np.asarray(column))[0])

        parts = {name: one(column) for name, column in table.components.items()}
        axes = {name: (one(table.communication[name]), one(table.windows[name])) for name in NETWORK_AXES}
        step = table.step_s
        return one(step.low), one(step.expected), one(step.high), parts, axes, one(table.mfu.expected)


def _shape(name: str, seq: int) -> ModelShape:
    found = public_model(name)
    assert found is not None, name
    return replace(found, seq=seq)


def kinds() -> dict[str, Kind]:
    """Return the jobs to draw from: pipelines, experts, and data-parallel ones that the network decides."""
    large = _shape("llama3-70b", 8192)
    small = _shape("llama3-8b", 4096)
    mixture = _shape("mixtral-8x7b", 4096)
    base = {"sequence_parallel": True, "micro_batch": 1}
    return {
        "pipeline": Kind(
            name="pipeline",
            cluster="superpod-h100",
            model=large,
            plan=Plan(
                tp=4, pp=4, dp=4, global_batch=128, sharding=Sharding.ZERO1, recompute=Recompute.SELECTIVE, **base
            ),
        ),
        "experts": Kind(
            name="experts",
            cluster="superpod-h100",
            model=mixture,
            plan=Plan(tp=2, pp=4, ep=8, dp=8, global_batch=256, sharding=Sharding.ZERO1, **base),
        ),
        "recomputing": Kind(
            name="recomputing",
            cluster="superpod-h100",
            model=small,
            plan=Plan(tp=2, pp=1, dp=16, global_batch=128, sharding=Sharding.ZERO1, recompute=Recompute.FULL, **base),
        ),
        "data-parallel": Kind(
            name="data-parallel",
            cluster="superpod-h100",
            model=small,
            plan=Plan(dp=64, micro_batch=1, global_batch=64, sharding=Sharding.ZERO3),
        ),
        "two-nodes": Kind(
            name="two-nodes",
            cluster="superpod-h100",
            model=small,
            plan=Plan(tp=2, dp=8, micro_batch=1, global_batch=16, sharding=Sharding.ZERO1, sequence_parallel=True),
        ),
    }


@dataclass(frozen=True, kw_only=True)
class Injected:
    """What is wrong, where (node, or node and GPU, or node and port; empty for the whole job), and what it costs."""

    cause: str
    node: int = -1
    part: int = -1
    seconds: float = 0.0


@dataclass(kw_only=True)
class Machine:
    """State of all GPUs (nodes x 8), ports (nodes x 8) and hosts in the interval, before what is wrong is put in."""

    clock: np.ndarray
    work: np.ndarray
    starved_s: np.ndarray
    reasons: dict[str, np.ndarray]
    limit_w: np.ndarray
    temperature_c: np.ndarray
    congestion: np.ndarray
    rate: np.ndarray
    host: dict[str, np.ndarray]
    input_s: np.ndarray
    between: dict[int, float] = field(default_factory=dict)
    checkpoints: list[int] = field(default_factory=list)
    validations: list[int] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """What can be observed of a job, in plain lists; ``truth`` is for the test alone, the largest cost first."""

    kind: Kind
    nodes: tuple[str, ...]
    low_s: float
    expected_s: float
    high_s: float
    parts: Mapping[str, float]
    axes: Mapping[str, tuple[float, float]]
    mfu: float
    steps: Sequence[tuple[int, float, float]]
    gpus: Sequence[dict[str, object]]
    ports: Sequence[dict[str, object]]
    hosts: Sequence[dict[str, object]]
    checkpoints: Sequence[int]
    validations: Sequence[int]
    others: Sequence[tuple[str, float, float, bool]]
    truth: tuple[Injected, ...]


def healthy_machine(rng: np.random.Generator, nodes: int, steps: int) -> Machine:
    """Return a sound machine with the oddities that sound machines have.

    H100s that their own power limit holds down most of the time, chips that differ, nodes that are warmer, ports with
    some congestion, hosts with some pressure.
    """
    shape = (nodes, GPUS_PER_NODE)
    warm = rng.normal(0, 3, (nodes, 1))
    return Machine(
        clock=np.clip(rng.normal(rng.uniform(0.74, 0.9), 0.008, shape), 0.3, 1.0),
        work=rng.normal(1.0, 0.005, shape),
        starved_s=np.zeros(shape),
        reasons={
            "sw_power_cap": np.clip(rng.normal(rng.uniform(0.1, 0.9), 0.08, shape), 0, 1),
            "sw_thermal_slowdown": np.zeros(shape),
            "hw_thermal_slowdown": np.zeros(shape),
            "gpu_idle": np.zeros(shape),
        },
        limit_w=np.full(shape, 700.0),
        temperature_c=np.clip(58 + warm + rng.normal(0, 3, shape), 30, 78),
        congestion=np.clip(rng.exponential(0.02, shape), 0, 0.09),
        rate=np.ones(shape),
        host={
            "cpu_busy": rng.uniform(0.1, 0.5, nodes),
            "iowait": rng.uniform(0, 0.02, nodes),
            "cpu_stalled": rng.uniform(0, 0.12, nodes),
            "io_stalled": rng.uniform(0, 0.03, nodes),
            "memory_stalled": np.zeros(nodes),
        },
        input_s=np.zeros(steps),
    )


class Job:
    """One job that is played out; ``hurt`` puts causes in."""

    def __init__(self, kind: Kind, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.kind = kind
        self.low, self.expected, self.high, self.parts, self.axes, self.mfu = kind.time()
        self.truth_factor = float(np.exp(self.rng.normal(0.0, _MODEL_ERROR)))
        self.nodes = kind.plan.gpus // GPUS_PER_NODE
        self.machine = healthy_machine(self.rng, self.nodes, _INTERVAL_STEPS)
        self.others: list[tuple[str, float, float, bool]] = [
            ("TP 2", self.expected * self.rng.uniform(0.95, 1.3), 0.99, False),
            ("micro-batch 2", self.expected * self.rng.uniform(0.5, 0.9), 0.2, False),
        ]
        self.truth: list[Injected] = []

    @property
    def computing_s(self) -> float:
        """Computation of a step at the usual clock, as it truly is [s]."""
        return self.truth_factor * sum(self.parts[name] for name in ("compute", "recompute", "bubble"))

    def place(self) -> tuple[int, int]:
        return int(self.rng.integers(self.nodes)), int(self.rng.integers(GPUS_PER_NODE))

    def network_s(self) -> float:
        """Communication that no computation hides, at the pace of the slowest port [s]."""
        pace = float((self.machine.rate * (1.0 - np.maximum(self.machine.congestion - 0.1, 0))).min())
        return self.truth_factor * sum(max(total / pace - window, 0.0) for total, window in self.axes.values())

    def play(self) -> Simulated:
        """Return what is seen of the job."""
        rng, machine = self.rng, self.machine
        usual = float(np.median(machine.clock))
        stage = self._stages()
        compute = self.computing_s * machine.work * usual / machine.clock * (1 - 0.04 * (stage % 2))
        own = compute + machine.starved_s
        network = self.network_s()
        other = self.truth_factor * sum(
            seconds
            for name, seconds in self.parts.items()
            if name not in ("compute", "recompute", "bubble", *self.axes)
        )
        launching = self.truth_factor * self.parts["overhead"] + 0.01 * self.expected
        base = float(own.max()) + network + other
        noise = np.exp(rng.normal(0, 0.008, _INTERVAL_STEPS))
        seconds = base * noise + machine.input_s
        between = np.array([machine.between.get(step, 0.0) for step in range(_INTERVAL_STEPS)])
        all_s = float((seconds + between).sum())
        steps = _INTERVAL_STEPS

        def sampled(values: np.ndarray, spread: float) -> np.ndarray:
            return np.clip(values + rng.normal(0, spread, values.shape), 0, 1)

        silent = steps * (machine.starved_s + launching) + machine.input_s.sum() + between.sum()
        kernels = steps * compute
        waiting = all_s - silent - kernels
        tensor = 0.55 * steps * self.computing_s * (1 - 0.04 * (stage % 2)) * machine.work * usual / machine.clock
        power = 90 + (560 * kernels * (machine.clock / usual) ** 1.5 + 190 * waiting) / all_s
        seen = {
            "busy": sampled(1 - silent / all_s, 0.004),
            "sm_active": sampled((0.86 * kernels + 0.16 * waiting) / all_s, 0.006),
            "tensor_active": sampled(tensor / all_s, 0.005),
            "clock": np.round(machine.clock * MOST_CLOCK_HZ / 15e6) * 15e6 / MOST_CLOCK_HZ,
            "power_w": power * rng.normal(1, 0.03, power.shape),
            "temperature_c": machine.temperature_c,
        }
        return self._written(seen, seconds + between, stage)

    def _stages(self) -> np.ndarray:
        """Return the pipeline stage of every GPU: ranks in order, a stage's ranks side by side."""
        gpus = self.nodes * GPUS_PER_NODE
        return (np.arange(gpus) * self.kind.plan.pp // gpus).reshape(self.nodes, GPUS_PER_NODE)

    def _written(self, seen: Mapping[str, np.ndarray], seconds: np.ndarray, stage: np.ndarray) -> Simulated:
        machine, names = self.machine, tuple(f"node{number:03d}" for number in range(self.nodes))
        places = [(node, gpu) for node in range(self.nodes) for gpu in range(GPUS_PER_NODE)]
        ends = np.cumsum(seconds)
        return Simulated(
            kind=self.kind,
            nodes=names,
            low_s=self.low,
            expected_s=self.expected,
            high_s=self.high,
            parts=self.parts,
            axes=self.axes,
            mfu=self.mfu,
            steps=[(100 + step, float(seconds[step]), float(ends[step])) for step in range(len(seconds))],
            gpus=[
                {
                    "node": names[node],
                    "index": gpu,
                    "rank": node * GPUS_PER_NODE + gpu,
                    "equals": int(stage[node, gpu]),
                    **{name: float(values[node, gpu]) for name, values in seen.items()},
                    "power_limit_w": float(machine.limit_w[node, gpu]),
                    "power_default_limit_w": 700.0,
                    "slowdown_at_c": 87.0,
                    "throttled": {name: float(values[node, gpu]) for name, values in machine.reasons.items()},
                }
                for node, gpu in places
            ],
            ports=[
                {
                    "node": names[node],
                    "device": f"mlx5_{port}",
                    "leaf": f"leaf{port}",
                    "congestion": float(machine.congestion[node, port]),
                    "rate": float(machine.rate[node, port]),
                    "errors": 0.0,
                }
                for node, port in places
            ],
            hosts=[
                {"node": names[node], **{name: float(values[node]) for name, values in machine.host.items()}}
                for node in range(self.nodes)
            ],
            checkpoints=[100 + step for step in machine.checkpoints],
            validations=[100 + step for step in machine.validations],
            others=self.others,
            truth=tuple(sorted(self.truth, key=lambda each: -each.seconds)),
        )
