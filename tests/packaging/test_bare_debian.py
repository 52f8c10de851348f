"""Do the packages install, run and go on a bare Debian, with its own shell, accounts and Python around them?

The root is a copy, entered by chroot; dpkg checks what the package depends on, and the scripts run as on a host.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from opsk import __version__
from tests.bare_root.root import copy_root, make_bare_root
from tests.packaging.conftest import Release, program, run

# What dpkg, rpm, systemd-analyze and the programs that make users keep for themselves is not ours to count.
OTHERS = ("var/lib/dpkg/", "run/systemd", "var/lib/rpm/", "usr/lib/sysimage/", "var/log/dpkg.log")


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A bare Debian of this machine's release."""
    return copy_root(make_bare_root(), tmp_path / "host")


def with_proc(host: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a program while the root has /proc, in a mount namespace of its own: the mount ends with the program."""
    private = (program("unshare", "util-linux"), "--mount", "--propagation", "private")
    if run(*private, "true").returncode:
        pytest.skip("nothing may be mounted here")
    return run(*private, "sh", "-c", 'mount --bind /proc "$0/proc" && exec "$@"', host, *words)


def inside(host: Path, *words: str) -> str:
    """Run a program in the root, as on a host that has just been booted: no variable of ours."""
    done = with_proc(
        host,
        *(program("chroot", "coreutils"), host, "/usr/bin/env", "-i"),
        *("PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", *words),
    )
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def files(host: Path) -> set[str]:
    """Return all that is in the root, with what accounts there are."""
    names = {path.relative_to(host).as_posix() for path in host.rglob("*") if not path.is_relative_to(host / "proc")}
    kept = {name for name in names if not name.startswith(OTHERS) and not name.endswith("-")}
    accounts = (host / "etc" / "passwd").read_text(encoding="ascii") + (host / "etc" / "group").read_text(
        encoding="ascii"
    )
    return (kept - {"etc/.pwd.lock"}) | set(accounts.splitlines())


def works(host: Path, root: Path) -> None:
    """Have the installed opsk tell its version, answer a question and pass systemd's own check of its units."""
    assert inside(host, "opsk", "--version") == f"opsk, version {__version__}\n"
    shutil.copy(root / "examples" / "llama3-8b-megatron.sbatch", host / "tmp" / "job.sbatch")
    assert "fits" in inside(host, "opsk", "check", "--json", "--cluster", "titan", "/tmp/job.sbatch")
    (host / "tmp" / "job.sbatch").unlink()
    assert "opsk" in inside(host, "id", "opsk")
    assert inside(host, "stat", "-c", "%U %a", "/run/opsk") == "opsk 755\n"
    inside(host, "systemd-analyze", "verify", "--man=no", "opsk-advisor.service", "opsk-exporter.service")


def test_the_deb_with_all_that_it_depends_on(release: Release, host: Path, root: Path) -> None:
    before = files(host)
    shutil.copy(release.file("opsk_*.deb"), host / "tmp" / "opsk.deb")
    inside(host, "dpkg", "--force-unsafe-io", "--install", "/tmp/opsk.deb")
    (host / "tmp" / "opsk.deb").unlink()
    works(host, root)
    inside(host, "dpkg", "--purge", "opsk")
    assert files(host) ^ before == set()


def test_the_rpm_with_its_scripts(release: Release, host: Path, root: Path) -> None:
    # Debian's rpm knows nothing of what Debian installed: hence --nodeps. Scripts run in the root.
    package = release.file("opsk-*.rpm")
    before = files(host)
    installed = with_proc(host, program("rpm", "rpm"), "--root", host, "--install", "--nodeps", package)
    assert (installed.returncode, installed.stdout) == (0, ""), installed.stderr
    works(host, root)
    erased = with_proc(host, "rpm", "--root", host, "--erase", "--nodeps", "opsk")
    assert erased.returncode == 0, erased.stderr
    # Rpm has no purge: what stays is named.
    assert "left as they are: /var/log/opsk" in erased.stderr + erased.stdout
    left = {name for name in files(host) ^ before if "opsk" in name and ":" not in name}
    assert left == {"var/log/opsk"}
