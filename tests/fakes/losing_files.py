"""Simulated jobs as files: a log of Megatron-LM, two scrapes of each node's exporter ten minutes apart, a plan file."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.fakes.losing_jobs import MOST_CLOCK_HZ, Simulated
from tests.fakes.progress_logs import megatron_line

APART_S = 600.0
_CPUS = 64
_PORT_BYTES = 1e12
_TICK_BYTES = 4.0


def write_log(path: Path, job: Simulated) -> Path:
    """Write progress lines with times; what happens between steps is between their times, as Megatron-LM has it."""
    lines = [megatron_line(99, step_ms=90_000)]
    for step, seconds, at_s in job.steps:
        stamp = datetime.fromtimestamp(1_760_000_000 + at_s, tz=UTC).strftime("[%Y-%m-%d %H:%M:%S.%f]")
        lines.append(megatron_line(step, step_ms=1000 * seconds, stamp=stamp))
        if step in job.checkpoints:
            lines.append(f"saving checkpoint at iteration {step} to /scratch/out in torch_dist format")
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def write_scrapes(folder: Path, job: Simulated) -> list[str]:
    """Write two scrapes a node; returns what ``--scrape`` takes."""
    found: list[str] = []
    for node in job.nodes:
        for number in (0, 1):
            path = folder / f"{node}.{number}.prom"
            path.write_text("".join(f"{line}\n" for line in _lines(job, node, number * APART_S)))
            found.append(f"{node}={path}")
    return found


def _lines(job: Simulated, node: str, passed_s: float) -> list[str]:
    lines = ["# HELP opsk_gpu_info GPU", f"opsk_host_cpus {_CPUS}"]
    for gpu in (each for each in job.gpus if each["node"] == node):
        lines += _gpu(gpu, f"GPU-{node}-{gpu['index']}", passed_s)
    for port in (each for each in job.ports if each["node"] == node):
        lines += _port(port, passed_s)
    host: Any = next(each for each in job.hosts if each["node"] == node)
    busy, waits = host["cpu_busy"], host["iowait"]
    for mode, share in (("user", busy), ("iowait", waits), ("idle", 1 - busy - waits)):
        lines.append(f'opsk_host_cpu_seconds_total{{mode="{mode}"}} {_CPUS * (1e6 + passed_s) * share}')
    for resource in ("cpu", "io", "memory"):
        value = (1e5 + passed_s) * host[f"{resource}_stalled"]
        lines.append(f'opsk_host_pressure_seconds_total{{resource="{resource}",share="some"}} {value}')
    return lines


def _gpu(gpu: Mapping[str, Any], uuid: str, passed_s: float) -> list[str]:
    own = f'gpu="{uuid}"'
    return [
        f'opsk_gpu_info{{{own},index="{gpu["index"]}",slurm_index="{gpu["index"]}",model="NVIDIA \\"H100\\""}} 1.0',
        f"opsk_gpu_utilization_ratio{{{own}}} {gpu['busy']}",
        f"opsk_gpu_sm_active_ratio{{{own}}} {gpu['sm_active']}",
        f"opsk_gpu_tensor_active_ratio{{{own}}} {gpu['tensor_active']}",
        f'opsk_gpu_clock_hertz{{clock="sm",{own}}} {gpu["clock"] * MOST_CLOCK_HZ}',
        f'opsk_gpu_clock_max_hertz{{clock="sm",{own}}} {MOST_CLOCK_HZ}',
        f"opsk_gpu_power_watts{{{own}}} {gpu['power_w']}",
        f"opsk_gpu_power_limit_watts{{{own}}} {gpu['power_limit_w']}",
        f"opsk_gpu_power_default_limit_watts{{{own}}} {gpu['power_default_limit_w']}",
        f'opsk_gpu_temperature_celsius{{{own},sensor="gpu"}} {gpu["temperature_c"]}',
        f'opsk_gpu_temperature_limit_celsius{{{own},limit="slowdown"}} {gpu["slowdown_at_c"]}',
        *(
            f'opsk_gpu_throttle_seconds_total{{{own},reason="{reason}"}} {(5e4 + passed_s) * share}'
            for reason, share in gpu["throttled"].items()
        ),
    ]


def _port(port: Mapping[str, Any], passed_s: float) -> list[str]:
    own = f'device="{port["device"]}",port="1"'
    sent = _PORT_BYTES * (1 + passed_s)
    ticks = sent * port["congestion"] / (1 - port["congestion"]) / _TICK_BYTES
    return [
        f'opsk_infiniband_port_info{{{own},leaf="{port["leaf"]}",rail="",role="compute"}} 1.0',
        f"opsk_infiniband_port_rate_bytes_per_second{{{own}}} {5e10 * port['rate']}",
        f"opsk_infiniband_port_transmitted_bytes_total{{{own}}} {sent}",
        f"opsk_infiniband_port_received_bytes_total{{{own}}} {sent}",
        f"opsk_infiniband_port_transmit_wait_ticks_total{{{own}}} {ticks}",
    ]


def write_plan(path: Path, job: Simulated) -> Path:
    """Write the plan of a job as ``opsk predict`` takes it."""
    model, plan = job.kind.model, job.kind.plan
    sizes = {name: getattr(plan, name) for name in ("tp", "pp", "ep", "dp", "micro_batch", "global_batch")}
    path.write_text(
        f'cluster = "{job.kind.cluster}"\n[model]\nlike = "{model.name}"\nseq = {model.seq}\n[plan]\n'
        + "".join(f"{name} = {value}\n" for name, value in sizes.items())
        + f'sharding = "{plan.sharding}"\nrecompute = "{plan.recompute}"\nprecision = "bf16"\nstates = "mixed"\n'
        + f'software = "{plan.software}"\nsequence_parallel = {str(plan.sequence_parallel).lower()}\n'
    )
    return path
