"""What runs now, and what does it ask of the links? By Slurm's records, the jobs' stored plans, and measured rates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from opsk.config import StorageConfig
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.fabric.fabric import Fabric
from opsk.hardware.spec import ClusterSpec
from opsk.planning.interference.load import Load, LoadKind, default_load
from opsk.planning.interference.measured import MeasuredRates, at_hcas, background, measured_load
from opsk.planning.interference.recorded import Recorded, recorded_job
from opsk.planning.interference.running import RunningLoads
from opsk.planning.interference.storage import StorageRates, measured_storage, storage_load, storage_servers
from opsk.planning.interference.wires import Wires
from opsk.slurm.records import JobRecord
from opsk.workload.advice_record import AdviceRecord
from opsk.workload.completion import Assumption

_SHOWN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What the loads of running jobs are worked out with."""

    wires: Wires
    fabric: Fabric
    cluster: ClusterSpec | None
    efficiency: Efficiency
    storage: StorageConfig
    rates: MeasuredRates | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """Everything that is on the wire: loads, the jobs that they are of, storage, and what had to be assumed.

    ``known_as`` counts jobs by how they are known; ``storage_from`` is ``measured``, ``declared`` or "".
    """

    running: RunningLoads
    jobs: Mapping[str, JobRecord]
    known_as: Mapping[str, int]
    servers: tuple[str, ...] = ()
    storage: StorageRates | None = None
    storage_from: str = ""
    assumed: tuple[Assumption, ...] = ()


class KeptLoads:
    """Loads of jobs that were laid before, by what they depend on: laying is slow, and most jobs run for hours.

    One serves one `Site`, whose links and rates it does not look at.
    """

    def __init__(self) -> None:
        self._loads: dict[object, Load | None] = {}
        self._used: dict[object, Load | None] = {}

    def load(self, key: object, lay: Callable[[], Load | None]) -> Load | None:
        """Return the load of this key, laid now where it was not before."""
        if key not in self._used:
            self._used[key] = self._loads[key] if key in self._loads else lay()
        return self._used[key]

    def forget_unused(self) -> None:
        """Drop what was not asked for since the last call: jobs that have ended."""
        self._loads, self._used = self._used, {}


def on_the_wire(site: Site, jobs: Sequence[JobRecord], *, but: str = "", kept: KeptLoads | None = None) -> Wire:
    """Return what all active jobs and storage ask of the links.

    Parameters
    ----------
    but
        Label of the job that is the candidate, which is no other.
    kept
        Loads of the last time, for whoever asks again and again.
    """
    kept = kept or KeptLoads()
    if site.rates is not None:
        site = replace(site, rates=at_hcas(site.rates, site.fabric))
    rails = site.wires.rails
    active = [
        job for job in jobs if job.is_active and job.label != but and any(n in rails.attachments for n in job.nodes)
    ]
    laid = _Laid(site, active, kept)
    loads = [load for job in active if (load := laid.load(job)) is not None]
    servers = storage_servers(site.wires)
    traffic, storage, source = _storage(site, active, servers, kept)
    loads += traffic
    kept.forget_unused()
    running = RunningLoads.of(site.wires.links, loads)
    if site.rates is not None:
        rest = background(site.wires, site.fabric, site.rates, running)
        running = running if rest is None else running.with_load(rest)
    return Wire(
        running=running,
        jobs={job.label: job for job in active},
        known_as=laid.known_as,
        servers=servers,
        storage=storage,
        storage_from=source,
        assumed=laid.assumptions(),
    )


class _Laid:
    """Lays jobs on the fabric, one after the other, and remembers how each was known."""

    def __init__(self, site: Site, active: Sequence[JobRecord], kept: KeptLoads) -> None:
        self._site = site
        self._kept = kept
        self._holders = Counter(node for job in active for node in job.nodes)
        self._recorded: dict[object, Recorded | None] = {}
        self._guessed: dict[str, list[str]] = {}
        self._unknown: list[str] = []
        self._off: list[str] = []
        self.known_as: Counter[str] = Counter()

    def load(self, job: JobRecord) -> Load | None:
        """Return the load of one job: by its plan, else as measured, else none."""
        found = self._by_plan(job) or self._as_measured(job)
        if found is not None:
            self.known_as[found.kind.value] += 1
            return found
        if len(job.nodes) > 1:
            self.known_as["unknown"] += 1
            self._unknown.append(job.label)
        else:
            self.known_as["one node"] += 1
        return None

    def _by_plan(self, job: JobRecord) -> Load | None:
        """Return the load that the stored plan makes."""
        if not job.gpus_per_node or job.gpus_per_node * len(job.nodes) < job.gpus:
            return None
        record = AdviceRecord.parse(job.admin_comment or "")
        known = self._known(record, job) if record is not None else None
        if record is None or known is None:
            return None
        for guess in known.guessed:
            self._guessed.setdefault(guess, []).append(job.label)
        held = tuple(sorted(job.gpu_indices.items()))
        key = (job.label, replace(record, hash=None), job.gpus, job.gpus_per_node, job.nodes, held)
        return self._kept.load(key, partial(self._laid, job, known))

    def _laid(self, job: JobRecord, known: Recorded) -> Load:
        """Lay one job."""
        return default_load(job.label, self._site.wires, known.shape, job.nodes, gpus=job.gpu_indices)

    def _known(self, record: AdviceRecord, job: JobRecord) -> Recorded | None:
        """Return what the record says; the same of jobs with the same record."""
        key = (replace(record, hash=None), job.gpus, job.gpus_per_node)
        if key not in self._recorded:
            site = self._site
            node_gpus = site.cluster.node.gpus if site.cluster is not None else None
            self._recorded[key] = recorded_job(
                record, job.gpus, job.gpus_per_node or 1, site.cluster, site.efficiency, node_gpus
            )
        return self._recorded[key]

    def _as_measured(self, job: JobRecord) -> Load | None:
        """Return the load that the HCAs of its nodes show, where no other job is on them."""
        if self._site.rates is None:
            return None
        alone = [node for node in job.nodes if self._holders[node] == 1]
        return measured_load(job.label, self._site.wires, alone, self._site.rates)

    def assumptions(self) -> tuple[Assumption, ...]:
        """Return what had to be assumed of the jobs."""
        found = []
        if self._unknown:
            why = f"no plan of the size of {_some(self._unknown)} is recorded, and their HCAs were not measured"
            found.append(Assumption(field="traffic", value="none", why=why))
        for guess, labels in self._guessed.items():
            found.append(Assumption(field="running", value=guess, why=f"not in the record of {_some(labels)}"))
        if self.known_as[LoadKind.PLAN.value]:
            why = "ranks of running jobs are taken to sit as srun puts them by default"
            found.append(Assumption(field="running", value="block distribution", why=why))
        if self.known_as[LoadKind.MEASURED.value]:
            why = (
                "counters do not say where bytes go: each node is taken to send to the next one of its job, on its rail"
            )
            found.append(Assumption(field="measured", value="rings", why=why))
        return tuple(found)


def _storage(
    site: Site, active: Sequence[JobRecord], servers: Sequence[str], kept: KeptLoads
) -> tuple[list[Load], StorageRates | None, str]:
    """Return the loads of storage traffic, what it is in all, and where that is known from."""
    declared = site.storage
    nodes = sorted({node for job in active for node in job.nodes})
    measured = measured_storage(site.wires, servers, site.rates) if site.rates is not None else None
    if measured is not None:
        load = storage_load("storage", site.wires, servers, nodes, measured, site.rates)
        return ([load] if load is not None else []), measured, "measured"
    together = StorageRates(read_bytes_per_s=declared.read_bytes_per_s, write_bytes_per_s=declared.write_bytes_per_s)
    each = StorageRates(
        read_bytes_per_s=declared.job_read_bytes_per_s, write_bytes_per_s=declared.job_write_bytes_per_s
    )
    loads = []
    if together.read_bytes_per_s or together.write_bytes_per_s:
        loads.append(storage_load("storage", site.wires, servers, nodes, together))
    if each.read_bytes_per_s or each.write_bytes_per_s:
        loads += [
            kept.load(
                ("storage", job.label, job.nodes),
                partial(storage_load, job.label, site.wires, servers, job.nodes, each),
            )
            for job in active
        ]
    known = [load for load in loads if load is not None]
    total = StorageRates(
        read_bytes_per_s=together.read_bytes_per_s + len(active) * each.read_bytes_per_s,
        write_bytes_per_s=together.write_bytes_per_s + len(active) * each.write_bytes_per_s,
    )
    return known, (total if loads else None), ("declared" if loads else "")


def _some(labels: Sequence[str]) -> str:
    """Return a few jobs by label, and how many there are."""
    if len(labels) == 1:
        return f"job {labels[0]}"
    shown = ", ".join(labels[:_SHOWN])
    return f"{len(labels)} jobs ({shown}{', ...' if len(labels) > _SHOWN else ''})"
