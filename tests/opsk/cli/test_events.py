"""``opsk events`` on exporters that are files behind a small server, with and without Slurm."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from opsk.app.events import parse_exporter, read_pages
from opsk.cli import events as command
from opsk.cli.main import opsk
from opsk.diagnosis.events.from_samples import NAMES
from opsk.errors import InputError, SlurmError, UnavailableError
from opsk.metrics.exposition import read_line_samples
from opsk.slurm.records import JobRecord, NodeRecord

WELL = """\
# HELP opsk_gpu_up said
# TYPE opsk_gpu_up gauge
opsk_gpu_up{gpu="GPU-0"} 1.0
opsk_gpu_up{gpu="GPU-1"} 1.0
opsk_gpu_info{gpu="GPU-0",index="0",pci="x"} 1.0
opsk_gpu_info{gpu="GPU-1",index="1"} 1.0
opsk_gpu_recovery_action{gpu="GPU-0",action="none"} 1.0
something_else{gpu="GPU-0"} 7
"""
SICK = WELL.replace('opsk_gpu_up{gpu="GPU-1"} 1.0', 'opsk_gpu_up{gpu="GPU-1"} 0.0').replace(
    'opsk_gpu_info{gpu="GPU-1",index="1"} 1.0\n', ""
)


class Exporters:
    """Pages by path; a path that is not there is an error of the server."""

    def __init__(self, base: str) -> None:
        self.pages: dict[str, str] = {}
        self.base = base

    def options(self) -> list[str]:
        return [word for node in self.pages for word in ("--exporter", f"{node}={self.base}/{node}")]


@pytest.fixture
def exporters() -> Iterator[Exporters]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = found.pages.get(self.path.strip("/"), "")
            self.send_response(200 if text else 500)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    found = Exporters(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


def run(*words: str) -> Result:
    return CliRunner().invoke(opsk, ["events", *words])


def test_a_sound_cluster_has_nothing_to_tell(exporters: Exporters) -> None:
    exporters.pages = {"n0": WELL, "n1": WELL}
    result = run(*exporters.options(), "--no-slurm")
    assert result.output == "no failures on 2 nodes\n"


def test_a_lost_gpu_is_bad_news_with_all_keys(exporters: Exporters, capsys: pytest.CaptureFixture[str]) -> None:
    exporters.pages = {"n0": WELL, "n1": SICK}
    assert opsk.main(["events", *exporters.options(), "--no-slurm", "--json"], standalone_mode=False) == 1
    (event,) = json.loads(capsys.readouterr().out)["events"]
    assert (event["failed"], event["part"], event["severity"]) == ("gpu:n1/1", "gpu", "fatal")
    assert set(event) == {
        "key", "failed", "part", "severity", "is_over", "first_seen", "last_seen", "count", "text", "action", "source",
        "nodes", "jobs",
    }  # fmt: skip


class FakeSlurm:
    def __init__(self, *, silent: bool = False) -> None:
        self._silent = silent

    def nodes(self) -> tuple[NodeRecord, ...]:
        if self._silent:
            raise SlurmError("sinfo did not answer within 10 s")
        return (
            NodeRecord(name="n0", state="ALLOCATED", gpus=2),
            NodeRecord(name="n1", state="ALLOCATED", gpus=2),
            NodeRecord(name="n2", state="DOWN", state_flags=("NOT_RESPONDING",), reason="burnt \x1b[31m", gpus=2),
        )

    def jobs(self, *, details: bool = False, finished: bool = False) -> tuple[JobRecord, ...]:
        return (JobRecord(id=7, label="7", user="a", name="b", state="RUNNING", nodes=("n0", "n1")),)


def test_slurm_tells_who_is_hit_and_who_is_down(exporters: Exporters, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "slurm_client", FakeSlurm)
    exporters.pages = {"n0": WELL, "n1": SICK}
    said = run(*exporters.options()).output
    assert "opsk remap 7 --failed gpu:n1/1" in said
    assert "node:n2  Slurm: DOWN+NOT_RESPONDING: burnt \\x1b[31m" in said


def test_a_slurm_that_is_silent_is_told_and_exporters_do(exporters: Exporters, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "slurm_client", lambda: FakeSlurm(silent=True))
    exporters.pages = {"n1": SICK}
    said = run(*exporters.options()).output
    assert "gpu:n1/1" in said
    assert "no answer: Slurm: sinfo did not answer" in said


def test_an_exporter_that_is_silent_is_told(exporters: Exporters) -> None:
    exporters.pages = {"n0": WELL, "n1": ""}
    said = run(*exporters.options(), "--no-slurm").output
    assert "no failures on 2 nodes" in said
    assert "no answer" in said


def test_nobody_there_is_an_error(exporters: Exporters) -> None:
    exporters.pages = {"n1": ""}
    assert isinstance(run(*exporters.options(), "--no-slurm").exception, UnavailableError)
    assert isinstance(run("--no-slurm").exception, InputError)


def test_follow_tells_each_change_once(exporters: Exporters) -> None:
    """A GPU is lost at the start, another node's link is not: one line, however many looks there are."""
    exporters.pages = {"n0": WELL, "n1": SICK}
    result = run(*exporters.options(), "--no-slurm", "--follow", "--every", "0.2", "--for", "0.7", "--json")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["failed"] for line in lines] == ["gpu:n1/1"]


def test_exporters_come_from_a_file_too(exporters: Exporters, tmp_path: Path) -> None:
    exporters.pages = {"n0": WELL, "n1": SICK}
    file = tmp_path / "list"
    file.write_text("# ours\n" + "".join(f"{node}={exporters.base}/{node}  # x\n" for node in exporters.pages))
    assert "gpu:n1/1" in run("--exporters", str(file), "--no-slurm").output
    assert isinstance(run("--exporters", str(tmp_path / "no"), "--no-slurm").exception, InputError)


def test_exporters_are_those_of_the_sites_targets(
    exporters: Exporters, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a lab, where no node has a name of its own in the network."""
    exporters.pages = {"metrics": SICK}
    targets = tmp_path / "exporters.json"
    targets.write_text(json.dumps([{"targets": [exporters.base.removeprefix("http://")], "labels": {"node": "n0"}}]))
    site = tmp_path / "opsk.toml"
    site.write_text(f'[top]\nexporter_targets = "{targets}"\n')
    monkeypatch.setenv("OPSK_CONFIG", str(site))
    assert "gpu:n0/1" in run("--no-slurm").output
    targets.write_text("{")
    assert "no file of targets" in str(run("--no-slurm").exception)


@pytest.mark.parametrize("word", ["n0=ftp://x", "n0=", "n0=file:///etc/passwd", "n0=http://"])
def test_what_is_no_exporter_is_refused(word: str) -> None:
    with pytest.raises(InputError):
        parse_exporter(word)


def test_addresses() -> None:
    assert parse_exporter("n0=http://h:1") == ("n0", "http://h:1/metrics")
    assert parse_exporter("https://h:1/x?y=z") == ("h", "https://h:1/x?y=z")
    assert not read_pages({}, NAMES)


def test_lines_that_are_none_are_passed_over() -> None:
    lines = [b"", b"opsk_gpu_up", b"opsk_gpu_up{", b'opsk_gpu_up{gpu="a"} x', b"\xff\xfe 1", b"opsk_gpu_up 1 2 3"]
    assert not list(read_line_samples(lines, NAMES))
    (found,) = read_line_samples([b'opsk_gpu_up{gpu="a\\"b",x="\xff"} 1 1700000000'], NAMES)
    assert found.labels["gpu"] == 'a"b'
