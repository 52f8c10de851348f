"""Does the stand-in answer for what only some GPUs have: MIG, NVLink, a fabric, counters, fields, events?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from opsk.lab.machine.gpus import gpu_uuid, make_h100
from opsk.lab.machine.nvml_standin import StandInEvent, StandInGpu, StandInProcess, StandInState
from tests.fakes.nvml import Nvml
from tests.fakes.nvml_gpus import enable_mig, make_a100, make_h100_node, make_mig_device, with_gpu

GIB = 1 << 30


@pytest.fixture
def mig_nvml(tmp_path: Path) -> Nvml:
    """An A100 cut into devices 0 and 2 (1 is not there), each with a process, beside a whole one."""
    cut = replace(
        enable_mig(make_a100(0), {0: make_mig_device(0), 2: make_mig_device(2)}).with_keys({"mig.2.profile": 19}),
        processes=(
            StandInProcess(pid=100, memory_used_bytes=GIB, gpu_instance=7, compute_instance=0),
            StandInProcess(pid=102, memory_used_bytes=2 * GIB, gpu_instance=9, compute_instance=0),
        ),
    )
    return Nvml(tmp_path, StandInState(gpus=(cut, make_a100(1))))


class TestMig:
    def test_devices_are_found_by_index_with_gaps(self, mig_nvml: Nvml) -> None:
        found = mig_nvml.ask(
            "[pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu(0)), pynvml.nvmlDeviceGetMigMode(gpu(0))]"
            " + [pynvml.nvmlDeviceGetUUID(mig(0, 0)), attempt('nvmlDeviceGetMigDeviceHandleByIndex', gpu(0), 1),"
            " pynvml.nvmlDeviceGetUUID(mig(0, 2)), attempt('nvmlDeviceGetMigDeviceHandleByIndex', gpu(0), 7),"
            " attempt('nvmlDeviceGetMigDeviceHandleByIndex', gpu(1), 0)]",
            before=_MIG,
        )
        uuids = [make_mig_device(index).uuid for index in (0, 2)]
        assert found == [7, [1, 1], uuids[0], {"error": 6}, uuids[1], {"error": 2}, {"error": 3}]

    def test_a_device_knows_its_instances_its_gpu_and_its_memory(self, mig_nvml: Nvml) -> None:
        found = mig_nvml.ask(
            "[pynvml.nvmlDeviceIsMigDeviceHandle(one), pynvml.nvmlDeviceGetGpuInstanceId(one),"
            " pynvml.nvmlDeviceGetComputeInstanceId(one),"
            " pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(one)),"
            " pynvml.nvmlDeviceGetMemoryInfo(one).total, plain(pynvml.nvmlDeviceGetAttributes(one))['memorySizeMB'],"
            " attempt('nvmlDeviceGetUtilizationRates', one), attempt('nvmlDeviceGetPowerUsage', one),"
            " attempt('nvmlDeviceGetGpuInstanceId', gpu(0)), pynvml.nvmlDeviceIsMigDeviceHandle(gpu(0))]",
            before=f"{_MIG}\npynvml.nvmlInit()\none = mig(0, 2)",
        )
        unsupported = {"error": 3}
        assert found == [1, 9, 0, gpu_uuid(0), 5 * GIB, 5120, unsupported, unsupported, {"error": 2}, 0]

    def test_a_device_has_the_processes_of_its_instances_and_the_gpu_has_all(self, mig_nvml: Nvml) -> None:
        found = mig_nvml.ask(
            "[[(each.pid, each.gpuInstanceId) for each in pynvml.nvmlDeviceGetComputeRunningProcesses(device)]"
            " for device in (gpu(0), mig(0, 0), mig(0, 2), gpu(1))]",
            before=_MIG,
        )
        assert found == [[[100, 7], [102, 9]], [[100, 7]], [[102, 9]], []]

    def test_gpu_and_compute_instances_lead_to_the_device(self, mig_nvml: Nvml) -> None:
        found = mig_nvml.ask(
            "[info['id'], info['profileId'],"
            " pynvml.nvmlComputeInstanceGetInfo(pynvml.nvmlGpuInstanceGetComputeInstanceById(instance, 0)).id,"
            " attempt('nvmlDeviceGetGpuInstanceById', gpu(0), 8)]",
            before="pynvml.nvmlInit()\ninstance = pynvml.nvmlDeviceGetGpuInstanceById(gpu(0), 9)\n"
            "info = plain(pynvml.nvmlGpuInstanceGetInfo(instance))",
        )
        assert found == [9, 19, 0, {"error": 6}]

    def test_a_device_that_is_given_up_is_no_device_any_more(self, mig_nvml: Nvml) -> None:
        process = mig_nvml.start(
            "pynvml.nvmlInit()\n"
            "one = pynvml.nvmlDeviceGetHandleByUUID(sys.argv[1] if len(sys.argv) > 1 else input())\n"
            "print(pynvml.nvmlDeviceGetMemoryInfo(one).total, flush=True)\n"
            "input()\n"
            "try: pynvml.nvmlDeviceGetMemoryInfo(one)\n"
            "except pynvml.NVMLError as error: print(error.value)"
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{make_mig_device(2).uuid}\n")
        process.stdin.flush()
        assert int(process.stdout.readline()) == 5 * GIB
        mig_nvml.write(StandInState(gpus=(make_a100(0), make_a100(1))))
        printed, _ = process.communicate("\n", timeout=30)
        assert printed.split() == ["2"]


class TestNvlink:
    def test_links_tell_state_version_remote_and_errors(self, tmp_path: Path) -> None:
        gpu = make_h100(0).with_keys({"nvlink.3.state": 0, "nvlink.3.error.replay": 12})
        found = Nvml(tmp_path, StandInState(gpus=(gpu,))).ask(
            "[pynvml.nvmlDeviceGetNvLinkState(gpu(0), 2), pynvml.nvmlDeviceGetNvLinkState(gpu(0), 3),"
            " attempt('nvmlDeviceGetNvLinkState', gpu(0), 18), attempt('nvmlDeviceGetNvLinkState', gpu(0), 99),"
            " pynvml.nvmlDeviceGetNvLinkVersion(gpu(0), 2), pynvml.nvmlDeviceGetNvLinkRemotePciInfo(gpu(0), 2).busId,"
            " pynvml.nvmlDeviceGetNvLinkRemoteDeviceType(gpu(0), 2),"
            " pynvml.nvmlDeviceGetNvLinkErrorCounter(gpu(0), 3, pynvml.NVML_NVLINK_ERROR_DL_REPLAY)]"
        )
        assert found == [1, 0, {"error": 3}, {"error": 2}, 6, "00000000:07:00.0", 2, 12]

    def test_the_fabric_is_told_in_every_version(self, tmp_path: Path) -> None:
        uuid = "0a5c0000-0000-4000-8000-0000000000ff"
        keys = {"fabric.cluster_uuid": uuid, "fabric.clique": 5, "fabric.health_mask": "0x4102"}
        state = StandInState(gpus=(make_h100(0).with_keys({**keys, "fabric.health_summary": 2}), make_a100(1)))
        found = Nvml(tmp_path, state).ask(
            "[told(pynvml.nvmlDeviceGetGpuFabricInfo, pynvml.c_nvmlGpuFabricInfo_t()),"
            " told(pynvml.nvmlDeviceGetGpuFabricInfoV, pynvml.c_nvmlGpuFabricInfo_v2_t()),"
            " told(pynvml.nvmlDeviceGetGpuFabricInfoV, pynvml.c_nvmlGpuFabricInfo_v3_t()),"
            " attempt('nvmlDeviceGetGpuFabricInfo', gpu(1), pynvml.c_nvmlGpuFabricInfo_t())]",
            before="import ctypes\ndef told(ask, info):\n    ask(gpu(0), ctypes.byref(info))\n    return plain(info)",
        )
        raw = list(bytes.fromhex(uuid.replace("-", "")))
        common = {"clusterUuid": raw, "status": 0, "cliqueId": 5, "state": 3}
        second = {**common, "version": 0x02000024, "healthMask": 0x4102}
        assert found == [common, second, {**second, "version": 0x03000028, "healthSummary": 2}, {"error": 3}]


class TestFields:
    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("NVML_FI_DEV_POWER_AVERAGE", 110_000),
            ("NVML_FI_DEV_POWER_INSTANT", 111_000),
            ("(pynvml.NVML_FI_DEV_POWER_AVERAGE, 1)", 4_000_000),
            ("NVML_FI_DEV_MEMORY_TEMP", 51),
            ("NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 2_000_000),
            ("(pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, 4)", 2000),
            ("(pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, 0xFFFFFFFF)", 18 * 4000),
            ("NVML_FI_DEV_NVLINK_LINK_COUNT", 18),
            ("NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L7", 3),
            ("NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", 3),
            ("NVML_FI_DEV_NVLINK_SPEED_MBPS_L11", 26_562),
            ("NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON", 26_562),
            ("NVML_FI_DEV_PCIE_REPLAY_COUNTER", 0),
            ("NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT", -2),
            ("NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", 1),
            ("NVML_FI_DEV_REMAPPED_COR", 0),
            ("NVML_FI_DEV_C2C_LINK_GET_MAX_BW", 44),
            ("NVML_FI_DEV_PCIE_COUNT_FATAL_ERROR", None),
            ("NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER", None),
        ],
    )
    def test_a_field_has_the_value_of_its_key(self, tmp_path: Path, field: str, value: int | None) -> None:
        own = {
            "module.power.average_mw": 4_000_000,
            "nvlink.7.error.crc_flit": 3,
            "temperature.tlimit.slowdown_c": -2,
            "recovery_action": 1,
            "field.172": 44,
        }
        state = make_h100_node(2)
        nvml = Nvml(tmp_path, with_gpu(state, 1, state.gpus[1].with_keys(own)))
        asked = field if field.startswith("(") else f"pynvml.{field}"
        found = nvml.ask(
            f"[(one.nvmlReturn, number(one)) for one in pynvml.nvmlDeviceGetFieldValues(gpu(1), [{asked}])]",
            before=_FIELD,
        )
        assert found == [[3, 0] if value is None else [0, value]]

    def test_one_missing_field_does_not_cost_the_others(self, tmp_path: Path) -> None:
        found = Nvml(tmp_path).ask(
            "[(one.fieldId, one.nvmlReturn) for one in"
            " pynvml.nvmlDeviceGetFieldValues(gpu(0), [82, 180, 5000, (185, 7), 186])]"
        )
        assert found == [[82, 0], [180, 3], [5000, 2], [185, 2], [186, 0]]


class TestPerformanceCounters:
    def test_metrics_come_from_the_later_of_two_samples(self, tmp_path: Path) -> None:
        found = Nvml(tmp_path).ask("metrics(gpu(3), [2, 5, 10, 13, 0])", before=_GPM)
        assert found == [[0, 53.0], [0, 43.0], [0, 23.0], [3, 0.0], [2, 0.0]]

    def test_a_mig_instance_has_its_own(self, tmp_path: Path) -> None:
        device = replace(make_mig_device(1), keys={"gpm.2": 12.5, "gpm.supported": 1})
        gpu = replace(make_h100(0).with_keys({"mig.mode": 1}), mig={1: device})
        found = Nvml(tmp_path, StandInState(gpus=(gpu,))).ask(
            "metrics(gpu(0), [2], lambda device, sample: pynvml.nvmlGpmMigSampleGet(device, 8, sample))", before=_GPM
        )
        assert found == [[0, 12.5]]

    def test_a_gpu_without_counters_says_so(self, tmp_path: Path) -> None:
        found = Nvml(tmp_path, StandInState(gpus=(make_a100(0), make_h100(1)))).ask(
            "[pynvml.nvmlGpmQueryDeviceSupport(gpu(index)).isSupportedDevice for index in (0, 1)]"
            " + [attempt('nvmlGpmSampleGet', gpu(0), pynvml.nvmlGpmSampleAlloc())]"
        )
        assert found == [0, 1, {"error": 3}]

    def test_empty_foreign_and_freed_samples_are_refused(self, tmp_path: Path) -> None:
        found = Nvml(tmp_path).ask(
            "[wrong(sample(gpu(0)), pynvml.nvmlGpmSampleAlloc()), wrong(sample(gpu(0)), sample(gpu(1))),"
            " wrong(sample(gpu(0)), freed())] + [attempt('nvmlGpmSampleFree', freed())]",
            before=_GPM + "\ndef wrong(one, other):\n"
            "    wanted = pynvml.c_nvmlGpmMetricsGet_t(version=1, numMetrics=1, sample1=one, sample2=other)\n"
            "    return attempt('nvmlGpmMetricsGet', wanted)\n"
            "def freed():\n    one = sample(gpu(0))\n    pynvml.nvmlGpmSampleFree(one)\n    return one",
        )
        assert found == [{"error": 2}] * 4


class TestEvents:
    def test_xids_since_registration_are_handed_out_once_and_in_order(self, tmp_path: Path) -> None:
        state = replace(make_h100_node(2), events=(StandInEvent(number=1, gpu=0, datum=31),))
        nvml = Nvml(tmp_path, state)
        process = nvml.start(
            "pynvml.nvmlInit()\n"
            "events = pynvml.nvmlEventSetCreate()\n"
            "for index in range(2):\n"
            "    handle = pynvml.nvmlDeviceGetHandleByIndex(index)\n"
            "    kinds = pynvml.nvmlDeviceGetSupportedEventTypes(handle) & pynvml.nvmlEventTypeXidCriticalError\n"
            "    pynvml.nvmlDeviceRegisterEvents(handle, kinds, events)\n"
            "print('listening', flush=True)\n"
            "for _ in range(2):\n"
            "    one = pynvml.nvmlEventSetWait_v2(events, 30000)\n"
            "    print(pynvml.nvmlDeviceGetIndex(one.device), one.eventType, one.eventData, one.gpuInstanceId)\n"
            "try: pynvml.nvmlEventSetWait_v2(events, 50)\n"
            "except pynvml.NVMLError_Timeout: print('no more')\n"
            "pynvml.nvmlEventSetFree(events)"
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "listening\n"
        later = (
            StandInEvent(number=10, gpu=1, datum=79),
            StandInEvent(number=9, gpu=0, datum=63, gpu_instance=7),
            StandInEvent(number=8, gpu=0, kind="dbe"),
        )
        nvml.write(replace(state, events=(*state.events, *later)))
        printed, complaint = process.communicate(timeout=60)
        assert complaint == ""
        assert printed.splitlines() == ["0 8 63 7", "1 8 79 4294967295", "no more"]

    def test_events_from_before_are_handed_out_where_the_file_says_so(self, tmp_path: Path) -> None:
        state = replace(make_h100_node(1), events=(StandInEvent(number=4, gpu=0, datum=48),), keys={"events.replay": 1})
        found = Nvml(tmp_path, state).ask("pynvml.nvmlEventSetWait_v2(listen(8), 1000).eventData", before=_LISTEN)
        assert found == 48

    def test_what_a_gpu_does_not_support_cannot_be_listened_for(self, tmp_path: Path) -> None:
        state = make_h100_node(1)
        nvml = Nvml(tmp_path, with_gpu(state, 0, state.gpus[0].with_keys({"events.supported": 8})))
        assert nvml.ask("listen(1 | 8)", before=_LISTEN) == {"error": 3}

    def test_a_lost_gpu_ends_the_waiting(self, tmp_path: Path) -> None:
        nvml = Nvml(tmp_path, make_h100_node(1))
        process = nvml.start(
            f"{_LISTEN}\npynvml.nvmlInit()\n"
            "events = listen(8)\nprint('listening', flush=True)\n"
            "for _ in range(2):\n"
            "    try: print(pynvml.nvmlEventSetWait_v2(events, 30000).eventData)\n"
            "    except pynvml.NVMLError as error: print('error', error.value)"
        )
        assert process.stdout is not None
        process.stdout.readline()
        lost = make_h100_node(1)
        lost = with_gpu(lost, 0, lost.gpus[0].with_keys({"lost": 1}))
        nvml.write(replace(lost, events=(StandInEvent(number=1, gpu=0, datum=79),)))
        printed, _ = process.communicate(timeout=60)
        assert printed.splitlines() == ["79", "error 15"]


def test_topology_is_told_by_level_and_else_by_numa_node(tmp_path: Path) -> None:
    state = replace(make_h100_node(8), keys={"topology.0.1": 10})
    found = Nvml(tmp_path, state).ask(
        "[[pynvml.nvmlDeviceGetTopologyCommonAncestor(gpu(one), gpu(other)) for one, other in"
        " ((0, 0), (0, 1), (1, 0), (0, 2), (0, 4))], len(pynvml.nvmlDeviceGetTopologyNearestGpus(gpu(0), 40))]"
    )
    assert found == [[0, 10, 10, 40, 50], 2]


def test_pcie_throughput_and_links_are_those_of_the_file(tmp_path: Path) -> None:
    found = Nvml(tmp_path).ask(
        "[pynvml.nvmlDeviceGetPcieThroughput(gpu(1), 0), pynvml.nvmlDeviceGetPcieThroughput(gpu(1), 1),"
        " pynvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu(1)), pynvml.nvmlDeviceGetCurrPcieLinkWidth(gpu(1)),"
        " pynvml.nvmlDeviceGetPcieReplayCounter(gpu(1)), pynvml.nvmlDeviceGetNumaNodeId(gpu(5))]"
    )
    assert found == [200, 400, 5, 16, 0, 1]


def test_health_of_memory_is_that_of_the_file(tmp_path: Path) -> None:
    keys: dict[str, str | int] = {
        "remap.corrected": 2,
        "remap.uncorrected": 1,
        "remap.pending": 1,
        "retired.sbe": "0x1f000 1700000000, 0x2f000 1700000001",
        "retired.pending": 1,
        "ecc.sram.threshold_exceeded": 1,
        "ecc.sram.bucket.sm": 4,
    }
    gpu = make_h100(0).with_keys(keys)
    found = Nvml(tmp_path, StandInState(gpus=(gpu,))).ask(
        "[pynvml.nvmlDeviceGetRemappedRows(gpu(0)), plain(pynvml.nvmlDeviceGetRowRemapperHistogram(gpu(0)))['max'],"
        " pynvml.nvmlDeviceGetRetiredPages(gpu(0), 0), pynvml.nvmlDeviceGetRetiredPages_v2(gpu(0), 0),"
        " attempt('nvmlDeviceGetRetiredPages', gpu(0), 1), pynvml.nvmlDeviceGetRetiredPagesPendingStatus(gpu(0)),"
        " (status.bThresholdExceeded, status.aggregateUncBucketSm)]",
        before="import ctypes\npynvml.nvmlInit()\nstatus = pynvml.c_nvmlEccSramErrorStatus_v1_t()\n"
        "pynvml.nvmlDeviceGetSramEccErrorStatus(gpu(0), ctypes.byref(status))",
    )
    pages = [{"address": 0x1F000, "timestamp": 1700000000}, {"address": 0x2F000, "timestamp": 1700000001}]
    assert found == [[2, 1, 1, 0], 640, [0x1F000, 0x2F000], pages, {"error": 3}, 1, [1, 4]]


def test_processes_tell_their_share_of_time(tmp_path: Path) -> None:
    gpu = StandInGpu(uuid=gpu_uuid(0), keys=make_h100(0).keys, processes=(StandInProcess(pid=7, sm_percent=83),))
    nvml = Nvml(tmp_path, StandInState(gpus=(gpu, make_h100(1)), now_s=1000.5))
    found = nvml.ask(
        "[[(each.pid, each.smUtil, each.timeStamp) for each in pynvml.nvmlDeviceGetProcessUtilization(gpu(0), 0)],"
        " attempt('nvmlDeviceGetProcessUtilization', gpu(0), 1000500000),"
        " attempt('nvmlDeviceGetProcessUtilization', gpu(1), 0)]"
    )
    assert found == [[[7, 83, 1_000_500_000]], {"error": 6}, {"error": 6}]


_MIG = "def mig(index, device): return pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu(index), device)"
_FIELD = """
def number(one):
    name = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal"}[one.valueType]
    return getattr(one.value, name)
"""
_GPM = """
def sample(device, fill=pynvml.nvmlGpmSampleGet):
    one = pynvml.nvmlGpmSampleAlloc()
    fill(device, one)
    return one
def metrics(device, ids, fill=pynvml.nvmlGpmSampleGet):
    wanted = pynvml.c_nvmlGpmMetricsGet_t(version=1, numMetrics=len(ids))
    wanted.sample1, wanted.sample2 = sample(device, fill), sample(device, fill)
    for place, metric in enumerate(ids):
        wanted.metrics[place].metricId = metric
    pynvml.nvmlGpmMetricsGet(wanted)
    return [(wanted.metrics[place].nvmlReturn, wanted.metrics[place].value) for place in range(len(ids))]
"""
_LISTEN = """
def listen(kinds):
    events = pynvml.nvmlEventSetCreate()
    pynvml.nvmlDeviceRegisterEvents(pynvml.nvmlDeviceGetHandleByIndex(0), kinds, events)
    return events
"""
