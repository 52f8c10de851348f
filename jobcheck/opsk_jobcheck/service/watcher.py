"""Runs the process that keeps the live state up to date.

It asks Slurm, routes the traffic of jobs that have started over the fabric, and writes the result as files. Started by
the advisor, it ends when its standard input closes, so it does not outlive the advisor, and removes its folder. As a
service of its own (``opsk advisor --watch``) it lets the advisor run without any network access.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from opsk.app.interference.jobs import ActiveTraffic, LoadCache, Site, compute_active_traffic
from opsk.config import SiteConfig
from opsk.errors import ConfigError, OpskError
from opsk.planning.interference.node_choice import busy_leaves
from opsk.planning.placement.step_model import as_cabled
from opsk.slurm.client import SlurmClient
from opsk.slurm.commands.command import CommandClient
from opsk.slurm.records import JobRecord, NodeRecord, PartitionRecord
from opsk_jobcheck.advice.adviser import Adviser
from opsk_jobcheck.cluster_state import snapshots
from opsk_jobcheck.cluster_state.polling import (
    ALL_AGAIN_ROUNDS,
    QUESTION_DEADLINE_S,
    Poller,
    Round,
    read_partitions,
    read_topology,
)
from opsk_jobcheck.cluster_state.state import LiveState
from opsk_jobcheck.cluster_state.state_files import LiveWriter, fingerprint
from opsk_jobcheck.service.site import build_site_adviser
from opsk_jobcheck.service.worker import read_frame

NICENESS = 10
"""Answers have priority."""

log = logging.getLogger(__name__)


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
            log.warning("running jobs and free nodes are not handed over: %s", error)
        except Exception:
            poller.failures += 1
            log.exception("running jobs and free nodes are not known")
        if is_over(poller.pause_s):
            return


def _run_round(poller: Poller, state: StateBuilder, writer: LiveWriter) -> None:
    """Poll once and write the result: free nodes at once where routing new jobs takes time."""
    polled = poller.round()
    asked_at_s = poller.clock()
    if poller.rounds == 1:
        writer.write(state.state(polled, with_traffic=False), asked_at_s=asked_at_s)
    writer.write(state.state(polled), asked_at_s=asked_at_s)


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


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="opsk advisor: %(levelname)s %(message)s")
    main(Path(sys.argv[1]))
