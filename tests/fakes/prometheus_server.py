"""Runs a real Prometheus on the made-up cluster's half hour, with what the recording rules make of it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fakes import lab_cluster
from tests.fakes.lab_node import STEP_S

RULE_PASSES = 2
"""Rules that read other rules' series find them only in the second pass."""
RARE_COLLECTIONS = {"GOGC": "400"}
"""Go collects garbage a quarter as often: a quarter less of the processor, for some 100 MB of memory."""


@dataclass(frozen=True)
class LabPrometheus:
    """A Prometheus that answers, and the time that it knows of."""

    url: str
    start_unix_s: float
    end_unix_s: float

    def ask(self, path: str, **parameters: str | float) -> Any:
        """Return what the API answers, or what is wrong with the question."""
        address = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(address, timeout=60) as answer:
                document = json.loads(answer.read())
        except urllib.error.HTTPError as error:
            document = json.loads(error.read())
        assert document["status"] == "success", f"{parameters}: {document.get('error')}"
        return document["data"]

    def now(self, expr: str) -> list[dict[str, Any]]:
        """Return the series of an expression at the end of the half hour."""
        found: list[dict[str, Any]] = self.ask("query", query=expr, time=self.end_unix_s)["result"]
        return found

    def over_time(self, expr: str, step_s: float = 60.0) -> list[dict[str, Any]]:
        """Return the series of an expression over the half hour."""
        answer = self.ask("query_range", query=expr, start=self.start_unix_s, end=self.end_unix_s, step=step_s)
        found: list[dict[str, Any]] = answer["result"]
        return found


def programs() -> tuple[str, str] | None:
    """Return Prometheus and promtool, if this machine has them."""
    found = (shutil.which("prometheus"), shutil.which("promtool"))
    return (found[0], found[1]) if found[0] and found[1] else None


def free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


@contextmanager
def serving(prometheus: str, config: Path, data: Path) -> Iterator[str]:
    """Run Prometheus on loopback; give its address."""
    port = free_port()
    command = [prometheus, f"--config.file={config}", f"--storage.tsdb.path={data}", "--log.level=error"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--storage.tsdb.retention.time=10y"]
    url = f"http://127.0.0.1:{port}"
    environment = {**os.environ, **RARE_COLLECTIONS}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            _wait_until_ready(url, process)
            yield url
        finally:
            process.terminate()


def _wait_until_ready(url: str, process: subprocess.Popen[str]) -> None:
    """Return once it answers."""
    for _attempt in range(600):
        if process.poll() is not None:
            raise AssertionError(f"Prometheus ended: {process.stderr.read() if process.stderr else ''}")
        try:
            with urllib.request.urlopen(f"{url}/-/ready", timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("Prometheus is not ready after a minute")


@contextmanager
def lab_prometheus(
    folder: Path,
    rules: tuple[Path, ...],
    series: Callable[[float], Iterator[str]] = lab_cluster.openmetrics,
    passes: int = RULE_PASSES,
) -> Iterator[LabPrometheus]:
    """Run Prometheus on the half hour that ends now: ``series`` writes it from its begin on."""
    found = programs()
    assert found is not None
    prometheus, promtool = found
    end = time.time() // STEP_S * STEP_S
    start = end - (lab_cluster.STEPS - 1) * STEP_S
    text, data, config = folder / "lab.txt", folder / "data", folder / "prometheus.yml"
    with text.open("w", encoding="utf-8") as out:
        out.writelines(f"{line}\n" for line in series(start))
    _run(promtool, "tsdb", "create-blocks-from", "openmetrics", str(text), str(data))
    config.write_text("global: {}\n", encoding="ascii")
    for _pass in range(passes):
        made = folder / "made"
        with serving(prometheus, config, data) as url:
            span = ("--start", f"{start:.0f}", "--end", f"{end:.0f}", "--eval-interval", f"{STEP_S}s")
            _run(
                promtool,
                "tsdb",
                "create-blocks-from",
                "rules",
                *span,
                "--output-dir",
                str(made),
                "--url",
                url,
                *map(str, rules),
            )
        for block in made.iterdir():
            shutil.move(str(block), data / block.name)
        made.rmdir()
    with serving(prometheus, config, data) as url:
        yield LabPrometheus(url, start, end)


def _run(*command: str) -> None:
    """Run a program that has to end well."""
    environment = {**os.environ, **RARE_COLLECTIONS}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
