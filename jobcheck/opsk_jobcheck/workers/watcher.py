"""Polls Slurm, routes the traffic of running jobs over the fabric, and writes the live state of the cluster as files.

The load on Slurm is bounded: one query at a time, and fewer when Slurm is slow. A round queries all jobs and all nodes,
as ``squeue`` and ``sinfo`` of one more user would. The plan of a job is in its record only, which takes another query:
it is read once per job, when the job has started. Started by the advisor, the process ends when its standard input
closes, and removes its folder. As a service of its own (``opsk advisor --watch``) it lets the advisor run without any
network access.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from opsk.app.interference.jobs import ActiveTraffic, LoadCache, Site, compute_active_traffic
from opsk.config import SiteConfig
from opsk.errors import ConfigError, OpskError, SlurmError
from opsk.planning.interference.node_choice import busy_leaves
from opsk.planning.placement.step_model import as_cabled
from opsk.slurm.client import SlurmClient
from opsk.slurm.commands.command import CommandClient
from opsk.slurm.records import JobRecord, NodeRecord, PartitionRecord
from opsk_jobcheck.advice.adviser import Adviser, build_site_adviser
from opsk_jobcheck.cluster_state import coordinators, snapshots
from opsk_jobcheck.cluster_state.state import LiveState, LiveWriter, fingerprint
from opsk_jobcheck.submission.protocol import read_frame

QUESTION_DEADLINE_S = 10.0
MAX_PAUSE_S = 300.0
SHARE_OF_TIME = 0.05
"""The largest share of the time that is spent on queries: a slow controller is queried less often."""
SINGLE_QUESTIONS = 8
"""With more new jobs than this in one round, all records are queried at once."""
ALL_AGAIN_ROUNDS = 40
"""All records are queried again every so many rounds: a comment may have changed since the job started."""
_TOPOLOGY = re.compile(r"(?:topology/)?(\w+)")
NICENESS = 10
"""Answers have priority."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The result of one round: all nodes, and the jobs that hold nodes, those on several with their records."""

    nodes: tuple[NodeRecord, ...]
    jobs: tuple[JobRecord, ...]


@dataclass(slots=True, kw_only=True)
class Poller:
    """Polls jobs and nodes, and remembers the records of running jobs.

    Parameters
    ----------
    slurm
        The Slurm client.
    clock
        A monotonic clock [s].
    interval_s
        Pause between rounds without failures [s].
    """

    slurm: SlurmClient
    clock: Callable[[], float]
    interval_s: float
    took_s: float = 0.0
    failures: int = 0
    rounds: int = 0
    _known: dict[int, JobRecord] = field(default_factory=dict)

    @property
    def pause_s(self) -> float:
        """The pause before the next round [s]."""
        slow_s = self.took_s / SHARE_OF_TIME
        max_pause_s = max(MAX_PAUSE_S, self.interval_s)
        return min(max(self.interval_s, slow_s) * 2.0 ** min(self.failures, 16), max_pause_s)

    def round(self) -> Round:
        """Query Slurm once.

        Raises
        ------
        SlurmError
            Slurm did not answer; the pause has grown.
        """
        started_s = self.clock()
        try:
            jobs = self._read_jobs()
            nodes = self.slurm.nodes()
        except SlurmError:
            self.failures += 1
            raise
        else:
            self.failures = 0
        finally:
            self.took_s = self.clock() - started_s
        self.rounds += 1
        return Round(nodes=nodes, jobs=tuple(job for job in jobs if job.is_active))

    def _read_jobs(self) -> tuple[JobRecord, ...]:
        """Return all jobs, those that are on several nodes with their records."""
        if self.rounds % ALL_AGAIN_ROUNDS == 0:
            return self._remember(self.slurm.jobs(details=True))
        jobs = self.slurm.jobs()
        new = [job for job in jobs if _matters(job) and not _is_same(self._known.get(job.id), job)]
        if len(new) > SINGLE_QUESTIONS:
            return self._remember(self.slurm.jobs(details=True))
        records = {job.id: self._read_record(job) for job in new}
        return self._remember([records.get(job.id) or self._join_record(job) for job in jobs])

    def _read_record(self, job: JobRecord) -> JobRecord:
        """Return a job with its record; without it where Slurm has forgotten the job in between."""
        try:
            return self.slurm.job(job.label)
        except SlurmError:
            raise
        except OpskError:
            return job

    def _join_record(self, job: JobRecord) -> JobRecord:
        """Return a job of this round with its known record."""
        known = self._known.get(job.id)
        return known if known is not None and _is_same(known, job) else job

    def _remember(self, jobs: Sequence[JobRecord]) -> tuple[JobRecord, ...]:
        """Store the records of running jobs, and of no others."""
        self._known = {job.id: job for job in jobs if _matters(job)}
        return tuple(jobs)


def _matters(job: JobRecord) -> bool:
    """Return whether a job can have traffic between nodes."""
    return job.is_active and len(job.nodes) > 1


def _is_same(known: JobRecord | None, job: JobRecord) -> bool:
    """Return whether a job is unchanged since its record was read."""
    return known is not None and (known.nodes, known.restarts, known.state) == (job.nodes, job.restarts, job.state)


def read_topology(slurm: SlurmClient) -> str | None:
    """Return Slurm's view of the fabric (``tree``, ``block``, ``flat``); ``None`` where it is unknown.

    Names of ``TopologyPlugin``: slurm.conf(5); ``default`` is flat, and ``none`` was its name.
    """
    config = getattr(slurm, "config", None)
    if config is None:
        return None
    try:
        named = _TOPOLOGY.fullmatch(str(config().get("TopologyPlugin", "")))
    except OpskError:
        return None
    name = named[1] if named else None
    return "flat" if name in ("default", "none", "flat") else name


def read_partitions(slurm: SlurmClient) -> tuple[PartitionRecord, ...] | None:
    """Return the partitions; ``None`` where Slurm does not answer, or this client cannot query them."""
    partitions = getattr(slurm, "partitions", None)
    if partitions is None:
        return None
    try:
        return tuple(partitions())
    except OpskError:
        return None


class StateBuilder:
    """Converts polling rounds into live states.

    Parameters
    ----------
    site
        The site, for the rates of storage.
    adviser
        The adviser, with its fabric and links.
    """

    def __init__(self, site: SiteConfig, adviser: Adviser, slurm: SlurmClient) -> None:
        if adviser.fabric_links is None or adviser.fabric is None or adviser.rails is None:
            raise ValueError("only a site with a fabric is watched")
        self.fabric_links = adviser.fabric_links
        cluster = as_cabled(adviser.cluster, adviser.rails) if adviser.cluster is not None else None
        self._site = Site(
            fabric_links=adviser.fabric_links,
            fabric=adviser.fabric,
            cluster=cluster,
            efficiency=adviser.efficiency,
            storage=site.storage,
        )
        self._slurm = slurm
        self._loads = LoadCache()
        self._routed_jobs: object = None
        self._traffic: ActiveTraffic | None = None
        self._around: dict[str, float] = {}
        self._topology: str | None = None
        self._source = ""
        self._partitions: tuple[PartitionRecord, ...] = ()
        self._states = 0

    def state(self, polled: Round, *, with_traffic: bool = True) -> LiveState:
        """Return the state after one round.

        Parameters
        ----------
        with_traffic
            False to leave out the load on the links, while it is still to be computed.
        """
        if with_traffic:
            self._route_traffic(polled.jobs)
        if not self._source:
            self._topology = read_topology(self._slurm)
            self._source = f"Slurm {'.'.join(f'{part:02d}' for part in self._slurm.release())}"
        if self._states % ALL_AGAIN_ROUNDS == 0 and (partitions := read_partitions(self._slurm)) is not None:
            self._partitions = partitions
        self._states += 1
        held = {node for job in polled.jobs for node in job.nodes}
        return LiveState(
            nodes=polled.nodes,
            running=len(polled.jobs),
            hidden_nodes=sum(_is_held(node) and node.name not in held for node in polled.nodes),
            source=self._source,
            topology=self._topology,
            default_partition=next((part.name for part in self._partitions if part.is_default), None),
            min_nodes={part.name: part.min_nodes for part in self._partitions if part.min_nodes > 1},
            partitions={part.name: part for part in self._partitions},
            wire=self._traffic if with_traffic else None,
            around=self._around if with_traffic else {},
        )

    def is_known(self, jobs: tuple[JobRecord, ...]) -> bool:
        """Return whether these are the jobs whose traffic was routed last."""
        return self._traffic is not None and self._routed_jobs == _traffic_key(jobs)

    def _route_traffic(self, jobs: tuple[JobRecord, ...]) -> None:
        """Route the traffic of new jobs, where any job is new or gone."""
        if self.is_known(jobs):
            return
        self._traffic = compute_active_traffic(self._site, jobs, cache=self._loads)
        self._around = busy_leaves(self.fabric_links, self._traffic.running)
        self._routed_jobs = _traffic_key(jobs)


def _traffic_key(jobs: tuple[JobRecord, ...]) -> object:
    """Return the fields that the traffic of jobs depends on."""
    return tuple((job.id, job.state, job.nodes, job.admin_comment) for job in jobs)


def _is_held(node: NodeRecord) -> bool:
    """Return whether a job holds a node, or a part of it."""
    return node.state in ("ALLOCATED", "MIXED", "COMPLETING")


def watch(poller: Poller, state: StateBuilder, writer: LiveWriter, *, is_over: Callable[[float], bool]) -> None:
    """Poll and write states until the end.

    Parameters
    ----------
    is_over
        Waits for so long [s] and returns whether to end.
    """
    while True:
        try:
            _run_round(poller, state, writer)
        except OpskError as error:
            if poller.failures in (1, 8):
                log.warning("running jobs and free nodes are not known: %s", error.message)
        except OSError as error:  # the folder is gone with an advisor that was killed, or its disk is full
            poller.failures += 1
            log.warning("the state of running jobs and free nodes cannot be written: %s", error)
        except Exception:
            poller.failures += 1
            log.exception("running jobs and free nodes are not known")
        if is_over(poller.pause_s):
            return


def _run_round(poller: Poller, state: StateBuilder, writer: LiveWriter) -> None:
    """Poll once and write the result: free nodes at once where routing new jobs takes time."""
    polled = poller.round()
    queried_at_s = poller.clock()
    if poller.rounds == 1:
        writer.write(state.state(polled, with_traffic=False), queried_at_s=queried_at_s)
    writer.write(state.state(polled), queried_at_s=queried_at_s)


def main(folder: Path) -> None:
    """Watch for the advisor that has started this; the first frame is the site configuration."""
    incoming = sys.stdin.buffer
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    setup = read_frame(incoming)
    if setup is None:
        shutil.rmtree(folder, ignore_errors=True)
        return
    threading.Thread(target=_end_with_input, args=(folder,), daemon=True).start()
    try:
        _watch_site(SiteConfig.model_validate_json(setup), folder)
    except (OpskError, ValueError) as error:
        log.warning("running jobs are not watched: %s", error)


def run_service(site: SiteConfig) -> None:
    """Watch as a service of its own, until stopped.

    Raises
    ------
    ConfigError
        The site has no fabric, no interval or no folder, or the folder is open to others.
    InputError
        The fabric cannot be read.
    """
    folder = site.advisor.live_folder
    if folder is None or not site.fabric or not site.advisor.live_interval_s:
        raise ConfigError("nothing is watched", hint="set fabric, and live_folder under [advisor], in opsk.toml")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        facts = folder.stat()
    except OSError as error:
        raise ConfigError(f"{folder}: {error.strerror}", hint="make a folder of the advisor's user alone") from error
    if facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
        raise ConfigError(f"{folder}: others may write there", hint="make a folder of the advisor's user alone")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    logging.basicConfig(level=logging.WARNING, format="opsk watcher: %(levelname)s %(message)s")
    if site.top.slurm_interval_s:
        threading.Thread(target=snapshots.run_service, args=(folder, site.top.slurm_interval_s), daemon=True).start()
    threading.Thread(target=coordinators.run_service, args=(folder,), daemon=True).start()
    _watch_site(site, folder)


def _watch_site(site: SiteConfig, folder: Path) -> None:
    """Watch until this process is ended."""
    slurm = CommandClient(deadline_s=QUESTION_DEADLINE_S)
    state = StateBuilder(site, build_site_adviser(site, with_fabric_links=True), slurm)
    poller = Poller(slurm=slurm, clock=time.monotonic, interval_s=site.advisor.live_interval_s)
    watch(poller, state, LiveWriter(folder, fingerprint(state.fabric_links)), is_over=_pause)


def _pause(pause_s: float) -> bool:
    """Wait; the process is ended here."""
    time.sleep(pause_s)
    return False


def _end_with_input(folder: Path) -> None:
    """Remove this process's files and end it, when the advisor has ended."""
    while os.read(0, 4096):
        pass
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def add_live_state(site: SiteConfig, adviser: Adviser, slurm: SlurmClient) -> Adviser:
    """Return the adviser with the live state.

    Raises
    ------
    ConfigError
        There is no fabric for running jobs and free nodes.
    SlurmError
        Slurm did not answer.
    """
    if adviser.fabric_links is None:
        raise ConfigError("running jobs need a fabric to run on", hint="set fabric in opsk.toml, or give --fabric")
    poller = Poller(slurm=slurm, clock=time.monotonic, interval_s=0.0)
    return replace(adviser, live=StateBuilder(site, adviser, slurm).state(poller.round()))
