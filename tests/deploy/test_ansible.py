"""Does the Ansible role hold under ansible's own checks, and put all files where they belong, twice alike?"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from opsk.config import load_site
from opsk_jobcheck.service.hooks import ADVICE, HOOKS

EVERYTHING = {
    **{f"opsk_{what}": True for what in ("login", "controller", "node", "collect", "missed", "prometheus", "grafana")},
    "opsk_exporter_allow": ["10.1.0.0/16", "10.2.0.0/16"],
    "opsk_exporter_drop_ins": ["kernel-log", "rapl"],
    "opsk_evidence_folder": "/shared/opsk/postmortem",
    "opsk_targets": ["n0", "n1"],
    "opsk_cluster": "titan",
}


def program(name: str) -> str:
    found = shutil.which(name, path="/usr/bin:/usr/local/bin")  # not a stray one on the tests' PATH
    if found is None:
        pytest.skip(f"{name} is not installed here: deploy/install-system-packages --tests")
    return found


def run(name: str, *words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    kept = {key: text for key, text in os.environ.items() if not key.startswith(("ANSIBLE_", "PYTHON", "VIRTUAL_ENV"))}
    path = "/usr/sbin:/usr/bin:/sbin:/bin"
    environment = {
        **kept,
        "PATH": path,
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_PIPELINING": "1",  # one process a task in place of five
        "ANSIBLE_LOCAL_TEMP": str(cwd / "tmp"),
    }
    command = [program(name), *map(str, words)]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=560, check=False)


@pytest.fixture
def here(root: Path, tmp_path: Path) -> Path:
    """A copy of the role, for ansible's tools write beside what they read."""
    shutil.copytree(root / "deploy" / "ansible", tmp_path / "ansible")
    (tmp_path / "ansible" / "tmp").mkdir()
    return tmp_path / "ansible"


def write_python_with_ansible(here: Path) -> Path:
    """Write a Python that has imported what each of Ansible's modules brings along, and compiles, for each task."""
    path = here / "python"
    path.write_text(
        '#!/bin/sh\nexec /usr/bin/python3 -c "import sys, ansible.module_utils.basic; exec(sys.stdin.read())"\n'
    )
    path.chmod(0o755)
    return path


def play(here: Path, *options: str, **variables: object) -> subprocess.CompletedProcess[str]:
    """Apply the role to this machine, below a folder."""
    book = [{"hosts": "all", "gather_facts": False, "connection": "local", "roles": ["opsk"], "vars": variables}]
    (here / "play.yml").write_text(yaml.safe_dump(book))
    words = (
        "-i",
        "localhost,",
        "-e",
        f"ansible_python_interpreter={write_python_with_ansible(here)}",
        *options,
        "play.yml",
    )
    return run("ansible-playbook", *words, cwd=here)


@pytest.fixture
def command(root: Path, here: Path) -> Path:
    path = here / "opsk"
    path.write_text(f'#!/bin/sh\ncd "{root}" && exec "{sys.executable}" -m opsk "$@"\n')
    path.chmod(0o755)
    return path


def changed(done: subprocess.CompletedProcess[str]) -> int:
    found = re.search(r"changed=(\d+)\s+unreachable=0\s+failed=0", done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert found, done.stdout
    return int(found[1])


def test_ansible_understands_the_book_of_a_whole_site(here: Path) -> None:
    done = run("ansible-playbook", "--syntax-check", "-i", "inventory.example.yml", "site.yml", cwd=here)
    assert done.returncode == 0, done.stdout + done.stderr


def test_ansible_lint_finds_no_fault(here: Path) -> None:
    done = run("ansible-lint", "--offline", "--nocolor", "site.yml", "roles/opsk", cwd=here)
    assert done.returncode == 0, done.stdout + done.stderr


def test_all_files_come_into_place_once_and_go_as_the_page_says(root: Path, here: Path, command: Path) -> None:
    top = here / "root"
    settings = {**EVERYTHING, "opsk_root": str(top), "opsk_deploy": str(root / "deploy"), "opsk_command": str(command)}
    assert changed(play(here, **settings)) > 10
    made = {str(path.relative_to(top)) for path in top.rglob("*") if path.is_file()}
    assert {f"etc/slurm/{name}" for name in (*HOOKS, ADVICE, "opsk-hooks.conf", "opsk-prolog", "opsk-epilog")} <= made
    assert "etc/slurm/opsk-task-prolog" in made
    units = {f"opsk-{what}.service" for what in ("advisor", "watcher", "recorder", "exporter", "collector")}
    assert {f"etc/systemd/system/{name}" for name in units} <= made
    load_site(top / "etc" / "opsk" / "opsk.toml")
    assert (top / "usr" / "bin" / "opsk").readlink() == command, "units start /usr/bin/opsk"
    addresses = (top / "etc/systemd/system/opsk-exporter.service.d/addresses.conf").read_text()
    assert "IPAddressAllow=localhost 10.1.0.0/16 10.2.0.0/16\n" in addresses
    targets = yaml.safe_load((top / "etc/prometheus/opsk/titan.yml").read_text())
    assert targets == [{"targets": ["n0:9876", "n1:9876"], "labels": {"cluster": "titan"}}]
    dashboards = top / "var/lib/grafana/dashboards/opsk"
    for path in (root / "deploy" / "grafana").glob("opsk-*.json"):
        assert json.loads((dashboards / path.name).read_text())
    assert changed(play(here, **settings)) == 0
    page = (root / "docs" / "howto" / "install.md").read_text()
    for line in re.findall(r"^rm -r?f +(.*?)(?: +#.*)?$", page, re.MULTILINE):
        for pattern in line.split():
            for path in top.glob(pattern.lstrip("/")):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    left = {str(path.relative_to(top)) for path in top.rglob("*") if path.is_file()}
    assert not left, "what is put in place is told of where it is taken away"


def test_a_check_of_a_new_host_goes_through_and_changes_nothing(root: Path, here: Path, command: Path) -> None:
    top = here / "root"
    settings = {**EVERYTHING, "opsk_root": str(top), "opsk_deploy": str(root / "deploy"), "opsk_command": str(command)}
    done = play(here, "--check", "--diff", **settings)
    assert changed(done) > 10
    assert "Where dashboards are" in done.stdout, "it comes to the last part"
    assert not top.exists()


def test_a_host_becomes_another_with_the_next_play(root: Path, here: Path, command: Path) -> None:
    """One host without jobs reports on those that ended with their nodes; then it is a node; then it may read less."""
    top = here / "root"
    settings = {"opsk_root": str(top), "opsk_deploy": str(root / "deploy"), "opsk_command": str(command)}
    folder, configuration = "/shared/opsk/postmortem", 'cluster = "superpod-h100"\n'
    reports = {"opsk_missed": True, "opsk_evidence_folder": folder, "opsk_configuration": configuration}
    assert changed(play(here, **settings, **reports)) > 0
    units = top / "etc" / "systemd" / "system"
    of_collector = units / "opsk-collector.service.d"
    assert "collect --missed" in (of_collector / "missed.conf").read_text()
    assert (of_collector / "folder.conf").read_text() == f"[Service]\nReadWritePaths={folder}\n"
    # The unit does not start without the spool that it may write.
    assert (top / "etc" / "tmpfiles.d" / "opsk-evidence.conf").is_file()
    assert (units / "opsk-collector.timer").is_file()
    assert not (units / "opsk-exporter.service").exists()
    given = top / "etc" / "opsk" / "opsk.toml"
    assert tomllib.loads(given.read_text()) == {"cluster": "superpod-h100"}

    node = {"opsk_node": True, "opsk_collect": True}
    changed(play(here, **settings, **node, opsk_exporter_drop_ins=["kernel-log", "rapl"]))
    assert not (of_collector / "missed.conf").exists(), "a host that is no longer the one asks no more"
    assert tomllib.loads(given.read_text()) == {"cluster": "superpod-h100"}, "a configuration that is there stays"
    of_exporter = units / "opsk-exporter.service.d"
    assert {path.name for path in of_exporter.iterdir()} == {"kernel-log.conf", "rapl.conf"}

    (of_exporter / "own.conf").write_text("[Service]\nNice=3\n")
    assert changed(play(here, **settings, **node, opsk_exporter_drop_ins=["rapl"])) == 1
    assert {path.name for path in of_exporter.iterdir()} == {"rapl.conf", "own.conf"}, (
        "what is not chosen gives up rights"
    )


def test_every_setting_of_the_role_has_a_default_and_is_used(root: Path) -> None:
    role = root / "deploy" / "ansible" / "roles" / "opsk"
    defaults = yaml.safe_load((role / "defaults" / "main.yml").read_text())
    texts = "".join(path.read_text() for path in role.rglob("*") if path.is_file() and "defaults" not in path.parts)
    used = set(re.findall(r"\bopsk_[a-z_]+\b", texts))
    registered = set(re.findall(r"register: (opsk_\w+)", texts))
    assert used - registered == set(defaults)
