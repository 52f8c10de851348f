"""Are the drivers of nodes those that Prometheus has, or that exporters report, and is silence no answer?"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from opsk.app.learning.drivers import read_drivers
from opsk.config import TopConfig

SERIES = [{"metric": {"driver": driver, "node": f"n{node}"}, "value": [0, "1"]}
          for node, driver in enumerate(("580.2", "580.2", "570.1"))]  # fmt: skip
PAGE = b"""# TYPE opsk_gpu_driver_info gauge
opsk_gpu_driver_info{driver="580.2",nvml="12.580.2",cuda="13.0"} 1.0
# TYPE opsk_gpu_up gauge
opsk_gpu_up{gpu="GPU-1"} 1.0
"""


@pytest.fixture
def serve() -> Iterator[Callable[[bytes], tuple[str, list[str]]]]:
    """Return what starts a server with one page; it returns the address and the paths that are requested."""
    servers: list[HTTPServer] = []

    def start(page: bytes) -> tuple[str, list[str]]:
        paths: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                paths.append(self.path)
                self.send_response(200)
                self.end_headers()
                self.wfile.write(page)

            def log_message(self, *_: object) -> None:
                return

        servers.append(HTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, args=(0.02,), daemon=True).start()
        return f"127.0.0.1:{servers[-1].server_address[1]}", paths

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_prometheus_knows_the_driver_of_every_node(serve: Callable[[bytes], tuple[str, list[str]]]) -> None:
    address, paths = serve(json.dumps({"status": "success", "data": {"result": SERIES}}).encode())
    top = TopConfig(prometheus=f"http://{address}", prometheus_labels={"cluster": 'a"b'})
    assert read_drivers(top) == {"580.2": 2, "570.1": 1}
    assert paths == ["/api/v1/query?query=opsk_gpu_driver_info%7Bcluster%3D%22a%5C%22b%22%7D"]


@pytest.mark.parametrize("page", [b"", b"[]", b'{"data": {"result": [{"metric": []}]}}', b"[" * 9999])
def test_an_answer_that_is_none_names_no_driver(page: bytes, serve: Callable[[bytes], tuple[str, list[str]]]) -> None:
    assert read_drivers(TopConfig(prometheus=f"http://{serve(page)[0]}")) == {}


def test_exporters_report_the_driver_of_their_node(
    tmp_path: Path, serve: Callable[[bytes], tuple[str, list[str]]]
) -> None:
    targets = tmp_path / "targets.json"
    targets.write_text(json.dumps([{"targets": [serve(PAGE)[0], "127.0.0.1:1"]}]), encoding="utf-8")
    assert read_drivers(TopConfig(exporter_targets=targets)) == {"580.2": 1}
    assert read_drivers(TopConfig(exporter_targets=tmp_path / "absent.json")) == {}


def test_no_exporters_are_asked_where_there_are_none() -> None:
    assert read_drivers(TopConfig(exporter_port=0)) == {}
