"""Computes the link loads of running jobs and storage from Slurm's records, stored plans and measured rates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from opsk.config import StorageConfig
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.fabric.fabric import Fabric
from opsk.hardware.spec import ClusterSpec
from opsk.planning.interference.links import FabricLinks
from opsk.planning.interference.load import Load, LoadKind, RecordedJob, default_load, reconstruct_job
from opsk.planning.interference.measured import (
    MeasuredRates,
    StorageRates,
    at_hcas,
    background,
    measured_load,
    measured_storage,
    storage_load,
    storage_servers,
)
from opsk.planning.interference.running_loads import RunningLoads
from opsk.slurm.records import JobRecord
from opsk.workload.advice_record import AdviceRecord
from opsk.workload.completion import Assumption

_SHOWN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The inputs for the loads of running jobs."""

    fabric_links: FabricLinks
    fabric: Fabric
    cluster: ClusterSpec | None
    efficiency: Efficiency
    storage: StorageConfig
    rates: MeasuredRates | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveTraffic:
    """The traffic of all running jobs and storage, and the assumptions.

    ``known_as`` counts jobs by how they are known; ``storage_from`` is ``measured``, ``declared`` or "".
    """

    running: RunningLoads
    jobs: Mapping[str, JobRecord]
    known_as: Mapping[str, int]
    servers: tuple[str, ...] = ()
    storage: StorageRates | None = None
    storage_from: str = ""
    assumed: tuple[Assumption, ...] = ()


class LoadCache:
    """A cache of job loads by their inputs: computing a load is slow, and most jobs run for hours.

    A cache serves one `Site`: its links and rates are not part of the key.
    """

    def __init__(self) -> None:
        self._loads: dict[object, Load | None] = {}
        self._used: dict[object, Load | None] = {}

    def load(self, key: object, compute: Callable[[], Load | None]) -> Load | None:
        """Return the load of this key, computed unless it is cached."""
        if key not in self._used:
            self._used[key] = self._loads[key] if key in self._loads else compute()
        return self._used[key]

    def forget_unused(self) -> None:
        """Drop the entries that were not used since the last call: jobs that have ended."""
        self._loads, self._used = self._used, {}


def compute_active_traffic(
    site: Site, jobs: Sequence[JobRecord], *, excluding: str = "", cache: LoadCache | None = None
) -> ActiveTraffic:
    """Return the link loads of all active jobs and storage.

    Parameters
    ----------
    excluding
        Label of the candidate job, which is left out.
    cache
        Loads of the last call, for repeated calls.
    """
    cache = cache or LoadCache()
    if site.rates is not None:
        site = replace(site, rates=at_hcas(site.rates, site.fabric))
    rails = site.fabric_links.rails
    active = [
        job
        for job in jobs
        if job.is_active and job.label != excluding and any(n in rails.attachments for n in job.nodes)
    ]
    builder = _LoadBuilder(site, active, cache)
    loads = [load for job in active if (load := builder.load(job)) is not None]
    servers = storage_servers(site.fabric_links)
    traffic, storage, source = _compute_storage_loads(site, active, servers, cache)
    loads += traffic
    cache.forget_unused()
    running = RunningLoads.of(site.fabric_links.links, loads)
    if site.rates is not None:
        rest = background(site.fabric_links, site.fabric, site.rates, running)
        running = running if rest is None else running.with_load(rest)
    return ActiveTraffic(
        running=running,
        jobs={job.label: job for job in active},
        known_as=builder.known_as,
        servers=servers,
        storage=storage,
        storage_from=source,
        assumed=builder.assumptions(),
    )


class _LoadBuilder:
    """Computes the loads of jobs, and counts by which source each is known."""

    def __init__(self, site: Site, active: Sequence[JobRecord], cache: LoadCache) -> None:
        self._site = site
        self._cache = cache
        self._holders = Counter(node for job in active for node in job.nodes)
        self._recorded: dict[object, RecordedJob | None] = {}
        self._guessed: dict[str, list[str]] = {}
        self._unknown: list[str] = []
        self._off: list[str] = []
        self.known_as: Counter[str] = Counter()

    def load(self, job: JobRecord) -> Load | None:
        """Return the load of one job: by its plan, else as measured, else none."""
        load = self._compute_by_plan(job) or self._compute_as_measured(job)
        if load is not None:
            self.known_as[load.kind.value] += 1
            return load
        if len(job.nodes) > 1:
            self.known_as["unknown"] += 1
            self._unknown.append(job.label)
        else:
            self.known_as["one node"] += 1
        return None

    def _compute_by_plan(self, job: JobRecord) -> Load | None:
        """Return the load of the stored plan."""
        if not job.gpus_per_node or job.gpus_per_node * len(job.nodes) < job.gpus:
            return None
        record = AdviceRecord.parse(job.admin_comment or "")
        known = self._find_recorded(record, job) if record is not None else None
        if record is None or known is None:
            return None
        for guess in known.guessed:
            self._guessed.setdefault(guess, []).append(job.label)
        held = tuple(sorted(job.gpu_indices.items()))
        key = (job.label, replace(record, hash=None), job.gpus, job.gpus_per_node, job.nodes, held)
        return self._cache.load(key, partial(self._compute_load, job, known))

    def _compute_load(self, job: JobRecord, known: RecordedJob) -> Load:
        """Compute the load of one job."""
        return default_load(job.label, self._site.fabric_links, known.shape, job.nodes, gpus=job.gpu_indices)

    def _find_recorded(self, record: AdviceRecord, job: JobRecord) -> RecordedJob | None:
        """Return the job of a record; cached for equal records."""
        key = (replace(record, hash=None), job.gpus, job.gpus_per_node)
        if key not in self._recorded:
            site = self._site
            node_gpus = site.cluster.node.gpus if site.cluster is not None else None
            self._recorded[key] = reconstruct_job(
                record, job.gpus, job.gpus_per_node or 1, site.cluster, site.efficiency, node_gpus
            )
        return self._recorded[key]

    def _compute_as_measured(self, job: JobRecord) -> Load | None:
        """Return the measured load of the job's HCAs, on nodes without another job."""
        if self._site.rates is None:
            return None
        alone = [node for node in job.nodes if self._holders[node] == 1]
        return measured_load(job.label, self._site.fabric_links, alone, self._site.rates)

    def assumptions(self) -> tuple[Assumption, ...]:
        """Return the assumptions about the jobs."""
        result = []
        if self._unknown:
            why = (
                f"no plan of the size of {_format_labels(self._unknown)} is recorded, and their HCAs were not measured"
            )
            result.append(Assumption(field="traffic", value="none", why=why))
        for guess, labels in self._guessed.items():
            result.append(
                Assumption(field="running", value=guess, why=f"not in the record of {_format_labels(labels)}")
            )
        if self.known_as[LoadKind.PLAN.value]:
            why = "ranks of running jobs are taken to sit as srun puts them by default"
            result.append(Assumption(field="running", value="block distribution", why=why))
        if self.known_as[LoadKind.MEASURED.value]:
            why = (
                "counters do not say where bytes go: each node is taken to send to the next one of its job, on its rail"
            )
            result.append(Assumption(field="measured", value="rings", why=why))
        return tuple(result)


def _compute_storage_loads(
    site: Site, active: Sequence[JobRecord], servers: Sequence[str], cache: LoadCache
) -> tuple[list[Load], StorageRates | None, str]:
    """Return the loads of storage traffic, the total rates, and their source."""
    declared = site.storage
    nodes = sorted({node for job in active for node in job.nodes})
    measured = measured_storage(site.fabric_links, servers, site.rates) if site.rates is not None else None
    if measured is not None:
        load = storage_load("storage", site.fabric_links, servers, nodes, measured, site.rates)
        return ([load] if load is not None else []), measured, "measured"
    together = StorageRates(read_bytes_per_s=declared.read_bytes_per_s, write_bytes_per_s=declared.write_bytes_per_s)
    per_job = StorageRates(
        read_bytes_per_s=declared.job_read_bytes_per_s, write_bytes_per_s=declared.job_write_bytes_per_s
    )
    loads = []
    if together.read_bytes_per_s or together.write_bytes_per_s:
        loads.append(storage_load("storage", site.fabric_links, servers, nodes, together))
    if per_job.read_bytes_per_s or per_job.write_bytes_per_s:
        loads += [
            cache.load(
                ("storage", job.label, job.nodes),
                partial(storage_load, job.label, site.fabric_links, servers, job.nodes, per_job),
            )
            for job in active
        ]
    known = [load for load in loads if load is not None]
    total = StorageRates(
        read_bytes_per_s=together.read_bytes_per_s + len(active) * per_job.read_bytes_per_s,
        write_bytes_per_s=together.write_bytes_per_s + len(active) * per_job.write_bytes_per_s,
    )
    return known, (total if loads else None), ("declared" if loads else "")


def _format_labels(labels: Sequence[str]) -> str:
    """Return a few jobs by label, and how many there are."""
    if len(labels) == 1:
        return f"job {labels[0]}"
    shown = ", ".join(labels[:_SHOWN])
    return f"{len(labels)} jobs ({shown}{', ...' if len(labels) > _SHOWN else ''})"
