"""Does the stand-in fail as a real driver does: hung calls, lost GPUs, no driver, a reload, refusals?"""

from __future__ import annotations

import select
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from opsk.lab.machine.gpus import gpu_uuid, make_h100
from opsk.lab.machine.nvml_standin import StandInState, Value
from tests.fakes.nvml import Nvml
from tests.fakes.nvml_gpus import make_h100_node, with_gpu


def _with(index: int, keys: dict[str, Value]) -> StandInState:
    state = make_h100_node(2)
    return with_gpu(state, index, state.gpus[index].with_keys(keys))


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        ({"driver.loaded": 0}, 9),
        ({"init.error": "LIB_RM_VERSION_MISMATCH"}, 18),
        ({"init.error": "NO_PERMISSION"}, 4),
        ({"error.nvmlInitWithFlags": 999}, 999),
        ({"error.nvmlInitWithFlags": "no such word"}, 999),
    ],
)
def test_init_fails_as_the_file_says(tmp_path: Path, keys: dict[str, Value], error: int) -> None:
    assert Nvml(tmp_path, make_h100_node(1).with_keys(keys)).ask("1") == {"error": error}


def test_nothing_answers_before_init_nor_after_shutdown(tmp_path: Path) -> None:
    printed = Nvml(tmp_path).run(
        "def say():\n"
        "    try: print(pynvml.nvmlDeviceGetCount())\n"
        "    except pynvml.NVMLError as error: print(error.value)\n"
        "pynvml._LoadNvmlLibrary(); say()\n"
        "pynvml.nvmlInit(); pynvml.nvmlInit(); say()\n"
        "pynvml.nvmlShutdown(); say()\n"
        "pynvml.nvmlShutdown(); say()\n"
        "try: pynvml.nvmlShutdown()\n"
        "except pynvml.NVMLError as error: print(error.value)"
    )
    assert printed.split() == ["1", "8", "8", "1", "1"]


def test_a_lost_gpu_is_counted_and_answers_nothing_else(tmp_path: Path) -> None:
    found = Nvml(tmp_path, _with(1, {"lost": 1})).ask(
        "[pynvml.nvmlDeviceGetCount(), attempt('nvmlDeviceGetHandleByIndex', 1),"
        f" attempt('nvmlDeviceGetHandleByUUID', {gpu_uuid(1)!r}), attempt('nvmlDeviceGetPowerUsage', gpu(0))]"
    )
    assert found == [2, {"error": 15}, {"error": 15}, 100_000]


def test_a_gpu_is_lost_to_handles_that_were_there_before(tmp_path: Path) -> None:
    nvml = Nvml(tmp_path, make_h100_node(2))
    process = nvml.start(
        "pynvml.nvmlInit()\n"
        "handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(2)]\n"
        "print('ready', flush=True); input()\n"
        "for call in (pynvml.nvmlDeviceGetPowerUsage, pynvml.nvmlDeviceGetUUID, pynvml.nvmlDeviceGetMemoryInfo):\n"
        "    try: call(handles[1])\n"
        "    except pynvml.NVMLError as error: print(error.value)\n"
        "print(pynvml.nvmlDeviceGetPowerUsage(handles[0]), pynvml.nvmlDeviceGetCount())"
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    nvml.write(_with(1, {"lost": 1}))
    assert process.communicate("\n", timeout=30)[0].split() == ["15", "15", "15", "100000", "2"]


def test_after_a_driver_reload_only_a_new_init_helps(tmp_path: Path) -> None:
    nvml = Nvml(tmp_path, make_h100_node(2))
    process = nvml.start(
        "def say():\n"
        "    try: print(pynvml.nvmlDeviceGetCount(), flush=True)\n"
        "    except pynvml.NVMLError as error: print('error', error.value, flush=True)\n"
        "pynvml.nvmlInit(); say(); input(); say()\n"
        "try: pynvml.nvmlInit()\n"
        "except pynvml.NVMLError as error: print('error', error.value, flush=True)\n"
        "input(); say(); pynvml.nvmlInit(); say()"
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "2\n"
    nvml.write(make_h100_node(2).with_keys({"driver.loaded": 0}))
    process.stdin.write("\n")
    process.stdin.flush()
    assert [process.stdout.readline(), process.stdout.readline()] == ["error 1\n", "error 9\n"]
    nvml.write(make_h100_node(1).with_keys({"driver.generation": 1}))
    assert process.communicate("\n", timeout=30)[0].splitlines() == ["error 1", "1"]


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ({"gpu.0.power.usage_mw": "!NO_PERMISSION"}, [4, 110_000, 0]),
        ({"error.nvmlDeviceGetPowerUsage": "TIMEOUT"}, [10, 10, 0]),
        ({"gpu.1.error.nvmlDeviceGetPowerUsage": "RESET_REQUIRED"}, [100_000, 16, 0]),
        ({"gpu.1.error.all": "UNKNOWN"}, [100_000, 999, 0]),
        ({"error.nvmlDeviceGetMemoryInfo": 3}, [100_000, 110_000, 3]),
        ({"error.nvmlDeviceGetMemoryInfo_v2": 3}, [100_000, 110_000, 3]),
        ({"error.nvmlDeviceGetMemoryInfo_v1": 3}, [100_000, 110_000, 0]),
        ({"gpu.0.power.usage_mw": "many"}, [999, 110_000, 0]),
        ({"gpu.0.power.usage_mw": ""}, [999, 110_000, 0]),
        ({"gpu.0.power.usage_mw": "-5"}, [999, 110_000, 0]),
        ({"gpu.0.power.usage_mw": "0x10"}, [16, 110_000, 0]),
        ({"gpu.0.power.usage_mw": "010"}, [10, 110_000, 0]),
    ],
)
def test_errors_come_by_key_by_function_and_by_gpu(tmp_path: Path, keys: dict[str, Value], found: list[int]) -> None:
    nvml = Nvml(tmp_path, make_h100_node(2).with_keys(keys))
    answers = nvml.ask(
        "[attempt('nvmlDeviceGetPowerUsage', gpus[0]), attempt('nvmlDeviceGetPowerUsage', gpus[1]),"
        " attempt('nvmlDeviceGetMemoryInfo', gpus[0], pynvml.nvmlMemory_v2)]",
        before="pynvml.nvmlInit()\ngpus = [gpu(0), gpu(1)]",
    )
    plain = [answer.get("error", 0) if isinstance(answer, dict) else answer for answer in answers]
    assert plain == found


def test_a_buffer_that_is_too_small_is_told_so(tmp_path: Path) -> None:
    found = Nvml(tmp_path).ask(
        "[pynvml.nvmlLib.nvmlDeviceGetName(gpu(0), short, 4), short.raw.hex()]",
        before="import ctypes\nshort = ctypes.create_string_buffer(4)",
    )
    assert found == [7, "00000000"]


def test_structures_of_another_version_are_refused(tmp_path: Path) -> None:
    found = Nvml(tmp_path).ask(
        "[attempt('nvmlDeviceGetMemoryInfo', gpu(0), 7), pynvml.nvmlLib.nvmlGpmMetricsGet(ctypes.byref(odd)),"
        " attempt('nvmlDeviceGetGpuFabricInfoV', gpu(0), ctypes.byref(fabric))]",
        before="odd = pynvml.c_nvmlGpmMetricsGet_t(version=9)\n"
        "fabric = pynvml.c_nvmlGpuFabricInfo_v2_t()\nfabric.version = 5",
    )
    assert found == [{"error": 25}, 25, {"error": 25}]


def test_one_gpu_can_be_kept_from_a_program(tmp_path: Path) -> None:
    nvml = Nvml(tmp_path, _with(1, {"error.nvmlDeviceGetHandleByIndex": "NO_PERMISSION"}))
    found = nvml.ask("[attempt('nvmlDeviceGetHandleByIndex', 1), pynvml.nvmlDeviceGetPowerUsage(gpu(0))]")
    assert found == [{"error": 4}, 100_000]


class TestHangs:
    def test_a_call_sleeps_and_then_answers(self, tmp_path: Path) -> None:
        nvml = Nvml(tmp_path, make_h100_node(1).with_keys({"hang.nvmlDeviceGetPowerUsage": 0.5}))
        began_s, power_mw, ended_s = nvml.ask(
            "[clock(), pynvml.nvmlDeviceGetPowerUsage(gpu(0)), clock()]",
            before="import time\nclock = time.monotonic",
        )
        assert power_mw == 100_000
        assert ended_s - began_s >= 0.5

    def test_it_ends_when_the_file_no_longer_says_so(self, tmp_path: Path) -> None:
        nvml = Nvml(tmp_path, _with(0, {"hang.nvmlDeviceGetPowerUsage": "forever"}))
        process = nvml.start(_TWO_READ)
        assert process.stdout is not None
        assert process.stdout.readline() == "other 110000\n"
        time.sleep(0.3)
        assert process.poll() is None
        nvml.write(make_h100_node(2))
        assert process.communicate(timeout=30)[0].splitlines() == ["hung 100000"]

    def test_it_does_not_answer_signals(self, tmp_path: Path) -> None:
        nvml = Nvml(tmp_path, _with(0, {"hang.all": "forever"}))
        process = nvml.start(
            "pynvml.nvmlInit()\nhandle = pynvml.nvmlDeviceGetHandleByIndex(0)\nprint('calling', flush=True)\n"
            "print(pynvml.nvmlDeviceGetPowerUsage(handle))"
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "calling\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        assert process.poll() is None
        nvml.write(make_h100_node(2))
        process.communicate(timeout=30)
        assert process.returncode != 0

    def test_one_that_holds_the_driver_holds_every_other_call(self, tmp_path: Path) -> None:
        keys: dict[str, Value] = {"gpu.0.hang.nvmlDeviceGetPowerUsage": "forever", "hang.holds_driver": 1}
        nvml = Nvml(tmp_path, make_h100_node(2).with_keys(keys))
        process = nvml.start(_TWO_READ)
        assert process.stdout is not None
        said_something, _, _ = select.select([process.stdout], [], [], 1.5)
        assert not said_something
        nvml.write(make_h100_node(2))
        printed, _ = process.communicate(timeout=30)
        assert sorted(printed.splitlines()) == ["hung 100000", "other 110000"]

    def test_init_itself_can_hang(self, tmp_path: Path) -> None:
        nvml = Nvml(tmp_path, make_h100_node(1).with_keys({"hang.nvmlInitWithFlags": "forever"}))
        process = nvml.start("print('calling', flush=True)\npynvml.nvmlInit()\nprint('done')")
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.2)
        assert process.poll() is None
        nvml.write(make_h100_node(1))
        assert process.communicate(timeout=30)[0] == "done\n"


class TestTime:
    def test_counters_grow_by_their_rate_since_the_file_says(self, tmp_path: Path) -> None:
        keys: dict[str, Value] = {
            "energy_mj": 1000,
            "energy_mj.rate": 700_000,
            "pcie.replays": 50,
            "pcie.replays.rate": -10,
        }
        state = replace(StandInState(gpus=(make_h100(0).with_keys(keys),)), since_s=100.0)
        ask = "[pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu(0)), pynvml.nvmlDeviceGetPcieReplayCounter(gpu(0))]"
        nvml = Nvml(tmp_path, replace(state, now_s=100.0))
        assert nvml.ask(ask) == [1000, 50]
        nvml.write(replace(state, now_s=102.5))
        assert nvml.ask(ask) == [1_751_000, 25]
        nvml.write(replace(state, now_s=1000.0))
        assert nvml.ask(ask) == [630_001_000, 0]

    def test_without_a_clock_of_its_own_it_grows_from_when_the_file_was_written(self, tmp_path: Path) -> None:
        gpu = make_h100(0).with_keys({"energy_mj": 0, "energy_mj.rate": 1_000_000})
        before_s = time.time()
        energy_mj = Nvml(tmp_path, StandInState(gpus=(gpu,))).ask("pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu(0))")
        assert 0 < energy_mj <= 1_000_000 * (time.time() - before_s + 0.1)

    def test_the_time_of_a_field_is_the_clocks(self, tmp_path: Path) -> None:
        found = Nvml(tmp_path, replace(make_h100_node(1), now_s=1234.5)).ask(
            "pynvml.nvmlDeviceGetFieldValues(gpu(0), [82])[0].timestamp"
        )
        assert found == 1_234_500_000


_TWO_READ = """
import os, threading, time
pynvml.nvmlInit()
handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(2)]
calling = threading.Event()
def read(name, handle):
    calling.set()
    line = f"{name} {pynvml.nvmlDeviceGetPowerUsage(handle)}\\n"
    os.write(1, line.encode())  # in one piece: two threads that print at once mix their words
hung = threading.Thread(target=read, args=("hung", handles[0]))
hung.start()
calling.wait()
time.sleep(0.5)
other = threading.Thread(target=read, args=("other", handles[1]))
other.start()
hung.join()
other.join()
"""
