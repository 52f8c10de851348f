"""The part of ``make demo`` on exporters: what a scrape contains of a job's GPUs, and how a GPU that fails shows."""

from __future__ import annotations

import json
import subprocess
import textwrap
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from opsk.errors import UnavailableError

EXAMPLES = Path(__file__).resolve().parent
SCRIPT = EXAMPLES / "pretend-training.sbatch"
NODE, GPU = "n0", "0"
MAX_WAIT_S = 120.0
"""Seconds suffice; a busy machine takes longer."""
JOB = (
    ("job's GPUs", "opsk_job_gpu", ("job", "gpu")),
    ("SM activity", "opsk_gpu_sm_active_ratio", ("gpu",)),
    ("power", "opsk_gpu_power_watts", ("gpu",)),
    ("step", "opsk_training_iteration", ("job",)),
    ("step time", "opsk_training_step_seconds", ("job",)),
    ("bytes sent by a port", "opsk_infiniband_port_transmitted_bytes_total", ("device", "port")),
)
FAILED_GPU = (
    ("GPU answers", "opsk_gpu_up", ("gpu",)),
    ("XID errors", "opsk_gpu_xid_errors_total", ("gpu", "xid", "class")),
)
Samples = list[tuple[str, dict[str, str], str]]


def submit(environment: Mapping[str, str], folder: Path) -> int:
    """Submit the job that the exporters are to show; not 0 when Slurm refuses."""
    command = ["sbatch", "--quiet", "--nodelist=n0,n1", str(SCRIPT)]
    return subprocess.run(command, env=dict(environment), cwd=folder, check=False).returncode


def show(
    status: Mapping[str, Any], title: Callable[[str], None], call: Callable[..., int], break_options: tuple[str, ...]
) -> int:
    """Show a scrape, break a GPU, show the next scrape and the alert; return how much failed.

    Raises
    ------
    UnavailableError
        When the exporter or Prometheus does not answer.
    """
    page = f"http://127.0.0.1:{status['ports']['exporters'][NODE]}/metrics"
    samples = _await_moving(page, ("opsk_training_step_seconds", "opsk_gpu_sm_active_ratio"))
    title(f"On the nodes: what `opsk exporter` of {NODE} exports of a job, {len(JOB)} of {len(samples)} series")
    print(f"$ curl {page}")
    gpu = next((labels["gpu"] for name, labels, _ in samples if name == "opsk_job_gpu"), "")
    _print(samples, JOB, gpu)
    if not _has_gpus(samples):
        print("\n".join(status["notes"]))
        return int(not gpu)
    title("The lab takes one of its GPUs off the bus; the next scrape shows it")
    failed = call("lab", "break", "gpu", *break_options, NODE, GPU)
    _print(_await(page, lambda samples: _has_failed(samples, gpu)), FAILED_GPU, gpu)
    prometheus = status["ports"]["prometheus"]
    failed += _print_alert(prometheus, gpu) if prometheus else 0
    if not prometheus:
        print("\n".join(note for note in status["notes"] if "Prometheus" in note) or "no Prometheus in this lab")
    print("All metrics: docs/reference/metrics.md; dashboards and alerts: docs/howto/monitor-with-grafana.md")
    return failed


def _print(samples: Samples, series: tuple[tuple[str, str, tuple[str, ...]], ...], gpu: str) -> None:
    """Print the first sample of each name, of this GPU where it is of one, with the labels that matter."""
    for meaning, shown_name, label_names in series:
        for name, labels, value in samples:
            if name == shown_name and labels.get("gpu", gpu) == gpu:
                shown = ",".join(f'{label}="{labels[label]}"' for label in label_names)
                print(f"{meaning:<22} {name}{{{shown}}} {float(value):.6g}")
                break


def _print_alert(port: int, gpu: str) -> int:
    """Wait until Prometheus raises an alert on the GPU and print it; 1 when it raises none in time."""
    began = time.monotonic()
    while time.monotonic() - began < MAX_WAIT_S:
        for alert in json.loads(_read(f"http://127.0.0.1:{port}/api/v1/alerts"))["data"]["alerts"]:
            if alert["labels"].get("gpu") == gpu and alert["state"] == "firing":  # some wait for a while first
                after_s = time.monotonic() - began
                print(f"\nPrometheus, {after_s:.0f} s later: alert {alert['labels']['alertname']}")
                text = f"{alert['annotations']['summary']}. {alert['annotations']['description']}"
                print(textwrap.fill(text, 100, initial_indent="  ", subsequent_indent="  "))
                return 0
        time.sleep(0.5)
    print(f"\nPrometheus has raised no alert on the GPU within {MAX_WAIT_S:.0f} s")
    return 1


def _await_moving(page: str, names: tuple[str, ...]) -> Samples:
    """Return a scrape in which each name has a sample that is not 0, or the last one when there is none in time."""

    def is_complete(samples: Samples) -> bool:
        moving = {name for name, _, value in samples if float(value)}
        # Without gcc there are no GPUs to wait for.
        return moving.issuperset(name for name in names if _has_gpus(samples) or not name.startswith("opsk_gpu_"))

    return _await(page, is_complete)


def _await(page: str, is_complete: Callable[[Samples], bool]) -> Samples:
    """Return the first scrape that is complete, or the last one when none is in time."""
    deadline = time.monotonic() + MAX_WAIT_S
    while not is_complete(samples := _scrape(page)) and time.monotonic() < deadline:
        time.sleep(0.5)
    return samples


def _has_gpus(samples: Samples) -> bool:
    return any(name == "opsk_gpu_up" for name, _, _ in samples)


def _has_failed(samples: Samples, gpu: str) -> bool:
    values = {name: value for name, labels, value in samples if labels.get("gpu") == gpu}
    return values.get("opsk_gpu_up") == "0" and "opsk_gpu_xid_errors_total" in values


def _scrape(page: str) -> Samples:
    """Return a scrape as names, labels and values as they are written."""
    samples: Samples = []
    for line in _read(page).splitlines():
        if line.startswith("#"):
            continue
        head, _, value = line.rpartition(" ")
        name, _, inside = head.partition("{")
        pairs = (pair.partition("=") for pair in inside.removesuffix("}").split('",') if pair)
        samples.append((name, {key: text.strip('"') for key, _, text in pairs}, value.removesuffix(".0")))
    return samples


def _read(address: str) -> str:
    try:
        with urllib.request.urlopen(address, timeout=30) as answer:
            text: str = answer.read().decode()
            return text
    except OSError as error:
        raise UnavailableError(f"{address} does not answer: {error}", hint="see the lab's logs in .demo/log") from error
