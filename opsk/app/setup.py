"""Checks a host besides its site, and writes a site configuration from what it finds."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from opsk.app.doctor.finding import Finding, note, sound, unknown, wrong
from opsk.app.doctor.slurm import (
    InstalledSlurm,
    check_installed_slurm,
    find_installed_slurm,
)
from opsk.app.site_pages import fetch
from opsk.config import TopConfig, load_site
from opsk.errors import InputError, OpskError, SlurmError, TelemetryError
from opsk.hardware.catalog import cluster, names
from opsk.lab.programs import build_search_path
from opsk.slurm.commands.command import CommandClient
from opsk.slurm.topology.release import format_release
from opsk.telemetry.gpu.nvml.source import NvmlGpus
from opsk.telemetry.network.infiniband import DeviceSample, SysfsInfiniband

DEADLINE_S = 10.0
PROMETHEUS = "http://127.0.0.1:9090"
_OTHERS_MAY_WRITE = stat.S_IWOTH
_OTHERS_MAY_ENTER = stat.S_IXOTH
BACKUP_SUFFIX = ".before-setup"
FOLDERS = (
    ("etc/opsk", "opsk setup makes it, as root"),
    ("run/opsk", "systemd-tmpfiles --create, with tmpfiles.d/opsk.conf; or opsk-advisor.service"),
    ("var/log/opsk", "systemd-tmpfiles --create, with tmpfiles.d/opsk.conf"),
    ("run/opsk-jobs", "on nodes with GPUs: systemd-tmpfiles --create, with tmpfiles.d/opsk-jobs.conf"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteFacts:
    """The detected or given facts of the site; ``None`` or empty where unknown."""

    release: str = ""
    cluster: str | None = None
    slurm_user: str | None = None
    default_partition: str | None = None
    prometheus: str | None = None
    fabric: tuple[Path, ...] = ()
    gpus: tuple[str, ...] = field(default=())
    hcas: int = 0
    shadow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCheck:
    """The detected facts of the site, and the findings."""

    facts: SiteFacts
    slurm: InstalledSlurm
    hcas: tuple[str, ...]
    findings: tuple[Finding, ...]


def check_host(
    root: Path, named: str | None, fabric: tuple[Path, ...], prometheus: str | None, *, shadow: bool
) -> HostCheck:
    """Run all checks.

    Raises
    ------
    InputError
        A cluster, a fabric's file or a URL that was named cannot be used.
    """
    _validate_names(named, fabric, prometheus)
    slurm = find_installed_slurm(root)
    config, partition = _read_slurmctld()
    answering, prometheus_finding = check_prometheus(prometheus)
    gpus, gpu_finding = find_gpus()
    hcas, hca_findings = find_hcas(root / "sys")
    facts = SiteFacts(
        release="" if slurm.release is None else format_release(slurm.release),
        cluster=named,
        slurm_user=_parse_user(config.get("SlurmUser")),
        default_partition=partition,
        prometheus=answering,
        fabric=fabric,
        gpus=gpus,
        hcas=len(hcas),
        shadow=shadow,
    )
    is_munge = "munge" in config.get("AuthType", "auth/munge")
    findings = (
        *check_installed_slurm(slurm), *check_munge(is_needed=is_munge, socket=_find_munge_socket(config)),
        prometheus_finding, *check_permissions(root, folders=FOLDERS), gpu_finding, *hca_findings,
    )  # fmt: skip
    return HostCheck(facts=facts, slurm=slurm, hcas=tuple(each.device for each in hcas), findings=findings)


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
        yield unknown("munge", f"does not answer: {getattr(error, 'strerror', None) or 'too slow'}", munge)
        return
    if signed.returncode or checked.returncode:
        messages = (signed.stderr or checked.stderr).decode("utf-8", errors="replace").strip().splitlines()
        what = f"cannot sign: {messages[-1] if messages else 'no message'}"
        build_finding = wrong if is_needed else note
        yield build_finding(
            "munge", what, munge, "systemctl enable --now munge; the same /etc/munge/munge.key on all hosts"
        )
        return
    yield sound("munge", "signs and verifies credentials", munge)


def check_prometheus(url: str | None) -> tuple[str | None, Finding]:
    """Return the Prometheus that answers: the one named, else one of this host."""
    address = url or PROMETHEUS
    answer = fetch(f"{address.rstrip('/')}/-/ready", TopConfig(), deadline_s=2.0)
    if not answer.problem:
        return address, sound("prometheus", "answers", address)
    if url is not None:
        hint = "systemctl status prometheus on its host; opsk.toml contains it anyway"
        return url, wrong("prometheus", f"does not answer: {answer.problem}", url, hint)
    return None, note("prometheus", "none on this host", hint="give the site's with --prometheus URL")


def find_gpus() -> tuple[tuple[str, ...], Finding]:
    """Return the names of the GPUs that NVML shows."""
    source = NvmlGpus()
    try:
        reading = source.gpus()
    except (TelemetryError, ImportError) as error:
        return (), note(
            "gpus", f"NVML finds none: {error}", hint="fine on a login node; otherwise: is the driver loaded?"
        )
    finally:
        source.close()
    names = tuple(gpu.model or "GPU" for gpu in reading.gpus)
    counted = ", ".join(f"{count} × {name}" for name, count in Counter(names).items())
    if reading.lost:
        return names, wrong("gpus", f"{len(reading.lost)} no longer answer; {counted}", hint="dmesg | grep -i xid")
    return names, sound("gpus", counted) if names else note("gpus", "NVML finds none")


def find_hcas(sysfs: Path) -> tuple[tuple[DeviceSample, ...], list[Finding]]:
    """Return the HCAs that sysfs shows, and which of their ports are not up."""
    try:
        devices = SysfsInfiniband(sysfs).devices()
    except (TelemetryError, OSError) as error:
        return (), [note("hcas", f"sysfs shows none: {error}", sysfs / "class" / "infiniband")]
    if not devices:
        return (), [note("hcas", "sysfs shows none", sysfs / "class" / "infiniband", "fine on a login node")]
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
            yield note("permissions", "does not exist yet", path, maker)
            continue
        except OSError as error:
            yield unknown("permissions", f"cannot be checked: {error.strerror}", path, "run opsk setup as root")
            continue
        if mode & _OTHERS_MAY_WRITE:
            yield wrong("permissions", "everybody may write here", path, f"chmod o-w {path}")
        elif name != "var/log/opsk" and not mode & _OTHERS_MAY_ENTER:
            yield wrong("permissions", "users cannot enter it, so they cannot reach the advisor or its settings", path,
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
        yield sound("user", "user opsk exists", passwd)
    else:
        yield note("user", "user opsk does not exist yet", passwd, "systemd-sysusers, with sysusers.d/opsk.conf")


def format_site(facts: SiteFacts) -> str:
    """Return the text of the site configuration."""
    begin = (_format_head(facts), _format_fabric(facts), _format_advisor(facts), _format_policy(facts))
    return "\n".join(
        (*begin, _format_exporter(), _format_top(facts), _format_store(), _format_learning(), _format_postmortem())
    )


def _format_key(name: str, value: object, comment: str = "", *, known: bool = True) -> str:
    """Return one key, as a comment where its value is not known."""
    text = f"{name} = {json.dumps(value, ensure_ascii=False)}"
    return ("" if known else "# ") + text + (f"  # {comment}" if comment else "") + "\n"


def _format_head(facts: SiteFacts) -> str:
    gpus = ", ".join(f"{count} x {_strip_controls(name)}" for name, count in Counter(facts.gpus).items())
    here = "; ".join(part for part in (gpus, f"{facts.hcas} HCAs" if facts.hcas else "") if part)
    detected = f"# On the host where this was written: {here}.\n" if here else ""
    return (
        "# The site configuration of opsk: docs/reference/site-configuration.md has all keys.\n"
        "# Written by opsk setup; edit it freely: opsk setup changes it again only with --force.\n"
        f"{detected}\n"
        "# Name of a cluster in the catalogue (opsk check --cluster NAME lists them), or path of a cluster TOML:\n"
        + _format_key("cluster", facts.cluster or "/etc/opsk/cluster.toml", known=facts.cluster is not None)
    )


def _format_fabric(facts: SiteFacts) -> str:
    paths = [str(path) for path in facts.fabric] or ["/var/lib/opsk/fabric.ibnetdiscover"]
    return (
        "# Dumps of the compute fabric; advice uses them to place ranks. As root: ibnetdiscover > FILE\n"
        + _format_key("fabric", paths, known=bool(facts.fabric))
    )


def _format_advisor(facts: SiteFacts) -> str:
    users = list(dict.fromkeys(("root", facts.slurm_user or "slurm")))
    return (
        "[advisor]\n"
        + _format_key("submit_users", users, "users that may ask on behalf of others: the user of slurmctld")
        + _format_key(
            "audit_log", "/var/log/opsk/audit.jsonl", "one JSON line per question, without the text of scripts"
        )
        + "# Partition of jobs that request none; rules by partition need it:\n"
        + _format_key("default_partition", facts.default_partition or "gpu", known=facts.default_partition is not None)
        + "# With opsk-watcher.service, advice takes running jobs and free nodes into account:\n"
        + _format_key("live_folder", "/run/opsk-live", known=False)
    )


def _format_policy(facts: SiteFacts) -> str:
    mark = "" if facts.shadow else "# "
    return (
        "# What happens to jobs: the first matching rule applies (docs/howto/set-a-policy.md). This one computes and\n"
        "# logs advice and shows it to nobody: use it for the first days.\n"
        f'{mark}[[advisor.policy]]\n{mark}action = "shadow"\n'
    )


def _format_exporter() -> str:
    return "[exporter]\n# The rail of each port, written by opsk fabric --rails-file:\n" + _format_key(
        "rails_file", "/etc/opsk/rails.json", known=False
    )


def _format_top(facts: SiteFacts) -> str:
    return "[top]\n# The site's Prometheus, for opsk top and opsk doctor:\n" + _format_key(
        "prometheus", facts.prometheus or "http://prometheus:9090", known=facts.prometheus is not None
    )


def _format_store() -> str:
    return (
        "[store]\n"
        "# Database of predictions, measurements, failures and reports: docs/howto/choose-a-database.md.\n"
        "# Put no password here: every user can read this file.\n"
        + _format_key("url", "sqlite:////var/lib/opsk/opsk.db", known=False)
    )


def _format_learning() -> str:
    return (
        "[learning]\n"
        "# Fit to the site's own jobs every night; it needs the store: docs/howto/learn-from-the-site.md.\n"
        + _format_key("enabled", value=True, known=False)
    )


def _format_postmortem() -> str:
    return (
        "[postmortem]\n"
        "# Evidence and reports on failed jobs, on storage that all nodes share: docs/howto/keep-evidence.md.\n"
        + _format_key("folder", "/shared/opsk/postmortem", known=False)
    )


def _strip_controls(name: str) -> str:
    """Return a device's name without control characters, for a comment."""
    return "".join(char for char in name if char.isprintable())[:80]


def write_site(path: Path, text: str) -> Path | None:
    """Write the file whole, mode 0644, and read it back; return the backup of an earlier file.

    Raises
    ------
    OSError
        The folder cannot be made or written.
    ConfigError
        opsk cannot read what was written; the earlier file stays.
    """
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.chmod(0o644)
        load_site(draft)
        backup = _back_up(path)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return backup


def _back_up(path: Path) -> Path | None:
    """Rename a file to an unused backup name."""
    if not path.exists():
        return None
    number = 0
    while (backup := path.with_name(f"{path.name}{BACKUP_SUFFIX}{'' if number == 0 else f'.{number}'}")).exists():
        number += 1
    path.rename(backup)
    return backup


def _validate_names(named: str | None, fabric: tuple[Path, ...], prometheus: str | None) -> None:
    if named is not None and "/" not in named and not named.endswith(".toml"):
        try:
            cluster(named)
        except OpskError as error:
            raise InputError(error.message, hint=error.hint or ", ".join(names("cluster"))) from error
    for path in fabric:
        if not path.is_absolute():
            raise InputError(
                f"{path}: not an absolute path, which the advisor needs", hint=f"--fabric {path.absolute()}"
            )
    if prometheus is not None and (not prometheus.startswith(("http://", "https://")) or "@" in prometheus):
        # The part before an @ may be a password.
        shown = prometheus.rpartition("@")[2][:80]
        hint = "write it as http://HOST:9090; set user and password_file under [top]"
        raise InputError(f"{shown!r} is not the URL of a Prometheus", hint=hint)


def _read_slurmctld() -> tuple[Mapping[str, str], str | None]:
    """Return slurmctld's configuration and the default partition; nothing where it does not answer."""
    client = CommandClient(deadline_s=5.0)
    try:
        config = client.config()
        default = next((each.name for each in client.partitions() if each.is_default), None)
    except SlurmError:
        return {}, None
    return config, default


def _parse_user(text: str | None) -> str | None:
    """Return the user name from ``scontrol show config``: ``slurm(64030)``."""
    return text.partition("(")[0] if text else None


def _find_munge_socket(config: Mapping[str, str]) -> str | None:
    """Return the socket of munge that slurm.conf names: ``AuthInfo=socket=/run/munge.sock,ttl=60``."""
    words = (word.partition("=") for word in config.get("AuthInfo", "").split(","))
    return next((value for name, _, value in words if name.strip() == "socket" and value.startswith("/")), None)
