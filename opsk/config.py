"""Reads the site configuration: one TOML file, ``/etc/opsk/opsk.toml`` or the one that ``OPSK_CONFIG`` names."""

from __future__ import annotations

import difflib
import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from opsk.errors import ConfigError

DEFAULT_PATH = Path("/etc/opsk/opsk.toml")
PUBLISHED_FIT = "efficiency.toml"
"""Name of the published fit in the folder of learning."""
KEYS_PAGE = "docs/reference/site-configuration.md"

PolicyAction = Literal["off", "shadow", "annotate", "advise", "hold", "reject"]
_ONE_OR_MORE = BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)
_Patterns = Annotated[tuple[str, ...], _ONE_OR_MORE]
"""One pattern or a list; ``*`` and ``?`` are wildcards, as in file names."""


class PolicyRule(BaseModel):
    """A policy of the site for the jobs of some partitions, accounts and QOS.

    Parameters
    ----------
    partition, account, qos
        Matching jobs: one pattern or a list, of which one must match; left out, all match.
    action
        ``off``: nothing is computed; ``shadow``: computed and written to the audit log only; ``annotate``: only the
        record in the job; ``advise``: shown as well; ``hold``, ``reject``: as ``advise``, and a batch job that is
        certain to run out of memory is held or refused.
    oom_probability
        Probability of running out of memory from which ``hold`` and ``reject`` act.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    partition: _Patterns = ()
    account: _Patterns = ()
    qos: _Patterns = ()
    action: PolicyAction
    oom_probability: float = Field(default=0.99, ge=0.9, lt=1)


class AdvisorConfig(BaseModel):
    """Settings of the advisor that answers requests at ``sbatch``.

    Parameters
    ----------
    socket, socket_mode
        The Unix socket and who may connect: 0o666 every user of the machine, 0o660 only the socket's group.
    submit_users
        Users that may send requests for others: the user of slurmctld. The advisor's own user always may.
    workers
        Number of processes that compute advice; one slow script keeps at most one of them busy.
    short_advice_from
        While so many requests wait for each worker, new searches are left out of the advice: it has the fit and the
        speed of the job, and a note that this is not all. 0 disables this.
    audit_log
        File of JSON lines: requests, answers and their duration; ``None`` writes them to stderr.
    default_partition
        Partition of jobs that name none: ``cli_filter`` does not see it, and rules by partition need it.
    advise_inference
        Also answer for jobs that only generate (vLLM, SGLang): whether model and KV cache fit. They are left alone
        otherwise.
    policy
        Rules, of which the first match applies; jobs without a match are advised.
    live_interval_s
        Interval of queries to Slurm for running jobs and free nodes [s]; at least about 20 times Slurm's response time.
        0 disables them, as does a missing ``fabric``.
    live_folder
        Folder where ``opsk advisor --watch`` writes Slurm's state for the advisor, which then needs no network.
        ``None``: the advisor starts a process for the queries itself.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    socket: Path = Path("/run/opsk/advisor.sock")
    socket_mode: int = Field(default=0o666, ge=0o600, le=0o777, strict=True)
    submit_users: Annotated[tuple[str, ...], _ONE_OR_MORE] = ("root", "slurm")
    submit_deadline_s: float = Field(default=0.020, gt=0, le=1)
    cli_deadline_s: float = Field(default=0.300, gt=0, le=10)
    workers: int = Field(default=2, ge=1, le=64)
    short_advice_from: int = Field(default=1, ge=0, le=256)
    audit_log: Path | None = None
    default_partition: str | None = None
    advise_inference: bool = Field(default=False, strict=True)
    policy: tuple[PolicyRule, ...] = ()
    live_interval_s: float = Field(default=15.0, ge=0, le=3600)
    live_folder: Path | None = None


_Days = Annotated[int, Field(ge=0, le=36500)]


class RetentionConfig(BaseModel):
    """Days for which ``opsk store prune`` keeps finished records, by kind; 0 keeps them for ever.

    The newest snapshot of a fabric, jobs that are still reported, failures that are not resolved, and remaps that are
    still open are always kept.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    snapshots: _Days = 0
    jobs: _Days = 1095
    advice: _Days = 180
    measured: _Days = 365
    submitted: _Days = 30
    used: _Days = 365
    failures: _Days = 1095
    remaps: _Days = 1095
    reports: _Days = 365


class HistoryConfig(BaseModel):
    """Settings of the advice from earlier runs of a program; it needs ``store.url`` and ``opsk top --record``.

    Parameters
    ----------
    enabled
        Recognise submissions that request GPUs, and show their users what earlier runs used.
    days
        Only runs of so many days count.
    runs
        Number of runs of one program that are considered, the last ones.
    refresh_s
        Interval at which the advisor's copy is brought up to date from the store [s].
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool = True
    days: int = Field(default=180, ge=1, le=3650)
    runs: int = Field(default=20, ge=1, le=100)
    refresh_s: float = Field(default=60.0, ge=1, le=86400)


class LearningConfig(BaseModel):
    """Settings of learning from the site's own jobs and measured nodes; it needs a store and ``opsk top --record``.

    Parameters
    ----------
    enabled
        Refit every night (``opsk-learn.timer``), and predict with the published fit.
    folder
        Folder of the fits; those who predict must be able to read it, the advisor's user to write.
    days
        Only jobs of so many days count.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool = False
    folder: Path = Path("/var/lib/opsk-learning")
    days: int = Field(default=180, ge=1, le=3650)


class StoreConfig(BaseModel):
    """Settings of the store.

    Parameters
    ----------
    url
        SQLAlchemy URL of the database; ``None`` is a SQLite file in the user's state folder.
    retention_days
        Retention of finished records, by kind.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    url: str | None = None
    retention_days: RetentionConfig = RetentionConfig()


class SlurmConfig(BaseModel):
    """Settings of the queries to Slurm.

    Parameters
    ----------
    adapter
        ``pyslurm``, Slurm's ``commands``, or ``auto``: pyslurm where it is installed and matches the cluster.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    adapter: Literal["auto", "pyslurm", "commands"] = "auto"


class StorageConfig(BaseModel):
    """Storage traffic on the fabric, for sites that do not measure it.

    Parameters
    ----------
    read_bytes_per_s, write_bytes_per_s
        Total storage traffic of all running jobs, spread evenly over their nodes.
    job_read_bytes_per_s, job_write_bytes_per_s
        Storage traffic of each running job, in addition.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    read_bytes_per_s: float = Field(default=0.0, ge=0, lt=1e18)
    write_bytes_per_s: float = Field(default=0.0, ge=0, lt=1e18)
    job_read_bytes_per_s: float = Field(default=0.0, ge=0, lt=1e18)
    job_write_bytes_per_s: float = Field(default=0.0, ge=0, lt=1e18)


class PostmortemConfig(BaseModel):
    """Settings of the evidence on failed jobs, and of automatic reports.

    Parameters
    ----------
    folder
        Folder of evidence and reports, one subfolder per job, on storage that all nodes share; ``None`` disables it.
    spool
        Local folder of each node for evidence that is not stored there yet.
    automatic
        The first node of a failed job writes the report.
    wait_s
        How long it waits for the evidence of other nodes and Slurm [s].
    missed_after_s
        Time after which ``opsk collect --missed`` reports on jobs that ended together with all their nodes [s].
    days
        Days of earlier failures that count as recurrence.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    folder: Path | None = None
    spool: Path = Path("/var/spool/opsk")
    automatic: bool = True
    wait_s: float = Field(default=60.0, ge=0, le=3600)
    missed_after_s: float = Field(default=600.0, ge=0, le=86400)
    days: int = Field(default=30, ge=1, le=3650)


class TopConfig(BaseModel):
    """Data sources of ``opsk top``, and refresh intervals.

    Parameters
    ----------
    prometheus
        URL of the site's Prometheus (``https://prometheus:9090``); ``None``: the exporters are scraped directly.
    prometheus_labels
        Labels that this cluster's series have there, where one Prometheus has several clusters.
    exporter_port
        Port of the exporters on the nodes; 0 scrapes none.
    exporter_targets
        File of targets as Prometheus's file_sd reads it (YAML or JSON), instead of all nodes that Slurm names.
    tls
        Exporters are scraped with https.
    ca_file
        CA certificates for Prometheus and exporters, instead of the system's.
    user, password_file
        Credentials for Prometheus and exporters; users of ``opsk top`` must be able to read the file.
    refresh_s
        Refresh interval of the screen [s].
    slurm_interval_s
        Minimum interval of queries to Slurm, for all screens on this host together [s]; 0: the advisor shares nothing,
        and every user's screens query Slurm themselves.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    prometheus: Annotated[str, Field(pattern=r"^https?://[^\s@]+$")] | None = None
    prometheus_labels: dict[Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")], str] = {}
    exporter_port: int = Field(default=9876, ge=0, le=65535)
    exporter_targets: Path | None = None
    tls: bool = False
    ca_file: Path | None = None
    user: str | None = None
    password_file: Path | None = None
    refresh_s: float = Field(default=5.0, ge=1, le=3600)
    slurm_interval_s: float = Field(default=10.0, ge=0, le=3600)


class SiteConfig(BaseModel):
    """The whole site configuration.

    ``cluster`` is a catalogue name or the path of a cluster TOML; ``fabric`` are dumps of the compute fabric that the
    advice is based on; ``efficiency`` is a file of ``opsk calibrate``, instead of the shipped efficiencies.
    ``fabric_roles`` sets the role of hosts or switches that their cabling and names do not show: host lists, with ``*``
    as wildcard, under ``compute``, ``storage`` and ``management``. ``adaptive_routing`` means that the switches route
    adaptively, where no forwarding tables are given. ``exporter`` is read and checked by the exporter alone.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    cluster: str | None = None
    fabric: Annotated[tuple[Path, ...], _ONE_OR_MORE] = ()
    adaptive_routing: bool = False
    fabric_roles: dict[Literal["compute", "storage", "management"], str] = {}
    efficiency: Path | None = None
    advisor: AdvisorConfig = AdvisorConfig()
    exporter: dict[str, Any] = {}
    history: HistoryConfig = HistoryConfig()
    learning: LearningConfig = LearningConfig()
    postmortem: PostmortemConfig = PostmortemConfig()
    slurm: SlurmConfig = SlurmConfig()
    storage: StorageConfig = StorageConfig()
    store: StoreConfig = StoreConfig()
    top: TopConfig = TopConfig()

    def find_efficiency_file(self) -> Path | None:
        """Return the file that predictions use: the published fit where the site learns, else ``efficiency``."""
        published = self.learning.folder / PUBLISHED_FIT
        return published if self.learning.enabled and published.is_file() else self.efficiency


def load_site(path: Path | None = None) -> SiteConfig:
    """Read the site configuration; a site without any file gets the defaults.

    Raises
    ------
    ConfigError
        Names the file and every violation in it.
    """
    named = path or (Path(os.environ["OPSK_CONFIG"]) if os.environ.get("OPSK_CONFIG") else None)
    chosen = named or DEFAULT_PATH
    try:
        return SiteConfig.model_validate(tomllib.loads(chosen.read_text(encoding="utf-8")))
    except OSError as error:
        if named is None and isinstance(error, FileNotFoundError):
            return SiteConfig()
        raise ConfigError(f"{chosen}: {error.strerror}", hint="name another file in OPSK_CONFIG") from error
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, item['loc']))}: {_format_violation(item)}" for item in error.errors())
        raise ConfigError(f"{chosen}: {wrong}", hint=f"all keys: {KEYS_PAGE}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{chosen}: {error}") from error


def _format_violation(item: ErrorDetails) -> str:
    """Format the violation of one key for administrators."""
    place = tuple(part for part in item["loc"] if isinstance(part, str))
    if item["type"] == "extra_forbidden":
        known = _list_sibling_keys(place)
        closest = difflib.get_close_matches(place[-1], known, n=1)
        return f"unknown key, closest: {closest[0]}" if closest else f"unknown key, known: {', '.join(known)}"
    if place == ("advisor", "policy"):
        return "every rule begins with [[advisor.policy]], in two brackets"
    if place == ("advisor", "socket_mode"):
        return "is a number such as 0o666 (0o, no quotes), from 0o600 to 0o777"
    return item["msg"].replace("Input should", "should")


def _list_sibling_keys(place: tuple[str, ...]) -> list[str]:
    """Return the keys of the table that contains the given key."""
    model: Any = SiteConfig
    for name in place[:-1]:
        model = PolicyRule if name == "policy" else model.model_fields[name].annotation
    return list(model.model_fields)
