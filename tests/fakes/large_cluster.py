"""A large cluster, made up: what Slurm and Prometheus say of thousands of nodes that are all alike but for a few.

Run as ``python -m tests.fakes.large_cluster NODES JOBS [SOCKET]`` it is that Prometheus, and prints its address; on the
socket it shares Slurm's jobs and nodes as an advisor does, one of each changed every 10 s.
"""

from __future__ import annotations

import json
import random
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

from opsk.slurm.records import JobRecord, NodeRecord
from opsk.slurm.snapshot import Snapshot, filter_visible, pack
from opsk.workload.advice_record import AdviceRecord, Verdict

GPUS = 8
SCRAPE_S = 15.0
START = datetime(2026, 1, 1, tzinfo=UTC)


def node_name(at: int) -> str:
    return f"gpu{at:04}"


def uuid_of(node: int, slot: int) -> str:
    return f"GPU-{node:08x}-{slot:04x}-4aaa-8bbb-0123456789ab"


def slurm_nodes(count: int) -> tuple[NodeRecord, ...]:
    return tuple(
        NodeRecord(
            name=node_name(at), state="ALLOCATED", partitions=("train",), gpus=GPUS, gpus_used=GPUS, gpu_type="h100",
            gpu_indices_used=tuple(range(GPUS)), cpus=192, cpus_used=192, memory_bytes=2 << 40,
            address=node_name(at), port=6818, release="24.11.5",
        )
        for at in range(count)
    )  # fmt: skip


def slurm_jobs(nodes: int, count: int) -> tuple[JobRecord, ...]:
    each = nodes // count
    found = []
    for at in range(count):
        mine = tuple(node_name(node) for node in range(at * each, (at + 1) * each))
        advice = AdviceRecord(
            verdict=Verdict.FITS, step_s=8.0 + at % 7, mfu=0.42, tflops=410.0, tp=8, pp=1, dp=each, hash=f"{at:012x}"
        )
        found.append(
            JobRecord(
                id=1000 + at, label=str(1000 + at), user=f"user{at % 40}", name=f"llama-{at}", state="RUNNING",
                partition="train", nodes=mine, node_count=each, gpus=each * GPUS, gpus_per_node=GPUS, gpu_type="h100",
                gpu_indices={node: tuple(range(GPUS)) for node in mine}, admin_comment=advice.render(),
                start_time=START, submit_time=START, work_dir=f"/home/user{at % 40}/run",
                std_out=f"/home/user{at % 40}/run/slurm-%j.out", command="/home/user/train.sh",
            )
        )  # fmt: skip
    return tuple(found)


class LargePrometheus:
    """Answers instant queries by the first metric that they name; values change with every scrape."""

    def __init__(self, nodes: int, jobs: int) -> None:
        self._nodes, self._jobs = nodes, jobs
        self._made: dict[tuple[str, int], bytes] = {}

    def answer(self, query: str, now_s: float) -> bytes:
        round_ = int(now_s / SCRAPE_S)
        found = re.search(r"opsk[_:][a-z0-9_:]+", query)
        name = found[0] if found else ""
        if query.startswith("count_values"):
            name = "by node"
        elif "label_replace" in query:
            name = "hosts"
        elif (
            "delta(" in query
            or "> 0.001" in query
            or ") == 0" in query
            or "!= 4" in query
            or " == 0" in query
            or "action!=" in query
        ):
            name = "few"
        elif "> 0" in query:
            name = "xid" if "xid" in query else "few"
        key = (name, round_)
        if key not in self._made:
            if len(self._made) > 64:
                self._made.clear()
            result = ",".join(self._series(name, round_, now_s))
            self._made[key] = f'{{"status":"success","data":{{"resultType":"vector","result":[{result}]}}}}'.encode()
        return self._made[key]

    def over_time(self, asked: Mapping[str, Sequence[str]], now_s: float) -> bytes:
        """Answer the step times of all jobs over a time, and nothing else."""
        begin_s, step_s = float(asked["start"][0]), float(asked["step"][0])
        series = []
        if asked["query"][0].startswith("max by (job) (opsk_training_step_seconds"):
            for job in range(self._jobs):
                points = [
                    [begin_s + step_s * at, str(8.0 + at % 7 / 10)] for at in range(int((now_s - begin_s) / step_s))
                ]
                series.append({"metric": {"job": str(1000 + job)}, "values": points})
        data = {"resultType": "matrix", "result": series}
        return json.dumps({"status": "success", "data": data}, separators=(",", ":")).encode()

    def _series(self, name: str, round_: int, now_s: float) -> Iterator[str]:
        draw = random.Random(round_)
        if name == "opsk_gpu_info":
            for node, slot in self._seats():
                yield _sample({"gpu": uuid_of(node, slot), "index": str(slot), "node": node_name(node)}, 1, now_s)
        elif name == "opsk_infiniband_port_info":
            for node, slot in self._seats():
                labels = {"device": f"mlx5_{slot}", "leaf": f"leaf{node // 32}-{slot}", "node": node_name(node)}
                yield _sample({**labels, "port": "1", "rail": str(slot)}, 1, now_s)
        elif name == "by node":
            for node in range(self._nodes):
                yield _sample({"is": "50000000000", "node": node_name(node)}, GPUS, now_s)
        elif name == "hosts":
            for share in ("cpu_busy", "iowait", "cpu_stalled", "io_stalled", "memory_stalled"):
                for node in range(self._nodes):
                    yield _sample({"is": share, "node": node_name(node)}, draw.random() * 0.05, now_s)
        elif name.startswith("opsk_infiniband"):
            scale = 5e10 if "rate" in name else 1.0
            for node, slot in self._seats():
                labels = {"device": f"mlx5_{slot}", "node": node_name(node), "port": "1"}
                yield _sample(labels, scale if "rate" in name else draw.random() * 0.1, now_s)
        elif name == "opsk_training_":
            for job in range(self._jobs):
                for which in ("step_seconds", "tokens_per_second", "tflops_per_gpu", "iteration"):
                    yield _sample(
                        {"__name__": f"opsk_training_{which}", "job": str(1000 + job)}, draw.random() * 10, now_s
                    )
        elif name == "xid":
            for node in range(0, self._nodes, 97):
                labels = {"__name__": "opsk_gpu_xid_errors_total", "gpu": uuid_of(node, 3), "node": node_name(node)}
                yield _sample({**labels, "xid": "31", "class": "app"}, 1, now_s)
        elif name.startswith("opsk") and "xid" not in name and name != "opsk:infiniband_port_errors:rate5m":
            for node, slot in self._seats():
                yield _sample({"gpu": uuid_of(node, slot), "node": node_name(node)}, draw.random(), now_s)

    def _seats(self) -> Iterator[tuple[int, int]]:
        for node in range(self._nodes):
            for slot in range(GPUS):
                yield node, slot


def _sample(labels: dict[str, str], value: float, now_s: float) -> str:
    metric = json.dumps(labels, separators=(",", ":"), sort_keys=True)
    return f'{{"metric":{metric},"value":[{now_s:.3f},"{value}"]}}'


def share(path: str, nodes: int, jobs: int) -> None:
    """Answer ``cluster`` questions."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen(16)
    known = slurm_nodes(nodes), slurm_jobs(nodes, jobs)
    packed, packed_at = None, -1
    while True:
        connection, _ = server.accept()
        with connection:
            length = int.from_bytes(connection.recv(4), "big")
            have = json.loads(connection.recv(length))["have"]
            if packed is None or packed_at != int(time.time() / 10):
                packed_at = int(time.time() / 10)
                changed = replace(known[0][packed_at % nodes], state_flags=("DRAIN",))
                told = tuple(changed if node.name == changed.name else node for node in known[0])
                first = replace(known[1][0], reason=f"round {packed_at}")
                said = {"cluster": "large", "release": (24, 11), "taken_at_s": time.time()}
                packed = pack(Snapshot(nodes=told, jobs=(first, *known[1][1:]), **said))  # type: ignore[arg-type]
            data = filter_visible(packed, 0, sees_all=True, have=have).to_bytes()
            connection.sendall(len(data).to_bytes(4, "big") + data)


def main() -> None:
    prometheus = LargePrometheus(int(sys.argv[1]), int(sys.argv[2]))
    if len(sys.argv) > 3:
        threading.Thread(target=share, args=(sys.argv[3], int(sys.argv[1]), int(sys.argv[2])), daemon=True).start()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            if self.path.endswith("query_range"):
                body = prometheus.over_time(asked, time.time())
            else:
                body = prometheus.answer(asked["query"][0], time.time())
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
