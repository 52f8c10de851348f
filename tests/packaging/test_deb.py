"""Does the ``.deb`` install, work, upgrade and go again without a trace, by dpkg itself and in an empty root?"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from opsk import __version__
from tests.packaging.conftest import Release, program, run

# A system has these; what dpkg and the programs that make users keep for themselves is not ours to count.
ACCOUNTS = ("passwd", "group", "shadow", "gshadow")
OTHERS = re.compile(r"var/lib/dpkg/.*|etc/(passwd|group|shadow|gshadow)-|etc/\.pwd\.lock|etc/\.updated|var/\.updated")

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root installs packages as they are meant")


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """A root with nothing in it but what every system has."""
    system = tmp_path / "system"
    for folder in (
        "var/lib/dpkg/info",
        "var/lib/dpkg/updates",
        "var/log",
        "var/spool",
        "etc/slurm",
        "etc/default",
        "run",
    ):
        (system / folder).mkdir(parents=True)
    (system / "var" / "lib" / "dpkg" / "status").touch()
    (system / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n", encoding="ascii")
    (system / "etc" / "group").write_text("root:x:0:\n", encoding="ascii")
    (system / "etc" / "shadow").write_text("root:*:19000:0:99999:7:::\n", encoding="ascii")
    (system / "etc" / "gshadow").write_text("root:*::\n", encoding="ascii")
    return system


@pytest.fixture(scope="module")
def package(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package without its Python modules, which none of its scripts looks at: it installs in a moment."""
    whole, stage = release.file("opsk_*.deb"), tmp_path_factory.mktemp("small") / "stage"
    stage.mkdir()
    unpacked = run(
        *("sh", "-c", 'dpkg-deb --fsys-tarfile "$1" | tar -x -C "$2" --exclude=./usr/lib/opsk/lib', "sh", whole, stage)
    )
    assert (unpacked.returncode, unpacked.stderr) == (0, "")
    made = stage.with_name("opsk.deb")
    for words in (("--control", whole, stage / "DEBIAN"), ("--root-owner-group", "-Znone", "--build", stage, made)):
        done = run(program("dpkg-deb", "dpkg"), *words)
        assert done.returncode == 0, done.stderr
    return made


def dpkg(system: Path, *words: str | Path) -> str:
    # Without chroot: the scripts of the package run here and are told where by DPKG_ROOT (dpkg(1)).
    done = run(
        *(
            program("dpkg", "dpkg"),
            f"--root={system}",
            "--force-script-chrootless",
            "--force-depends",
            "--force-unsafe-io",
        ),
        *("--log=/dev/null", *words),
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def files(system: Path) -> set[str]:
    names = {path.relative_to(system).as_posix() for path in system.rglob("*")}
    return {name for name in names if not OTHERS.fullmatch(name)}


def accounts(system: Path) -> dict[str, str]:
    return {name: (system / "etc" / name).read_text(encoding="ascii") for name in ACCOUNTS}


def test_it_comes_works_and_goes_without_a_trace(release: Release, system: Path, root: Path) -> None:
    before, users = files(system), accounts(system)
    dpkg(system, "--install", release.file("opsk_*.deb"))
    assert dpkg(system, "--verify", "opsk") == "", "every file is as it was packed"
    assert run(system / "usr" / "bin" / "opsk", "--version").stdout == f"opsk, version {__version__}\n"
    checked = run(
        system / "usr" / "bin" / "opsk", "check", "--cluster", "titan", root / "examples" / "llama3-8b-megatron.sbatch"
    )
    assert checked.returncode == 0, checked.stderr
    assert (system / "run" / "opsk").is_dir()
    assert "opsk:" in accounts(system)["passwd"]
    # What an administrator and the services leave in time.
    for place in (
        *("etc/opsk/opsk.toml", "etc/default/opsk-exporter", "var/lib/opsk/opsk.db", "var/log/opsk/audit.jsonl"),
        *("var/spool/opsk/ended/1", "run/opsk/advisor.sock", "run/opsk-jobs/1"),
    ):
        (system / place).parent.mkdir(parents=True, exist_ok=True)
        (system / place).touch()
    dpkg(system, "--purge", "opsk")
    assert files(system) == before
    assert accounts(system) == users


def test_removing_keeps_settings_and_records_until_the_purge(package: Path, system: Path) -> None:
    dpkg(system, "--install", package)
    (system / "etc" / "opsk").mkdir()
    (system / "etc" / "opsk" / "opsk.toml").touch()
    dpkg(system, "--remove", "opsk")
    left = {name for name in files(system) if "opsk" in name}
    assert left == {"etc/opsk", "etc/opsk/opsk.toml", "var/log/opsk"}


def test_installing_over_itself_keeps_everything_and_asks_nothing(package: Path, system: Path) -> None:
    dpkg(system, "--install", package)
    (system / "etc" / "opsk").mkdir()
    (system / "etc" / "opsk" / "opsk.toml").write_text("cluster = 'titan'\n", encoding="ascii")
    before = files(system)
    dpkg(system, "--install", package)
    assert files(system) == before
    assert (system / "etc" / "opsk" / "opsk.toml").read_text(encoding="ascii") == "cluster = 'titan'\n"


def test_hooks_that_slurmctld_may_need_are_named_and_stay(package: Path, system: Path) -> None:
    dpkg(system, "--install", package)
    (system / "etc" / "slurm" / "job_submit.lua").write_text("-- opsk\n", encoding="ascii")
    said = dpkg(system, "--purge", "opsk")
    assert "/etc/slurm/job_submit.lua stays" in said
    assert (system / "etc" / "slurm" / "job_submit.lua").exists()


def test_a_prolog_that_slurmd_may_call_is_named_and_stays(package: Path, system: Path) -> None:
    dpkg(system, "--install", package)
    (system / "etc" / "slurm" / "opsk-epilog").touch()
    said = dpkg(system, "--purge", "opsk")
    assert "/etc/slurm/opsk-epilog stays" in said
    assert "opsk-prolog" not in said
    assert (system / "etc" / "slurm" / "opsk-epilog").exists()


def test_an_account_that_the_site_made_is_not_removed(package: Path, system: Path) -> None:
    own = "opsk:x:1234:0:Olga Pskow:/home/opsk:/bin/bash\n"
    with (system / "etc" / "passwd").open("a", encoding="ascii") as file:
        file.write(own)
    dpkg(system, "--install", package)
    dpkg(system, "--purge", "opsk")
    assert own in accounts(system)["passwd"]


def test_files_belong_to_root_and_nobody_else_writes_them(release: Release) -> None:
    listed = run(program("dpkg-deb", "dpkg"), "--contents", release.file("opsk_*.deb")).stdout.splitlines()
    assert {line.split()[1] for line in listed} == {"root/root"}
    modes = {line.split()[0] for line in listed if not line.startswith("l")}
    assert modes <= {"drwxr-xr-x", "-rw-r--r--", "-rwxr-xr-x"}


def test_it_asks_for_the_python_and_the_libraries_that_it_was_made_for(release: Release) -> None:
    asked = run(program("dpkg-deb", "dpkg"), "--field", release.file("opsk_*.deb"), "Depends").stdout
    assert re.search(r"python3\.\d+, libc6 \(>= 2\.\d+\), libstdc\+\+6, procps", asked)
