"""Can a node_exporter read our file at any moment and find a whole scrape?"""

from __future__ import annotations

import shutil
import signal
import stat
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from opsk.errors import UnavailableError
from opsk_exporters.core.exposition import write_textfile
from tests.fakes.sysfs import SysfsTree

PATIENCE_S = 60.0


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    tree = SysfsTree(tmp_path / "sys")
    tree.add_hca(0)
    return ["--collectors", "infiniband", "--sysfs", str(tree.root)]


def command(*options: str) -> list[str]:
    return [sys.executable, "-m", "opsk", "exporter", *options]


def test_the_file_is_replaced_whole_and_everybody_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "opsk.prom"
    write_textfile(path, b"opsk_a 1\n")
    before = path.open("rb")
    write_textfile(path, b"opsk_a 2\n")
    with before:
        assert before.read() == b"opsk_a 1\n"
    assert path.read_bytes() == b"opsk_a 2\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [each.name for each in tmp_path.iterdir()] == ["opsk.prom"]


def test_a_folder_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"none/opsk\.prom: No such file or directory"):
        write_textfile(tmp_path / "none" / "opsk.prom", b"")


def test_once_writes_one_scrape_and_ends(tmp_path: Path, options: list[str]) -> None:
    path = tmp_path / "opsk.prom"
    done = subprocess.run(
        command("--textfile", str(path), *options), capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    text = path.read_text(encoding="utf-8")
    assert "opsk_infiniband_port_state{" in text
    assert 'opsk_collector_success{collector="infiniband"} 1.0\n' in text


def test_every_so_often_until_told_to_stop(tmp_path: Path, options: list[str]) -> None:
    path = tmp_path / "opsk.prom"
    with subprocess.Popen(
        command("--textfile", str(path), "--every", "1", *options), stderr=subprocess.PIPE, text=True
    ) as running:
        try:
            inodes = set()
            give_up = time.monotonic() + PATIENCE_S
            while len(inodes) < 2 and time.monotonic() < give_up:
                if path.exists():
                    inodes.add(path.stat().st_mtime_ns)
                time.sleep(0.05)
            assert len(inodes) == 2
        finally:
            running.send_signal(signal.SIGTERM)
        assert running.wait(PATIENCE_S) == 0
    # A file that stays would be shown as if it were new.
    assert list(tmp_path.glob("*.prom*")) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--once", "--textfile", "x.prom"), "exclude each other"),
        (("--every", "5"), "--every is for --textfile"),
        (("--textfile", "/no/such/folder/x.prom"), "No such file or directory"),
    ],
)
def test_wrong_usage_is_one_clear_line(words: tuple[str, ...], says: str, options: list[str]) -> None:
    done = subprocess.run(command(*words, *options), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (2, 3)
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_real_node_exporter_shows_it(tmp_path: Path, options: list[str]) -> None:
    program = shutil.which("prometheus-node-exporter")
    if program is None:
        pytest.skip("no node_exporter (package prometheus-node-exporter)")
    subprocess.run(command("--textfile", str(tmp_path / "opsk.prom"), *options), timeout=120, check=True)
    shown = ["--collector.disable-defaults", "--collector.textfile", f"--collector.textfile.directory={tmp_path}"]
    with subprocess.Popen(
        [program, *shown, "--web.listen-address=127.0.0.1:0"], stderr=subprocess.PIPE, text=True
    ) as running:
        try:
            address = ""
            for line in running.stderr or ():
                if "address=127.0.0.1:" in line:
                    address = line.partition("address=")[2].split()[0].strip('"')
                    break
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=PATIENCE_S) as answer:
                text = answer.read().decode()
        finally:
            running.terminate()
    assert "node_textfile_scrape_error 0\n" in text
    assert 'opsk_infiniband_port_state{device="mlx5_0",port="1"} 4\n' in text
