"""A node of the made-up cluster: what its readers would read at each moment.

Job 4711 trains on nodes 1 and 2; GPU 1 of node 2 has a low clock, and its port on rail 2 is congested. Job 4712_3 on
node 3 lets two of its four GPUs idle. Job 4713 has a MIG instance of node 4, which also has a GPU that is lost after
XID 79, one that wants a reset, and a port that went down.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from opsk.telemetry.gpu.samples import EccCount, GpuActivity, GpuReading, GpuSample, LostGpu, NvLinkSample, RowRemap
from opsk.telemetry.host.cgroups import JobCgroup
from opsk.telemetry.host.usage import DiskSample, HostSample, InterfaceSample
from opsk.telemetry.jobs.job_map import JobGpu, JobMap, JobRun
from opsk.telemetry.network.infiniband import DeviceSample, PortSample
from opsk.telemetry.network.rails_file import PortPlace, RailsReading
from tests.fakes.gpus import h100, with_mig

NODES = ("node1", "node2", "node3", "node4")
GPUS = 4
STEP_S = 30
TRAINING, IDLE, MIG_JOB = "4711", "4712_3", "4713"
NVLINK_BYTES_PER_S, PORT_BYTES_PER_S = 40e9, 30e9


@dataclass
class Moment:
    """What time it is: the collectors' clocks read it."""

    start_unix_s: float
    step: int = 0

    @property
    def since_s(self) -> float:
        return float(self.step * STEP_S)

    @property
    def unix_s(self) -> float:
        return self.start_unix_s + self.since_s


def wave(seed: int, step: int) -> float:
    """A number between -1 and 1 that looks like noise and is always the same."""
    return math.sin(seed * 12.9898 + step * 0.7) * math.cos(seed * 3.3 + step * 0.31)


def uuid(node: int, gpu: int) -> str:
    return f"GPU-00000000-0000-4000-8000-{node:06x}{gpu:06x}"


@dataclass
class Node:
    """One node: its readers are this object, which changes with the moment."""

    number: int
    now: Moment
    energy_j: list[float] = field(default_factory=lambda: [1e6] * GPUS)
    power_w: list[float] = field(default_factory=lambda: [100.0] * GPUS)
    moved_bytes: list[float] = field(default_factory=lambda: [0.0] * GPUS)
    _last: tuple[int, GpuReading] | None = None

    @property
    def name(self) -> str:
        return NODES[self.number]

    def busy(self, gpu: int) -> float:
        """How much a GPU does."""
        noise = 0.03 * wave(self.number * 10 + gpu, self.now.step)
        if self.number < 2:
            checkpoint = self.now.step % 20 in (18, 19)
            return (0.15 if checkpoint else 0.62 if (self.number, gpu) == (1, 1) else 0.9) + noise
        if self.number == 2:
            return 0.7 + noise if gpu < 2 else 0.0
        return 0.0

    def sample(self, gpu: int) -> GpuSample:
        """One GPU now."""
        busy = self.busy(gpu)
        slow = (self.number, gpu) == (1, 1)
        power_w = 90.0 + busy * 590.0
        self.energy_j[gpu] += power_w * STEP_S
        self.power_w[gpu] = power_w
        sample = h100(gpu)
        heat = 35.0 + busy * 35.0 + gpu + (18.0 if slow else 0.0)
        clock = 1.41e9 if slow else 1.98e9
        self.moved_bytes[gpu] += busy * NVLINK_BYTES_PER_S * STEP_S
        moved = int(self.moved_bytes[gpu]) // 18
        assert sample.activity is not None
        assert sample.memory is not None
        return replace(
            sample,
            uuid=uuid(self.number, gpu),
            serial=f"165{self.number:05d}{gpu:05d}",
            utilisation={"gpu": min(1.0, busy * 1.1), "memory": busy / 2},
            activity=GpuActivity(
                window_s=STEP_S,
                ratios={"graphics": busy, "sm": busy, "sm_occupancy": busy / 3, "tensor": busy / 2, "dram": busy * 0.6},
                bytes_per_s=sample.activity.bytes_per_s,
            ),
            memory=replace(sample.memory, used_bytes=int((5 + 65 * (busy > 0)) * 2**30)),
            clocks_hz={**sample.clocks_hz, "sm": clock, "graphics": clock},
            power=replace(
                sample.power,
                instant_w=power_w,
                average_w=power_w,
                limit_w=500.0 if self.number == 2 else 700.0,
                energy_j=self.energy_j[gpu],
            ),
            temperatures_c={"gpu": heat, "memory": heat + 10.0, "margin": 89.0 - heat},
            throttle_reasons=frozenset(
                {"hw_thermal_slowdown"} if slow else {"sw_power_cap"} if busy > 0.8 else {"gpu_idle"}
            ),
            violation_s={},
            ecc=self._ecc(gpu),
            row_remap=self._remap(gpu),
            pcie=replace(
                sample.pcie,
                counters={
                    "replays": self.now.step if gpu == 2 else 0,
                    "recoveries": self.now.step // 9 if gpu == 3 else 0,
                },
            ),
            nvlinks=self._links(sample, gpu, moved),
            processes=sample.processes if busy > 0.0 else (),
            recovery_action="gpu_reset" if (self.number, gpu) == (3, 0) else "none",
        )

    def _ecc(self, gpu: int) -> tuple[EccCount, ...]:
        wrong = int((self.number, gpu) == (3, 0) and self.now.step > 20)
        return tuple(
            EccCount(kind=kind, span=span, location="dram", count=count)
            for kind, count in (("corrected", self.now.step // 10), ("uncorrected", wrong))
            for span in ("volatile", "aggregate")
        )

    def _remap(self, gpu: int) -> RowRemap:
        sick = (self.number, gpu) == (3, 0)
        banks = {"max": 2557 if sick else 2560, "high": 0, "partial": int(sick), "low": 2 * int(sick), "none": 0}
        return RowRemap(corrected=0, uncorrected=int(sick), pending=sick, failure=False, banks=banks)

    def _links(self, sample: GpuSample, gpu: int, moved: int) -> tuple[NvLinkSample, ...]:
        sick = (self.number, gpu) == (3, 0)
        return tuple(
            replace(
                link,
                state="inactive" if sick and link.link == 7 else "active",
                received_bytes=moved,
                transmitted_bytes=moved,
                errors={"replay": self.now.step if sick else 0, "recovery": int(sick), "crc": 0},
            )
            for link in sample.nvlinks
        )

    def gpus(self) -> GpuReading:
        """Return all GPUs now (the port of collectors)."""
        if self._last is None or self._last[0] != self.now.step:
            self._last = (self.now.step, self._read())
        return self._last[1]

    def _read(self) -> GpuReading:
        samples = [self.sample(gpu) for gpu in range(GPUS)]
        lost: tuple[LostGpu, ...] = ()
        if self.number == 3:
            samples[2] = replace(with_mig(samples[2]), uuid=uuid(3, 2))
            if self.now.step >= 40:
                gone = samples.pop(3)
                lost = (LostGpu(uuid=gone.uuid, index=3, pci=gone.pci, why="it fell off the bus"),)
        return GpuReading(
            read_at_s=self.now.since_s,
            driver="570.124.06",
            nvml="12.570.124.06",
            cuda="12.8",
            gpus=tuple(samples),
            lost=lost,
        )

    def devices(self) -> tuple[DeviceSample, ...]:
        """Return all HCAs now (the port of collectors)."""
        return tuple(
            DeviceSample(
                device=f"mlx5_{rail}",
                board_id="MT_0000000838",
                firmware="28.40.1000",
                hca_type="MT4129",
                node_guid=f"{self.number:08x}{rail:08x}",
                ports=(self._port(rail),),
            )
            for rail in range(GPUS)
        )

    def _port(self, rail: int) -> PortSample:
        since_s = self.now.since_s
        down = (self.number, rail) == (3, 1) and self.now.step > 40
        load = (0.9, 0.85, 0.4, 0.02)[self.number] * (1.0 if rail else 0.8)
        moved = int(load * PORT_BYTES_PER_S * since_s)
        jam = 0.35 if (self.number, rail) == (1, 2) else 0.04
        return PortSample(
            device=f"mlx5_{rail}",
            port=1,
            link_layer="InfiniBand",
            port_guid=f"{self.number:08x}{rail:08x}",
            state=1 if down else 4,
            phys_state=2 if down else 5,
            rate_bytes_per_s=25e9 if (self.number, rail) == (3, 3) and self.now.step > 30 else 50e9,
            speed="4X NDR",
            lid=self.number * 8 + rail + 1,
            sm_lid=1,
            counters={
                "port_xmit_data": moved,
                "port_rcv_data": int(moved * 1.02),
                "port_xmit_packets": moved // 4096,
                "port_rcv_packets": moved // 4096,
                "port_xmit_wait": int(moved / 4 * jam / (1 - jam)),
                "symbol_error": 40 * self.now.step if (self.number, rail) == (3, 0) else 0,
                "link_downed": int(down),
                "port_rcv_errors": 0,
                "port_xmit_discards": 0,
            },
            hardware={
                "np_cnp_sent": 50 * self.now.step,
                "np_ecn_marked_roce_packets": 80 * self.now.step,
                "rp_cnp_handled": 45 * self.now.step,
                "out_of_sequence": self.now.step // 7,
                "packet_seq_err": self.now.step // 9,
                "local_ack_timeout_err": 0,
                "rnr_nak_retry_err": 0,
            },
        )

    def rails(self) -> RailsReading:
        """Return where each port is cabled to."""
        places = {
            (f"{self.number:08x}{rail:08x}", 1): PortPlace(
                guid=f"{self.number:08x}{rail:08x}",
                port=1,
                rail=rail,
                leaf=f"leaf{rail}",
                switch="",
                switch_port=self.number,
            )
            for rail in range(GPUS)
        }
        return RailsReading(places=places, modified=self.now.start_unix_s)

    def host(self) -> HostSample:
        """Return processors, memory, network and disks now."""
        since_s = self.now.since_s
        used = 0.5 if self.number < 3 else 0.02
        return HostSample(
            cpu_s={
                "user": 64 * used * since_s,
                "system": since_s,
                "idle": 64 * (1 - used) * since_s,
                "iowait": 0.1 * since_s,
            },
            cpus=64,
            load=(64 * used, 60 * used, 58 * used),
            memory_bytes={"total": 2**40, "available": 2**39, "free": 2**38, "buffers": 2**30, "cached": 2**37},
            swap_bytes={"total": 0, "free": 0},
            boot_unix_s=self.now.start_unix_s - 86400.0,
            interfaces=(
                InterfaceSample(
                    interface="eth0",
                    received_bytes=int(1e8 * since_s),
                    transmitted_bytes=int(2e8 * since_s),
                    received_packets=int(1e5 * since_s),
                    transmitted_packets=int(1e5 * since_s),
                    receive_errors=0,
                    transmit_errors=0,
                    receive_drops=0,
                    transmit_drops=0,
                ),
            ),
            disks=(
                DiskSample(
                    disk="nvme0n1",
                    read_bytes=int(1e9 * since_s),
                    written_bytes=int(1e8 * since_s),
                    reads=int(1e4 * since_s),
                    writes=int(1e3 * since_s),
                    read_s=since_s / 10,
                    write_s=since_s / 20,
                    busy_s=since_s / 5,
                ),
            ),
        )

    def jobs(self) -> JobMap:
        """Return the jobs of the node now."""
        if self.number == 3:
            mig = "MIG-00000000-0002-5000-8000-000000000000"
            run = self._run(MIG_JOB, "1003", "cy", (JobGpu(uuid=mig, parent=uuid(3, 2), processes=1),), "notebook")
            return JobMap(present=True, jobs=(run,), stale_files=1, strangers={uuid(3, 1): 2})
        job, user, name = (IDLE, "bo", "sweep") if self.number == 2 else (TRAINING, "ada", "llama3-8b")
        gpus = tuple(JobGpu(uuid=uuid(self.number, gpu), processes=int(self.busy(gpu) > 0.0)) for gpu in range(GPUS))
        return JobMap(present=True, jobs=(self._run(job, job.partition("_")[0], user, gpus, name),))

    def _run(self, job: str, number: str, user: str, gpus: tuple[JobGpu, ...], name: str) -> JobRun:
        since_s = self.now.since_s + 3600.0
        group = JobCgroup(
            name=f"job_{number}",
            job_id=number,
            version=2,
            cpus=32,
            threads=400,
            cpu_user_s=14 * since_s,
            cpu_system_s=since_s,
            throttled_s=0.0,
            memory_bytes=300 * 2**30,
            memory_peak_bytes=320 * 2**30,
            memory_limit_bytes=512 * 2**30,
            anonymous_bytes=200 * 2**30,
            cache_bytes=100 * 2**30,
            oom_kills=0,
            limit_hits=0,
            read_bytes=int(1e8 * since_s),
            written_bytes=int(1e7 * since_s),
            stalled_s={"cpu": 0.01 * since_s, "memory": 0.0, "io": 0.05 * since_s},
        )
        return JobRun(
            run=f"{job}@{self.name}",
            job=job,
            job_id=number,
            user=user,
            account="physics",
            partition="gpu",
            qos="normal",
            name=name,
            start_unix_s=self.now.start_unix_s - 3600.0,
            gpus=gpus,
            gpus_allocated=len(gpus),
            gpus_from="prolog",
            cgroup=group,
        )
