"""GPU samples made by hand, for tests of what is done with them; every number follows from the index of the GPU."""

from __future__ import annotations

from dataclasses import replace

from opsk.telemetry.gpu.samples import (
    EccCount,
    FabricSample,
    GpuActivity,
    GpuMemory,
    GpuPower,
    GpuProcess,
    GpuReading,
    GpuSample,
    MigSample,
    NvLinkSample,
    PcieSample,
    RowRemap,
)

GIB = 1 << 30
REASONS = frozenset(
    {
        "gpu_idle",
        "application_clocks",
        "sw_power_cap",
        "hw_slowdown",
        "sync_boost",
        "sw_thermal_slowdown",
        "hw_thermal_slowdown",
        "hw_power_brake",
        "display_clocks",
    }
)


class FixedGpus:
    """A source that gives one reading after another, and the last for ever; an error is raised."""

    def __init__(self, *readings: GpuReading | Exception) -> None:
        self._readings = list(readings)

    def gpus(self) -> GpuReading:
        reading = self._readings.pop(0) if len(self._readings) > 1 else self._readings[0]
        if isinstance(reading, Exception):
            raise reading
        return reading


def gpu_uuid(index: int) -> str:
    return f"GPU-00000000-0000-4000-8000-{index:012x}"


def h100(index: int, *, minor: int | None = None, links: int = 18) -> GpuSample:
    """An H100 of a node with NVSwitch that has all that NVML can tell of one."""
    return GpuSample(
        uuid=gpu_uuid(index),
        index=index,
        minor=index if minor is None else minor,
        pci=f"0000:{0x1A + index:02x}:00.0",
        model="NVIDIA H100 80GB HBM3",
        architecture="hopper",
        serial=f"165{index:010d}",
        vbios="96.00.74.00.01",
        memory=GpuMemory(total_bytes=80 * GIB, used_bytes=index * GIB, free_bytes=79 * GIB, reserved_bytes=GIB // 2),
        utilisation={"gpu": index / 10, "memory": index / 20},
        activity=GpuActivity(
            window_s=15.0,
            ratios={
                "graphics": 0.9,
                "sm": 0.8,
                "sm_occupancy": 0.3,
                "tensor": 0.4,
                "dram": 0.5,
                "tensor_half": 0.4,
                "fp32": 0.1,
                "fp16": 0.0,
                "fp64": 0.0,
                "integer": 0.05,
            },
            bytes_per_s={"pcie_received": 1e9, "pcie_transmitted": 2e9, "nvlink_received": 3e9},
        ),
        clocks_hz={"graphics": 1.98e9, "sm": 1.98e9, "memory": 2.619e9, "video": 1.545e9},
        clocks_max_hz={"graphics": 1.98e9, "sm": 1.98e9, "memory": 2.619e9, "video": 1.545e9},
        power=GpuPower(
            instant_w=101.0 + index, average_w=100.0 + index, limit_w=700.0, default_limit_w=700.0, energy_j=1000.0
        ),
        temperatures_c={"gpu": 40.0 + index, "memory": 50.0 + index, "margin": 47.0 - index},
        temperature_limits_c={"slowdown": 89.0, "shutdown": 92.0},
        throttle_reasons=frozenset({"gpu_idle"}) if index == 0 else frozenset(),
        throttle_reasons_known=REASONS,
        violation_s={"sw_power_cap": 1.5, "thermal": 0.0, "sync_boost": 0.0, "below_base_clocks": 0.25},
        ecc_enabled=True,
        ecc=tuple(
            EccCount(kind=kind, span=span, location=location, count=count)
            for kind in ("corrected", "uncorrected")
            for span in ("volatile", "aggregate")
            for location, count in (("total", 3), ("dram", 1), ("sram", 2))
        ),
        sram_threshold_exceeded=False,
        row_remap=RowRemap(
            corrected=0,
            uncorrected=1,
            pending=False,
            failure=False,
            banks={"max": 2559, "high": 1, "partial": 0, "low": 0, "none": 0},
        ),
        nvlinks=tuple(
            NvLinkSample(
                link=link,
                state="active",
                version="4.0",
                bytes_per_s=26.562e9,
                remote_kind="switch",
                received_bytes=2048 * (index + 1),
                transmitted_bytes=1024 * (index + 1),
                errors={"replay": 0, "recovery": 0, "crc": 0},
            )
            for link in range(links)
        ),
        pcie=PcieSample(
            generation=5,
            generation_max=5,
            width=16,
            width_max=16,
            counters={"replays": index, "replay_rollovers": 0, "recoveries": 0, "correctable_errors": 0},
        ),
        mig_mode=False,
        processes=(GpuProcess(pid=4711 + index, used_bytes=index * GIB),),
        recovery_action="none",
        fabric=FabricSample(
            state="completed",
            status="success",
            cluster_uuid="6b6b6b6b-0000-4000-8000-000000000001",
            clique=32766,
            health={"degraded_bandwidth": False, "route_unhealthy": False},
            summary="healthy",
        ),
        persistence=True,
        compute_mode="default",
    )


def with_mig(gpu: GpuSample, devices: int = 2) -> GpuSample:
    """The same GPU cut into MIG devices of one slice."""
    return replace(
        gpu,
        mig_mode=True,
        activity=None,
        utilisation={},
        processes=None,
        mig=tuple(
            MigSample(
                uuid=f"MIG-00000000-{gpu.index:04x}-5000-8000-{device:012x}",
                index=device,
                gi=7 + device,
                ci=0,
                profile="1g.10gb",
                memory=GpuMemory(total_bytes=10 * GIB, used_bytes=device * GIB, free_bytes=10 * GIB),
                multiprocessors=16,
                activity=GpuActivity(window_s=15.0, ratios={"sm": 0.25, "tensor": 0.125}),
                processes=(GpuProcess(pid=1),) * device,
            )
            for device in range(devices)
        ),
    )


def reading(*gpus: GpuSample, read_at_s: float = 0.0) -> GpuReading:
    """A reading of these GPUs; of eight H100s when none is named."""
    return GpuReading(
        read_at_s=read_at_s,
        driver="570.124.06",
        nvml="12.570.124.06",
        cuda="12.8",
        gpus=gpus or tuple(h100(index) for index in range(8)),
    )
