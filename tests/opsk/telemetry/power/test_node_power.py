"""Does a node's energy divide among its jobs without a joule lost or invented, and is no part told as a sum?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.telemetry.gpu.samples import GpuPower, GpuReading, GpuSample, LostGpu
from opsk.telemetry.power.hwmon import HwmonPower
from opsk.telemetry.power.node_power import (
    GpuPowerWatch,
    JobUse,
    WatchedGpus,
    find_node_watts,
    share_energy,
    sum_cpu_joules,
    sum_cpu_watts,
    sum_gpu_watts,
)
from opsk.telemetry.power.rapl import RaplZone


def gpu(index: int, watts: float | None) -> GpuSample:
    return GpuSample(uuid=f"GPU-{index}", index=index, power=GpuPower(instant_w=watts))


def reading(*watts: float | None, lost: bool = False) -> GpuReading:
    gone = (LostGpu(uuid="GPU-9", index=9, why="fell off"),) if lost else ()
    return GpuReading(read_at_s=0.0, gpus=tuple(gpu(index, value) for index, value in enumerate(watts)), lost=gone)


def zone(name: str, energy_j: float | None, domain: str) -> RaplZone:
    return RaplZone(zone=name, domain=domain, top="/" not in name, folder=name, energy_j=energy_j)


def test_a_part_of_the_gpus_is_no_sum() -> None:
    assert sum_gpu_watts(reading(100.0, 200.0)) == 300.0
    assert sum_gpu_watts(reading(100.0, None)) is None
    assert sum_gpu_watts(reading(100.0, lost=True)) is None
    assert sum_gpu_watts(reading()) is None


def test_the_watch_remembers_the_last_reading_of_every_kind() -> None:
    now = [10.0]
    watch = GpuPowerWatch(clock=lambda: now[0])
    assert watch.power() is None

    class Source:
        def gpus(self) -> GpuReading:
            return reading(100.0, 200.0)

    WatchedGpus(Source(), watch).gpus()
    now[0] = 15.0
    watch.note("amd", 50.0, 1)
    power = watch.power()
    assert power is not None
    assert (power.watts, power.gpus, power.age_s) == (350.0, 3, 5.0)
    watch.note("amd", None, 1)
    assert watch.power() is None


def test_processors_are_packages_and_their_memory() -> None:
    zones = [
        zone("package-0", 10.0, "package"),
        zone("package-0/core", 6.0, "core"),
        zone("package-0/dram", 3.0, "dram"),
        zone("psys", 99.0, "psys"),
    ]
    # Cores are in the package, psys is the platform.
    assert sum_cpu_joules(zones) == 13.0
    assert sum_cpu_joules([*zones, zone("package-1", None, "package")]) is None
    assert sum_cpu_joules([zone("psys", 99.0, "psys")]) is None


def test_the_board_tells_sockets_and_node() -> None:
    def sensor(part: str, watts: float) -> HwmonPower:
        return HwmonPower(chip="c", driver="d", sensor=part, part=part, average_w=watts)

    grace = [sensor("grace", 200.0), sensor("grace", 210.0), sensor("cpu", 150.0), sensor("module", 900.0)]
    assert sum_cpu_watts(grace) == 410.0
    assert find_node_watts(grace) is None
    assert (
        find_node_watts([sensor("psu_input", 500.0), sensor("psu_input", 510.0), sensor("psu_output", 900.0)]) == 1010.0
    )
    assert find_node_watts([sensor("node", 700.0), sensor("psu_input", 500.0)]) == 700.0


def test_a_job_that_has_the_node_to_itself_pays_all_of_it() -> None:
    shares = share_energy(1000.0, 600.0, [JobUse(job="1", gpu_energy_j=300.0, cpu_share=0.25, whole_node=True)])
    assert (shares.by_job, shares.idle_j) == ({"1": 1000.0}, 0.0)


def test_jobs_that_share_pay_their_gpus_and_their_cpus() -> None:
    uses = [JobUse(job="1", gpu_energy_j=400.0, cpu_share=0.5), JobUse(job="2", gpu_energy_j=100.0, cpu_share=0.25)]
    # The rest is 1000 - 600 = 400 J: 200 and 100 of it; idle are 100 J of GPUs and 100 J of CPUs.
    shares = share_energy(1000.0, 600.0, uses)
    assert (shares.by_job, shares.idle_j) == ({"1": 600.0, "2": 200.0}, 200.0)


def test_cpus_given_out_twice_are_scaled_to_the_node() -> None:
    uses = [JobUse(job=name, gpu_energy_j=0.0, cpu_share=1.0) for name in "ab"]
    assert share_energy(100.0, 0.0, uses).by_job == {"a": 50.0, "b": 50.0}


USES = st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1), st.booleans()), max_size=6)


@given(st.floats(0, 1e8), st.floats(0, 1e7), USES)
def test_no_joule_is_lost_or_invented(node_j: float, idle_gpu_j: float, raw: list[tuple[float, float, bool]]) -> None:
    uses = [
        JobUse(job=str(number), gpu_energy_j=gpu_j, cpu_share=share, whole_node=whole)
        for number, (gpu_j, share, whole) in enumerate(raw)
    ]
    gpus_j = idle_gpu_j + sum(use.gpu_energy_j for use in uses)
    shares = share_energy(node_j, gpus_j, uses)
    total = sum(shares.by_job.values()) + shares.idle_j
    assert total == pytest.approx(max(node_j, gpus_j), rel=1e-9, abs=1e-6)
    assert all(energy >= 0 for energy in shares.by_job.values())
