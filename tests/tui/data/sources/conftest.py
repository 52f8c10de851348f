"""The made-up cluster of ``tests.fakes.lab_cluster`` as exporters and a Prometheus show it, and as Slurm does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from prometheus_client.utils import floatToGoString

from opsk.slurm.records import JobRecord, NodeRecord
from opsk.workload.advice_record import AdviceRecord, Verdict
from tests.fakes.lab_cluster import Scraped
from tests.fakes.lab_node import GPUS, NODES, TRAINING, Moment, Node
from tests.fakes.prometheus_server import LabPrometheus, lab_prometheus, programs


def page_of(scraped: Scraped) -> bytes:
    """Return the page that an exporter would show: families with their types, of all collectors."""
    lines: list[str] = []
    for collector in scraped._collectors:
        for metric in collector.collect():
            name = f"{metric.name}_total" if metric.type == "counter" else metric.name
            name = f"{metric.name}_info" if metric.type == "info" else name
            lines += [f"# HELP {name} what it is", f"# TYPE {name} {'gauge' if metric.type == 'info' else metric.type}"]
            for sample in metric.samples:
                labels = ",".join(f'{key}="{value}"' for key, value in sorted(sample.labels.items()))
                lines.append(f"{sample.name}{{{labels}}} {floatToGoString(sample.value)}")
    for line in scraped._by_hand():
        name = line.partition("{")[0].partition(" ")[0]
        lines += [f"# TYPE {name} gauge"] if f"# TYPE {name} gauge" not in lines else []
        lines.append(line)
    return ("\n".join(lines) + "\n").encode()


class Pages:
    """The exporters of all nodes: one server, the node in the path."""

    def __init__(self) -> None:
        self.moment = Moment(1_700_000_000.0)
        self.scraped = {node: Scraped(Node(number, self.moment)) for number, node in enumerate(NODES)}
        self.silent: set[str] = set()
        self.asked: list[str] = []
        self.password = ""
        self.lock = threading.Lock()

    def page(self, node: str) -> bytes | None:
        with self.lock:
            self.asked.append(node)
            return None if node in self.silent else page_of(self.scraped[node])


@pytest.fixture
def pages() -> Iterator[tuple[Pages, dict[str, str]]]:
    """The pages, and where each node's is."""
    pages = Pages()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if pages.password and self.headers.get("Authorization") != pages.password:
                self.send_error(401)
                return
            body = pages.page(self.path.split("/")[1])
            if body is None:
                self.send_error(503)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield pages, {node: f"http://127.0.0.1:{server.server_port}/{node}" for node in NODES}
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


@pytest.fixture(scope="session")
def half_hour(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabPrometheus]:
    """A real Prometheus that knows the cluster's last half hour, with our rules."""
    if programs() is None:
        pytest.skip("prometheus and promtool (Debian package prometheus) are not installed")
    rules = (root / "deploy" / "prometheus" / "opsk-rules.yml",)
    with lab_prometheus(tmp_path_factory.mktemp("prometheus"), rules) as found:
        yield found


def slurm_nodes() -> tuple[NodeRecord, ...]:
    return tuple(NodeRecord(name=name, state="ALLOCATED", gpus=GPUS, gpu_type="h100", address=name) for name in NODES)


def training_job(**facts: object) -> JobRecord:
    """The job on the first two nodes, predicted to take 9.3 s a step; it takes 11.2 s and one of its GPUs is hot."""
    advice = AdviceRecord(verdict=Verdict.FITS, step_s=9.3, mfu=0.42, tp=4, pp=1, dp=2, hash="0123456789ab")
    said = {
        "id": int(TRAINING), "label": TRAINING, "user": "ada", "name": "llama3-8b", "state": "RUNNING",
        "nodes": NODES[:2], "node_count": 2, "gpus": 2 * GPUS, "gpus_per_node": GPUS,
        "gpu_indices": {node: tuple(range(GPUS)) for node in NODES[:2]}, "admin_comment": advice.render(),
    }  # fmt: skip
    return JobRecord(**{**said, **facts})  # type: ignore[arg-type]
