"""Checks this host besides Slurm: munge, Prometheus, GPUs, HCAs, and the permissions of opsk's folders."""

from __future__ import annotations

import shutil
import stat
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from opsk.app.doctor.finding import Finding, note, sound, unknown, wrong
from opsk.cli.doctor.http import fetch
from opsk.config import TopConfig
from opsk.errors import TelemetryError
from opsk.lab.programs import build_search_path
from opsk.telemetry.gpu.nvml.source import NvmlGpus
from opsk.telemetry.network.infiniband import DeviceSample, SysfsInfiniband

DEADLINE_S = 10.0
PROMETHEUS = "http://127.0.0.1:9090"
_OTHERS_MAY_WRITE = stat.S_IWOTH
_OTHERS_MAY_ENTER = stat.S_IXOTH


def check_munge(*, is_needed: bool, socket: str | None = None) -> Iterator[Finding]:
    """Check munge by signing and verifying a credential; ``socket`` is that of ``AuthInfo`` in slurm.conf."""
    munge, unmunge = (shutil.which(name, path=build_search_path()) for name in ("munge", "unmunge"))
    if munge is None or unmunge is None:
        build_finding = wrong if is_needed else note
        yield build_finding(
            "munge", "munge and unmunge are not on PATH", hint="install munge, or use auth/slurm (23.11 on)"
        )
        return
    socket_options = ["-S", socket] if socket else []
    try:
        signed = subprocess.run([munge, "-n", *socket_options], capture_output=True, timeout=DEADLINE_S, check=False)
        checked = subprocess.run(
            [unmunge, *socket_options], input=signed.stdout, capture_output=True, timeout=DEADLINE_S, check=False
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        yield unknown("munge", f"gives no answer: {getattr(error, 'strerror', None) or 'too slow'}", munge)
        return
    if signed.returncode or checked.returncode:
        messages = (signed.stderr or checked.stderr).decode("utf-8", errors="replace").strip().splitlines()
        what = f"cannot sign: {messages[-1] if messages else 'without a word'}"
        build_finding = wrong if is_needed else note
        yield build_finding(
            "munge", what, munge, "systemctl enable --now munge; the same /etc/munge/munge.key on all hosts"
        )
        return
    yield sound("munge", "signs, and checks what it signed", munge)


def check_prometheus(url: str | None) -> tuple[str | None, Finding]:
    """Return the Prometheus that answers: the one named, else one of this host."""
    address = url or PROMETHEUS
    answer = fetch(f"{address.rstrip('/')}/-/ready", TopConfig(), deadline_s=2.0)
    if not answer.problem:
        return address, sound("prometheus", "answers", address)
    if url is not None:
        hint = "systemctl status prometheus on its host; opsk.toml names it all the same"
        return url, wrong("prometheus", f"does not answer: {answer.problem}", url, hint)
    return None, note("prometheus", "none on this host", hint="--prometheus URL names the site's")


def find_gpus() -> tuple[tuple[str, ...], Finding]:
    """Return the names of the GPUs that NVML shows."""
    source = NvmlGpus()
    try:
        reading = source.gpus()
    except (TelemetryError, ImportError) as error:
        return (), note("gpus", f"none by NVML: {error}", hint="right on a login node; else is the driver loaded?")
    finally:
        source.close()
    names = tuple(gpu.model or "GPU" for gpu in reading.gpus)
    counted = ", ".join(f"{count} × {name}" for name, count in Counter(names).items())
    if reading.lost:
        return names, wrong("gpus", f"{len(reading.lost)} no longer answer; {counted}", hint="dmesg | grep -i xid")
    return names, sound("gpus", counted) if names else note("gpus", "NVML shows none")


def find_hcas(sysfs: Path) -> tuple[tuple[DeviceSample, ...], list[Finding]]:
    """Return the HCAs that sysfs shows, and which of their ports are not up."""
    try:
        devices = SysfsInfiniband(sysfs).devices()
    except (TelemetryError, OSError) as error:
        return (), [note("hcas", f"none by sysfs: {error}", sysfs / "class" / "infiniband")]
    if not devices:
        return (), [note("hcas", "none by sysfs", sysfs / "class" / "infiniband", "right on a login node")]
    ports = [port for device in devices for port in device.ports]
    down = [f"{port.device}/{port.port}" for port in ports if port.state_name not in {None, "ACTIVE"}]
    findings = [sound("hcas", f"{len(devices)}: {', '.join(device.device for device in devices)}")]
    if down:
        findings.append(
            wrong("hcas", f"ports that are not active: {', '.join(down)}", hint="ibstat; is a subnet manager running?")
        )
    return devices, findings


def check_permissions(root: Path, *, folders: Sequence[tuple[str, str]]) -> Iterator[Finding]:
    """Check opsk's folders and the user that it runs as; ``folders`` are paths, each with how to create it."""
    for name, maker in folders:
        path = root / name
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            yield note("permissions", "is not there yet", path, maker)
            continue
        except OSError as error:
            yield unknown("permissions", f"cannot be looked at: {error.strerror}", path, "run opsk setup as root")
            continue
        if mode & _OTHERS_MAY_WRITE:
            yield wrong("permissions", "anybody may write here", path, f"chmod o-w {path}")
        elif name != "var/log/opsk" and not mode & _OTHERS_MAY_ENTER:
            yield wrong("permissions", "users cannot enter it: they would not reach the advisor or its settings", path,
                        f"chmod o+rx {path}")  # fmt: skip
        else:
            yield sound("permissions", f"mode {stat.S_IMODE(mode):#o}", path)
    passwd = root / "etc" / "passwd"
    try:
        is_there = any(
            line.startswith("opsk:") for line in passwd.read_text(encoding="utf-8", errors="replace").splitlines()
        )
    except OSError:
        is_there = False
    if is_there:
        yield sound("user", "opsk is there", passwd)
    else:
        yield note("user", "there is no user opsk yet", passwd, "systemd-sysusers, with sysusers.d/opsk.conf")
