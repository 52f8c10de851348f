"""Does `opsk setup` see what a host has, write a configuration that opsk reads, and leave a person's text alone?"""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from opsk.app.doctor.slurm import (
    InstalledSlurm,
    check_installed_slurm,
    find_installed_slurm,
    find_snippets,
    read_slurm_lines,
)
from opsk.app.setup import SiteFacts, format_site, write_site
from opsk.cli.setup import setup
from opsk.config import load_site
from opsk.errors import ConfigError, InputError
from opsk.telemetry.gpu.samples import LostGpu
from tests.fakes.gpus import FixedGpus, h100, reading


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root without anything, and a PATH without programs."""
    monkeypatch.setattr("opsk.app.doctor.slurm.build_search_path", lambda: str(tmp_path / "bin"))
    monkeypatch.setattr("opsk.app.setup.build_search_path", lambda: str(tmp_path / "bin"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


class Gpus(FixedGpus):
    """As NVML's GPUs, which are let go."""

    def close(self) -> None:
        pass


def run(*words: object) -> Result:
    return CliRunner().invoke(setup, [str(word) for word in words], standalone_mode=False)


def program(root: Path, name: str, text: str) -> None:
    path = root.parent / "bin" / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def put(path: Path, data: bytes = b"") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def site_with_slurm(root: Path, *, lua: str = "5.4", socket_of: str | None = "5.4") -> None:
    program(root, "slurmctld", "echo slurm-wlm 24.11.5")
    for name in ("job_submit_lua.so", "cli_filter_lua.so"):
        put(root / "usr/lib/x86_64-linux-gnu/slurm-wlm" / name, b"\x7fELF\0liblua%s.so.0\0" % lua.encode())
    if socket_of is not None:
        put(root / f"usr/lib/x86_64-linux-gnu/lua/{socket_of}/socket/unix.so")


def levels(done: Result, check: str) -> set[str]:
    return {each["level"] for each in json.loads(done.output)["findings"] if each["check"] == check}


def test_an_empty_host_is_told_what_it_lacks(empty: Path) -> None:
    done = run("--root", empty, "--dry-run", "--json")
    assert done.return_value == 1
    document = json.loads(done.output)
    assert document["slurm"]["release"] is None
    assert document["slurm_conf"] == []
    assert levels(done, "slurm") == levels(done, "munge") == {"wrong"}
    assert levels(done, "permissions") == {"note"}
    assert list(empty.iterdir()) == []


def test_slurm_its_plugins_and_their_lua_are_found(empty: Path) -> None:
    site_with_slurm(empty)
    done = run("--root", empty, "--json")
    document = json.loads(done.output)
    assert document["slurm"]["release"] == "24.11"
    assert document["slurm"]["lua"] == ["5.4"]
    assert document["slurm"]["lua_socket"].endswith("lua/5.4/socket/unix.so")
    assert levels(done, "slurm") == levels(done, "plugins") == levels(done, "lua-socket") == {"sound"}
    assert "JobSubmitPlugins=lua" in document["slurm_conf"]


@pytest.mark.parametrize("socket_of", [None, "5.1"])
def test_lua_socket_of_another_lua_does_not_help(empty: Path, socket_of: str | None) -> None:
    site_with_slurm(empty, socket_of=socket_of)
    (said,) = [each for each in check_installed_slurm(find_installed_slurm(empty)) if each.check == "lua-socket"]
    assert said.what.startswith("lua-socket is missing for Lua 5.4")


def test_a_slurm_that_is_too_old(empty: Path) -> None:
    found = list(check_installed_slurm(InstalledSlurm(release=(21, 8), program="/usr/sbin/slurmctld")))
    assert "older than 22.05" in found[0].what


def test_munge_that_signs_and_munge_that_does_not(empty: Path) -> None:
    program(empty, "munge", "echo MUNGE:x:")
    program(empty, "unmunge", "read x; [ $x = MUNGE:x: ]")
    assert levels(run("--root", empty, "--dry-run", "--json"), "munge") == {"sound"}
    program(empty, "munge", "echo 'munge: Error: no socket' >&2; exit 6")
    assert "no socket" in run("--root", empty, "--dry-run").output


def test_hcas_by_sysfs_and_a_port_that_is_down(empty: Path) -> None:
    for name, state in (("mlx5_0", "4: ACTIVE"), ("mlx5_1", "1: DOWN")):
        put(empty / "sys/class/infiniband" / name / "ports/1/state", f"{state}\n".encode())
    done = run("--root", empty, "--dry-run", "--json")
    assert json.loads(done.output)["hcas"] == ["mlx5_0", "mlx5_1"]
    assert levels(done, "hcas") == {"sound", "wrong"}
    assert "ports that are not active: mlx5_1/1" in done.output


def test_gpus_by_nvml_and_one_that_is_lost(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opsk.app.setup.NvmlGpus", lambda: Gpus(reading(h100(0), h100(1))))
    done = run("--root", empty, "--dry-run", "--json")
    document = json.loads(done.output)
    assert len(document["gpus"]) == 2
    assert levels(done, "gpus") == {"sound"}
    assert f"# On the host where this was written: 2 x {document['gpus'][0]}." in document["configuration"]
    lost = replace(reading(h100(0)), lost=(LostGpu(uuid=None, index=1, why="GPU is lost"),))
    monkeypatch.setattr("opsk.app.setup.NvmlGpus", lambda: Gpus(lost))
    assert levels(run("--root", empty, "--dry-run", "--json"), "gpus") == {"wrong"}


def test_rights_of_folders(empty: Path) -> None:
    (empty / "etc/opsk").mkdir(parents=True)
    (empty / "etc/opsk").chmod(0o777)
    (empty / "run/opsk").mkdir(parents=True)
    (empty / "run/opsk").chmod(0o750)
    (empty / "var/log/opsk").mkdir(parents=True)
    (empty / "var/log/opsk").chmod(0o750)
    put(empty / "etc/passwd", b"root:x:0:0::/:/bin/sh\nopsk:x:990:990::/:/usr/sbin/nologin\n")
    said = {each["where"]: each for each in json.loads(run("--root", empty, "--dry-run", "--json").output)["findings"]}
    assert said[str(empty / "etc/opsk")]["what"] == "everybody may write here"
    assert said[str(empty / "run/opsk")]["what"].startswith("users cannot enter it")
    assert said[str(empty / "var/log/opsk")]["level"] == "sound"
    assert said[str(empty / "etc/passwd")]["level"] == "sound"


def test_the_file_is_read_by_opsk_and_has_what_was_said(empty: Path) -> None:
    words = (
        "--cluster",
        "superpod-h100",
        "--fabric",
        "/var/lib/opsk/f",
        "--prometheus",
        "http://127.0.0.1:1",
        "--shadow",
    )
    done = run("--root", empty, "--json", *words)
    path = empty / "etc/opsk/opsk.toml"
    assert json.loads(done.output)["written"] is True
    assert path.stat().st_mode & 0o777 == 0o644
    assert path.read_text() == json.loads(done.output)["configuration"]
    site = load_site(path)
    assert (site.cluster, site.fabric, site.top.prometheus) == (
        "superpod-h100",
        (Path("/var/lib/opsk/f"),),
        "http://127.0.0.1:1",
    )
    assert [rule.action for rule in site.advisor.policy] == ["shadow"]


def test_every_key_that_stands_there_as_a_comment_is_one_that_opsk_knows(tmp_path: Path) -> None:
    text = format_site(SiteFacts())
    uncommented = "\n".join(
        line.removeprefix("# ") if "=" in line or "[[" in line else line for line in text.splitlines()
    )
    path = tmp_path / "opsk.toml"
    path.write_text(uncommented.replace("# First", "#").replace("# Name", "#"))
    keys = tomllib.loads(path.read_text())
    assert {"cluster", "fabric", "advisor", "exporter", "top", "store"} <= keys.keys()
    load_site(path)
    assert all(f"[{name}]" in text for name in ("advisor", "exporter", "top", "store"))


def test_a_persons_text_is_left_alone_and_kept_when_told_otherwise(empty: Path) -> None:
    path = empty / "etc/opsk/opsk.toml"
    put(path, b'cluster = "mine"\n')
    assert "is not changed" in run("--root", empty).output
    assert path.read_bytes() == b'cluster = "mine"\n'
    for number in ("", ".1"):
        assert run("--root", empty, "--force").exit_code == 0
        assert path.with_name(f"opsk.toml.before-setup{number}").exists()
    assert path.with_name("opsk.toml.before-setup").read_bytes() == b'cluster = "mine"\n'
    assert run("--root", empty, "--force", "--dry-run").exit_code == 0
    assert len(list(path.parent.iterdir())) == 3, "and no half-written file is left"


def test_what_opsk_would_not_read_is_not_put_in_place(tmp_path: Path) -> None:
    path = tmp_path / "opsk.toml"
    path.write_text("cluster = 'mine'\n")
    with pytest.raises(ConfigError):
        write_site(path, "clustre = 1\n")
    assert [each.name for each in tmp_path.iterdir()] == ["opsk.toml"]
    assert path.read_text() == "cluster = 'mine'\n"


def test_a_hostile_name_of_a_gpu_stays_a_comment(tmp_path: Path) -> None:
    path = tmp_path / "opsk.toml"
    path.write_text(format_site(SiteFacts(gpus=('x\n[store]\nurl = "sqlite:///evil"\n',))))
    assert load_site(path).store.url is None


@pytest.mark.parametrize(
    "words",
    [("--cluster", "no-such-cluster"), ("--fabric", "relative"), ("--prometheus", "ftp://x"),
     ("--prometheus", "http://user:pass@x")],
)  # fmt: skip
def test_what_cannot_be_used_is_refused(empty: Path, words: tuple[str, str]) -> None:
    assert isinstance(run("--root", empty, *words).exception, InputError)
    assert not (empty / "etc").exists()


def test_each_release_gets_the_newest_lines_up_to_it() -> None:
    known = find_snippets()
    assert list(known) == [(22, 5), (24, 11), (25, 11), (26, 5)]
    for release, of in (((21, 8), (22, 5)), ((23, 11), (22, 5)), ((25, 5), (24, 11)), ((27, 5), (26, 5))):
        assert read_slurm_lines(release) == tuple(known[of].read_text().splitlines())
