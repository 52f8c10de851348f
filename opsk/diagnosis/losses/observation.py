"""Defines what is observed of a running job in one interval, and what was predicted: the input of the losses.

``None`` and empty mean "not measured", never 0. Every value is a mean over the same interval, some minutes to an hour
of steady training; times are in seconds, shares and ratios from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

COMPUTING = ("compute", "recompute")
"""Components of a predicted step in which the GPU's own clock sets the pace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Communication of one parallel axis in a step: all of it, and the computation that can hide it [s]."""

    total_s: float
    window_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherPlan:
    """Another plan for the same training, as predicted by the same model.

    Parameters
    ----------
    what
        The changes as text (``TP 4 → 8``).
    step_s
        Predicted time of one step [s].
    fit_probability
        Chance that it fits into memory [ratio].
    only_recomputes_less
        Whether it is the job's own plan with less recomputation and nothing else.
    """

    what: str
    step_s: float
    fit_probability: float = 1.0
    only_recomputes_less: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The cost model's prediction of the job's step.

    Parameters
    ----------
    low_s, step_s, high_s
        Time of one step, as a range [s].
    components
        Components of ``step_s`` [s]: ``compute``, ``recompute``, ``tp``, ``cp``, ``ep``, ``pp``, ``bubble``, ``dp``,
        ``optimizer``, ``straggler``, ``overhead``; may be empty.
    network
        Axes whose traffic leaves its node, by name.
    mfu
        Model FLOP utilisation [ratio].
    others
        Other plans for the same training.
    plan_error
        How far the ratio of two plans' times here may be from its prediction, where that is known [ratio]: less than
        a time may be, for what all runs of a site have in common cancels. 0 is not known.
    """

    low_s: float
    step_s: float
    high_s: float
    components: Mapping[str, float] = field(default_factory=dict)
    network: Mapping[str, Axis] = field(default_factory=dict)
    mfu: float | None = None
    others: tuple[OtherPlan, ...] = ()
    plan_error: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """One progress line.

    Parameters
    ----------
    iteration
        Number of the step.
    seconds
        Time of one step, the mean over ``steps`` of them [s].
    at_s
        When it ended [s since any moment].
    steps
        How many steps the line covers.
    """

    iteration: int | None
    seconds: float
    at_s: float | None = None
    steps: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Work between steps: after which step, and how long it took where that is reported [s]."""

    iteration: int | None
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuActivity:
    """One GPU over the interval.

    Parameters
    ----------
    node, index, rank
        Where it is, and the rank that it runs.
    equals
        GPUs with the same work have the same number here (their pipeline stage); one number where it is unknown.
    busy
        Share of time in which any kernel ran; kernels of collectives that wait for others count.
    sm_active, tensor_active
        Share of multiprocessors' and tensor cores' time with work.
    clock
        SM clock as part of the largest.
    power_w, power_limit_w, power_default_limit_w
        Mean power, limit in force, and limit that the GPU starts with [W].
    temperature_c, slowdown_at_c
        Of the core, and where it begins to slow down [degrees Celsius].
    throttled
        Share of the interval in which clocks were held down, by reason as exporters name them.
    compute_s
        Own computation in one step, without waiting for others [s].
    """

    node: str
    index: int
    rank: int | None = None
    equals: int = 0
    busy: float | None = None
    sm_active: float | None = None
    tensor_active: float | None = None
    clock: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    power_default_limit_w: float | None = None
    temperature_c: float | None = None
    slowdown_at_c: float | None = None
    throttled: Mapping[str, float] = field(default_factory=dict)
    compute_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PortActivity:
    """One NIC port over the interval.

    Parameters
    ----------
    node, device, leaf, rail
        Where it is; ``leaf`` and ``rail`` are empty where the fabric is not known.
    congestion
        Of the bytes that it could have moved while it had any, the share lost for lack of credit.
    rate
        Rate as part of the best that it can do; 0 is down.
    errors
        Errors that cost packets or retries in the interval.
    bytes_per_s
        Sent and received together [bytes/s].
    """

    node: str
    device: str
    leaf: str = ""
    rail: str = ""
    congestion: float | None = None
    rate: float | None = None
    errors: float | None = None
    bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostActivity:
    """One node over the interval: shares of time.

    ``cpu_busy`` and ``iowait`` are of all processors; ``cpu_stalled``, ``io_stalled`` and ``memory_stalled`` the time
    in which at least one task waited for them (the kernel's pressure stall information).
    """

    node: str
    cpu_busy: float | None = None
    iowait: float | None = None
    cpu_stalled: float | None = None
    io_stalled: float | None = None
    memory_stalled: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A job in one interval.

    Parameters
    ----------
    steps
        Steady steps, oldest first: without the warm-up of a start.
    checkpoints, validations
        Those that the log reports.
    gpus, ports, hosts
        Those of the job.
    mfu
        As measured [ratio], where the framework counts as the model does.
    """

    prediction: Prediction | None = None
    steps: tuple[MeasuredStep, ...] = ()
    checkpoints: tuple[Pause, ...] = ()
    validations: tuple[Pause, ...] = ()
    gpus: tuple[GpuActivity, ...] = ()
    ports: tuple[PortActivity, ...] = ()
    hosts: tuple[HostActivity, ...] = ()
    mfu: float | None = None
