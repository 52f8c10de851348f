"""What does a real Prometheus make of a scrape by our scrape file: whose is the label ``job``, and what is a node?"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from tests.fakes.lab_cluster import Scraped
from tests.fakes.lab_node import TRAINING, Moment, Node, uuid
from tests.fakes.prometheus_server import LabPrometheus, programs, serving


@contextmanager
def exporter(address: str, number: int) -> Iterator[str]:
    """Serve a scrape of a node of the made-up cluster; give the target."""
    text = "\n".join(Scraped(Node(number, Moment(time.time()))).lines()) + "\n"

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(text.encode("utf-8"))

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer((address, 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"{address}:{server.server_address[1]}"
        finally:
            server.shutdown()


def test_job_is_slurms_and_node_is_the_target_without_its_port(root: Path, tmp_path: Path) -> None:
    found = programs()
    if found is None:
        pytest.skip("prometheus (Debian package prometheus) is not installed")
    said = yaml.safe_load((root / "deploy" / "prometheus" / "scrape.yml").read_text(encoding="utf-8"))
    targets = tmp_path / "targets.yml"
    said["scrape_configs"][0] |= {"scrape_interval": "1s", "scrape_timeout": "1s"}
    said["scrape_configs"][0]["file_sd_configs"] = [{"files": [str(targets)]}]
    config = tmp_path / "prometheus.yml"
    config.write_text(yaml.safe_dump(said), encoding="utf-8")
    # Two addresses of loopback stand for two nodes.
    with exporter("127.0.0.2", 0) as first, exporter("127.0.0.3", 1) as second:
        targets.write_text(
            yaml.safe_dump([{"targets": [first, second], "labels": {"cluster": "lab"}}]), encoding="utf-8"
        )
        with serving(found[0], config, tmp_path / "data") as url:
            for _attempt in range(300):
                now = time.time()
                prometheus = LabPrometheus(url, now - 60, now)
                if len(prometheus.now("up == 1")) == 2 and len(prometheus.now("opsk_job_gpu")) == 8:
                    break
                time.sleep(0.1)
            up = {tuple(each["metric"][name] for name in ("cluster", "node", "job")) for each in prometheus.now("up")}
            assert up == {("lab", "127.0.0.2", "opsk"), ("lab", "127.0.0.3", "opsk")}
            gpus = {(each["metric"]["gpu"], each["metric"]["job"]) for each in prometheus.now("opsk_job_gpu")}
            assert gpus == {(uuid(node, gpu), TRAINING) for node in (0, 1) for gpu in range(4)}
            assert {each["metric"]["job"] for each in prometheus.now("opsk_gpu_up")} == {"opsk"}
            assert not prometheus.now('{exported_job!=""}')
