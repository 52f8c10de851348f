"""The part of ``make demo`` on exporters: what a scrape says of a job's GPUs, and how a GPU that fails shows."""

from __future__ import annotations

import json
import subprocess
import textwrap
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parent
SCRIPT = EXAMPLES / "pretend-training.sbatch"
NODE, GPU = "n0", "0"
WITHIN_S = 40.0
JOB = (
    ("who has which GPU", "opsk_job_gpu", ("job", "gpu")),
    ("what it does", "opsk_gpu_sm_active_ratio", ("gpu",)),
    ("what it draws", "opsk_gpu_power_watts", ("gpu",)),
    ("steps, by its log", "opsk_training_iteration", ("job",)),
    ("time of one", "opsk_training_step_seconds", ("job",)),
    ("what a port has sent", "opsk_infiniband_port_transmitted_bytes_total", ("device", "port")),
)
SICK = (
    ("does the GPU answer?", "opsk_gpu_up", ("gpu",)),
    ("what the driver said", "opsk_gpu_xid_errors_total", ("gpu", "xid", "class")),
)
Samples = list[tuple[str, dict[str, str], str]]


def submit(environment: Mapping[str, str], folder: Path) -> int:
    """Submit the job that the exporters are to show; not 0 when Slurm refuses."""
    words = ["sbatch", "--quiet", "--nodelist=n0,n1", str(SCRIPT)]
    return subprocess.run(words, env=dict(environment), cwd=folder, check=False).returncode


def show(
    status: Mapping[str, Any], title: Callable[[str], None], call: Callable[..., int], break_words: tuple[str, ...]
) -> int:
    """Show a scrape, break a GPU, show the next scrape and the alert; return how much failed."""
    port = status["ports"]["exporters"][NODE]
    page = f"http://127.0.0.1:{port}/metrics"
    samples = _awaited(page, ("opsk_training_step_seconds", "opsk_gpu_sm_active_ratio"))
    title(
        f"On the nodes: what `opsk exporter` of {NODE} tells Prometheus of a job, {len(JOB)} of {len(samples)} series"
    )
    print(f"$ curl {page}")
    gpu = next((labels["gpu"] for name, labels, _ in samples if name == "opsk_job_gpu"), "")
    _print(samples, JOB, gpu)
    if not any(name == "opsk_gpu_up" for name, _, _ in samples):
        print("\n".join(status["notes"]))
        return int(not gpu)
    title("One of its GPUs falls off the bus, by the lab's hand; the next scrape says so")
    failed = call("opsk", "lab", "break", "gpu", *break_words, NODE, GPU)
    time.sleep(1.0)  # the exporter asks the driver once a second, however many scrape it
    _print(_scraped(page), SICK, gpu)
    if status["ports"]["prometheus"]:
        _print_alert(status["ports"]["prometheus"], gpu)
    print("All metrics: docs/reference/metrics.md; dashboards and alerts: docs/howto/monitor-with-grafana.md")
    return failed


def _print(samples: Samples, wanted: tuple[tuple[str, str, tuple[str, ...]], ...], gpu: str) -> None:
    """Print the first series of each name, of this GPU where it is of one, with the labels that matter."""
    for words, wanted_name, names in wanted:
        for name, labels, value in samples:
            if name == wanted_name and labels.get("gpu", gpu) == gpu:
                shown = ",".join(f'{each}="{labels[each]}"' for each in names)
                print(f"{words:<22} {name}{{{shown}}} {float(value):.6g}")
                break


def _print_alert(port: int, gpu: str) -> None:
    """Wait until Prometheus raises an alert on the GPU, and print what it says."""
    began = time.monotonic()
    while time.monotonic() - began < WITHIN_S:
        for alert in _json(f"http://127.0.0.1:{port}/api/v1/alerts")["data"]["alerts"]:
            if alert["labels"].get("gpu") == gpu and alert["state"] == "firing":  # some wait for a while first
                print(f"\nand Prometheus, {time.monotonic() - began:.0f} s later: alert {alert['labels']['alertname']}")
                said = f"{alert['annotations']['summary']}. {alert['annotations']['description']}"
                print(textwrap.fill(said, 100, initial_indent="  ", subsequent_indent="  "))
                return
        time.sleep(0.5)


def _awaited(page: str, names: tuple[str, ...]) -> Samples:
    """Return a scrape in which each name has a series that is not 0, or the last one when there is none in time."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        samples = _scraped(page)
        known, moving = {name for name, _, _ in samples}, {name for name, _, value in samples if float(value)}
        # Without gcc there are no GPUs to wait for.
        wanted = [name for name in names if "opsk_gpu_up" in known or not name.startswith("opsk_gpu_")]
        if moving.issuperset(wanted) or time.monotonic() > deadline:
            return samples
        time.sleep(0.5)


def _scraped(page: str) -> Samples:
    """Return a scrape as names, labels and values as they are written."""
    with urllib.request.urlopen(page, timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    found: Samples = []
    for line in lines:
        if line.startswith("#"):
            continue
        head, _, value = line.rpartition(" ")
        name, _, inside = head.partition("{")
        pairs = (pair.partition("=") for pair in inside.removesuffix("}").split('",') if pair)
        found.append((name, {key: text.strip('"') for key, _, text in pairs}, value.removesuffix(".0")))
    return found


def _json(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=30) as answer:
        return json.loads(answer.read())
