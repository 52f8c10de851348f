"""``opsk fabric`` from the outside: its JSON, its text, its exit status, with good, bad and hostile dumps."""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.dumps.render import render_ibnetdiscover
from opsk.slurm.topology.conf import read_topology_conf
from tests.fakes.warm_opsk import warm

KEYS = {"summary", "rails", "leaves", "hb_domains", "oversubscription", "faults"}
TIMEOUT_S = 60.0
SUMMARY_KEYS = {"switches", "hcas", "nodes", "leaves", "tiers", "isl_cables", "components"}


def opsk(*arguments: str | Path, stdin: bytes = b"", path: str | None = None) -> subprocess.CompletedProcess[bytes]:
    environment = {"PATH": path if path is not None else "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    words = ["fabric", *map(str, arguments)]
    done = warm().run(words, environment=environment, stdin=stdin, timeout_s=TIMEOUT_S)
    return subprocess.CompletedProcess(words, done.returncode, done.stdout.encode(), done.stderr.encode())


def answer(*arguments: str | Path, **options: Any) -> dict[str, Any]:
    done = opsk("--json", *arguments, **options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    path = tmp_path / "fabric.topo"
    path.write_text(render_ibnetdiscover(rail_optimized_fabric(nodes=4, hcas=2, leaves=2, spines=2, cables_per_pair=2)))
    return path


def test_the_document_has_the_keys_that_programs_rely_on(dump: Path) -> None:
    document = answer(dump)
    assert document.keys() >= KEYS
    assert document["summary"].keys() >= SUMMARY_KEYS
    assert document["summary"]["components"] == [12]  # 2 leaves, 2 spines, 8 HCAs
    assert [rail["devices"] for rail in document["rails"]] == [{"mlx5_0": 4}, {"mlx5_1": 4}]
    assert [leaf["role"] for leaf in document["leaves"]] == ["compute", "compute"]
    assert [domain["name"] for domain in document["hb_domains"]] == ["n0", "n1", "n2", "n3"]
    assert document["oversubscription"]["worst"] == 1.0  # 4 HCA links over 4 uplinks of the same speed
    assert document["faults"] == []


def test_gzip_standard_input_and_windows_text_are_accepted(dump: Path, tmp_path: Path) -> None:
    plain = answer(dump)["summary"]
    packed = tmp_path / "fabric.topo.gz"
    packed.write_bytes(gzip.compress(dump.read_bytes()))
    assert answer(packed)["summary"] == plain
    windows = b"\xef\xbb\xbf" + dump.read_bytes().replace(b"\n", b"\r\n")
    assert answer("-", stdin=windows)["summary"] == plain
    assert answer("-", stdin=dump.read_text().encode("utf-16"))["summary"] == plain


def test_a_gzip_file_that_was_cut_gives_what_is_sound(dump: Path, tmp_path: Path) -> None:
    packed = tmp_path / "cut.gz"
    packed.write_bytes(gzip.compress(dump.read_bytes())[:-30])
    document = answer(packed)
    assert document["summary"]["switches"] >= 2
    assert document["faults"]


def test_several_dumps_are_one_document_and_an_unreadable_one_is_a_finding(dump: Path, tmp_path: Path) -> None:
    document = answer(dump, tmp_path / "absent")
    assert document["summary"]["switches"] == 4
    assert [fault["kind"] for fault in document["faults"]] == ["unreadable_file"]


@pytest.mark.parametrize(
    "content", [b"", b"\x00\xff" * 4096, b"\x1f\x8bnonsense", b"hello\n", b'Ca\t1 "H-1"\t# "n0 HCA-1"\n']
)
def test_what_holds_no_fabric_ends_with_one_line_that_names_the_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.topo"
    path.write_bytes(content)
    done = opsk("--json", path)
    assert done.returncode == 2
    assert done.stdout == b""
    assert str(path).encode() in done.stderr.splitlines()[0]
    assert b"Traceback" not in done.stderr


def test_a_missing_file_and_no_file_at_all_are_wrong_usage(tmp_path: Path) -> None:
    assert opsk(tmp_path / "absent").returncode == 2
    assert opsk().returncode == 2


def test_live_without_the_program_says_what_to_install() -> None:
    done = opsk("--live", path="/nonexistent")
    assert done.returncode == 3
    assert b"infiniband-diags" in done.stderr


def test_live_reads_what_the_program_prints_and_gives_up_in_time(dump: Path, tmp_path: Path) -> None:
    program = tmp_path / "ibnetdiscover"
    program.write_text(f"#!/bin/sh\ncat {dump}\n")
    program.chmod(0o755)
    assert answer("--live", path=f"{tmp_path}:/usr/bin:/bin")["summary"]["switches"] == 4
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    done = opsk("--live", "--deadline", "0.2", path=f"{tmp_path}:/usr/bin:/bin")
    assert done.returncode == 3
    assert b"did not answer within 0.2 s" in done.stderr


def test_the_tree_for_slurm_is_written_with_the_nodes_asked_for(dump: Path) -> None:
    done = opsk(dump, "--write", "tree", "--nodes", "n[0-1]")
    assert read_topology_conf(done.stdout.decode()).nodes == ("n0", "n1")


def test_strict_turns_findings_into_exit_status_1(dump: Path) -> None:
    assert opsk("--strict", dump).returncode == 0
    dump.write_text(dump.read_text() + "rubbish\n")
    assert opsk("--strict", dump).returncode == 1
    assert opsk(dump).returncode == 0


def test_text_cannot_control_the_terminal(dump: Path) -> None:
    dump.write_text(dump.read_text().replace("leaf0", "\x1b[2Jleaf0").replace("n3 ", "[bold]n3\u202e "))
    done = opsk(dump)
    assert done.returncode == 0
    assert b"\x1b" not in done.stdout
    assert "\u202e" not in done.stdout.decode()


def test_people_see_rails_and_findings(dump: Path) -> None:
    text = opsk(dump).stdout.decode()
    assert "rail 1" in text
    assert "4 down, 4 up" in text
    assert "No problems found." in text


@pytest.mark.shared
def test_every_open_fabric_gives_its_summary_on_the_command_line(shared: Path) -> None:
    expected = json.loads((shared / "data/real/EXPECTED.json").read_text())["ib_fabric"]
    for name, right in expected.items():
        done = opsk("--json", shared / "data/real/ib_fabric" / name)
        if "refuse" in right:
            assert done.returncode == 2
            continue
        got = json.loads(done.stdout)["summary"]
        assert {key: got[key] for key in SUMMARY_KEYS} == {key: right[key] for key in SUMMARY_KEYS}, name
