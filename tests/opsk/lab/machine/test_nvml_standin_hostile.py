"""Does the stand-in stay up whatever its state file holds, whatever it is handed, and however many threads call it?"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from importlib.resources import files
from pathlib import Path

import pytest

from opsk.errors import InputError, LabError
from opsk.lab.machine.gpus import make_h100
from opsk.lab.machine.nvml_standin import (
    StandInEvent,
    StandInProcess,
    StandInState,
    build,
    format_state,
    read_sources,
    write_state,
)
from tests.fakes.nvml import Nvml
from tests.fakes.nvml_gpus import enable_mig, make_a100, make_h100_node, make_mig_device

GOOD = "".join(f"{line}\n" for line in format_state(make_h100_node(2)))
# Every function about a device, with every kind of handle and with junk; but for those that believe the caller's size.
CALL_EVERYTHING = """
import ctypes, re
def call_everything():
    text = open(pynvml.__file__, encoding="utf-8").read()
    names = sorted(set(re.findall(r'_nvmlGetFunctionPointer\\("(nvmlDevice\\w+)"\\)', text)))
    sized = ("nvmlDeviceGetCount", "nvmlDeviceGetHandleBy", "nvmlDeviceGetFieldValues")
    names = [name for name in names if not name.startswith(sized) and "Affinity" not in name]
    handles = [ctypes.c_void_p(address) for address in (None, 1, 4096, id(names))]
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            handles.append(pynvml.nvmlDeviceGetHandleByIndex(index))
            handles.append(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handles[-1], 0))
        except pynvml.NVMLError:
            pass
    said = set()
    for name in names:
        for handle in handles:
            room = [ctypes.create_string_buffer(16384) for _ in range(4)]
            said.add(getattr(pynvml.nvmlLib, name)(handle, *room))
            said.add(getattr(pynvml.nvmlLib, name)(handle, None, None, None, None))
            said.add(getattr(pynvml.nvmlLib, name)(handle, ctypes.c_uint(0), *room))
            said.add(getattr(pynvml.nvmlLib, name)(handle, ctypes.c_uint(0), ctypes.c_uint(0), *room))
    return sorted(said)
"""
BROKEN_FILES = {
    "empty": b"",
    "no line end": b"gpu.count = 2",
    "binary": bytes(range(256)) * 300,
    "zeros": b"\0" * 100_000,
    "no keys": b"= 5\n==\n = = \n\n\n#\n",
    "long key": b"g" * 100_000 + b" = 1\ngpu.count = 1\n",
    "long value": b"driver.version = " + b"5" * 1_000_000 + b"\n",
    "many lines": b"".join(b"gpu.%d.name = x\n" % number for number in range(100_000)),
    "huge numbers": b"gpu.count = 99999999999999999999999999\n",
    "many gpus": b"gpu.count = 4000000000\n",
    "odd events": b"event. = xid 0 1\nevent.x = xid 0 1\nevent.5 = xid\nevent.6 = xid 4000000000 1\nevent.7 = \n",
    "not utf-8": b"gpu.count = 1\ngpu.0.uuid = GPU-\xff\xfe\ngpu.0.name = \xc3\x28\n",
    "formats": b"gpu.count = 1\ngpu.0.name = %s%n%x\ndriver.version = %s%s%s%n\n",
}


@pytest.mark.parametrize("broken", BROKEN_FILES)
def test_a_broken_file_breaks_no_program(tmp_path: Path, broken: str) -> None:
    nvml = Nvml(tmp_path)
    nvml.write_text(BROKEN_FILES[broken])
    nvml.run(f"{CALL_EVERYTHING}\npynvml.nvmlInit()\ncall_everything()\nprint(pynvml.nvmlDeviceGetCount())")


def test_every_function_takes_junk(tmp_path: Path) -> None:
    printed = Nvml(tmp_path, _everything()).run(f"{CALL_EVERYTHING}\npynvml.nvmlInit()\nprint(call_everything())")
    assert "[0, 2, 3" in printed


def test_a_line_that_is_torn_off_does_not_count(tmp_path: Path) -> None:
    nvml = Nvml(tmp_path)
    nvml.write_text(GOOD + "gpu.0.power.usage_mw = 3")
    assert nvml.ask("pynvml.nvmlDeviceGetPowerUsage(gpu(0))") == 100_000


def test_the_last_line_that_names_a_key_counts_and_others_are_passed_over(tmp_path: Path) -> None:
    nvml = Nvml(tmp_path)
    nvml.write_text(
        f"{GOOD}gpu.0.power.usage_mw = 1\n# gpu.0.power.usage_mw = 2\n gpu.0.power.usage_mw\t=   3  \r\n"
        "gpu.0.power.usage_mw 4\ngpu.0.power usage_mw = 5\ngpu.0.power.usage_mw = 6\x07\n"
    )
    assert nvml.ask("pynvml.nvmlDeviceGetPowerUsage(gpu(0))") == 3


@pytest.mark.parametrize("kind", ["folder", "pipe", "too large", "gone", "unreadable"])
def test_a_file_that_cannot_be_read_leaves_what_was_known(tmp_path: Path, kind: str) -> None:
    nvml = Nvml(tmp_path, make_h100_node(1))
    process = nvml.start(
        "pynvml.nvmlInit()\nhandle = pynvml.nvmlDeviceGetHandleByIndex(0)\nprint('ready', flush=True)\ninput()\n"
        "print(pynvml.nvmlDeviceGetPowerUsage(handle))"
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    nvml.path.unlink()
    if kind == "folder":
        nvml.path.mkdir()
    elif kind == "pipe":
        os.mkfifo(nvml.path)
    elif kind == "too large":
        nvml.path.write_bytes(b"gpu.count = 0\n" * 400_000)
    elif kind == "unreadable":
        nvml.path.symlink_to(nvml.path)
    printed, complaint = process.communicate("\n", timeout=30)
    assert (printed, complaint) == ("100000\n", "")


def test_a_state_in_the_making_of_another_shows_one_or_the_other(tmp_path: Path) -> None:
    """Eight threads read while the file changes three hundred times; every answer is of one state or the other."""
    states = [
        StandInState(
            gpus=tuple(make_h100(index).having(power__usage_mw=watts, name=f"GPU of {watts}") for index in range(4))
        )
        for watts in (11, 22)
    ]
    nvml = Nvml(tmp_path, states[0])
    process = nvml.start(_EIGHT_THREADS)
    assert process.stdout is not None
    assert process.stdout.readline() == "reading\n"
    for number in range(300):
        write_state(nvml.path, states[number % 2])
    printed, complaint = process.communicate("\n", timeout=60)
    assert complaint == ""
    assert sorted(printed.split(",")) == ["11", "22", "GPU of 11", "GPU of 22\n"]


class TestWriter:
    @pytest.mark.parametrize(
        "state",
        [
            make_h100_node(1).with_keys({"two words": 1}),
            make_h100_node(1).with_keys({"": 1}),
            make_h100_node(1).with_keys({"name": "one\ngpu.count = 5"}),
            StandInState(gpus=(make_h100(0),) * 65),
            StandInState(gpus=(enable_mig(make_a100(0), {16: make_mig_device(16)}),)),
        ],
    )
    def test_what_the_form_cannot_carry_is_refused(self, state: StandInState) -> None:
        with pytest.raises(InputError):
            format_state(state)

    def test_nothing_is_left_beside_the_file(self, tmp_path: Path) -> None:
        write_state(tmp_path / "state", make_h100_node(1))
        assert [each.name for each in tmp_path.iterdir()] == ["state"]


class TestBuild:
    def test_a_machine_without_gcc_is_told_what_to_install(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(LabError) as caught:
            build(tmp_path / "library")
        assert "apt-get install gcc" in caught.value.hint

    def test_files_are_short_and_there_is_nothing_of_nvidias_in_them(self) -> None:
        texts = read_sources()
        assert {name: text.count("\n") for name, text in texts.items() if text.count("\n") >= 400} == {}
        assert [name for name, text in texts.items() if "Copyright" in text] == []


@pytest.fixture(scope="module")
def checked_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in with gcc's checks in it, and the runtime that a program must load first."""
    folder = tmp_path_factory.mktemp("checked")
    try:
        return build(folder, sanitize=True)
    except LabError as error:
        pytest.skip(f"gcc cannot build with its sanitizers here: {error.message[:80]}")


def test_the_sanitizers_find_nothing(tmp_path: Path, checked_library: Path) -> None:
    """All the files in one program: each is called through, and its snapshot is thrown away."""
    runtimes = [
        subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    nvml = Nvml(tmp_path, _everything(), at=checked_library)
    (tmp_path / "files").mkdir()
    for number, content in enumerate(BROKEN_FILES.values()):
        (tmp_path / "files" / str(number)).write_bytes(content)
    (tmp_path / "files" / "last").write_text("".join(f"{line}\n" for line in format_state(_everything())))
    printed = nvml.run(
        f"{CALL_EVERYTHING}\nimport os, pathlib\npynvml.nvmlInit()\ncall_everything()\n"
        "state = pathlib.Path(os.environ['OPSK_NVML_STATE'])\n"
        "for each in sorted((state.parent / 'files').iterdir()):\n"
        "    each.rename(state)\n    pynvml.nvmlInit()\n    call_everything()\n"
        "print('through')",
        extra={"LD_PRELOAD": " ".join(runtimes), "ASAN_OPTIONS": "detect_leaks=0", "PYTHONMALLOC": "malloc"},
        timeout_s=240,
    )
    assert printed == "through\n"


def test_threads_do_not_race(tmp_path: Path) -> None:
    """A program of C under gcc's check of threads: Python's own locks are not in the way there."""
    source = Path(str(files("opsk.lab") / "nvml"))
    (tmp_path / "race.c").write_text(_RACE)
    options = ["-std=gnu11", "-g", "-O1", "-fsanitize=thread", "-pthread", "-I", str(source)]
    program = [*map(str, sorted(source.glob("*.c"))), str(tmp_path / "race.c"), "-lm", "-o", str(tmp_path / "race")]
    made = subprocess.run(["gcc", *options, *program], capture_output=True, text=True, timeout=120, check=False)
    if made.returncode != 0:
        pytest.skip(f"gcc cannot build with its check of threads here: {made.stderr.strip()[:80]}")
    nvml = Nvml(tmp_path, _everything())
    process = subprocess.Popen(
        ["setarch", "-R", str(tmp_path / "race")] if shutil.which("setarch") else [str(tmp_path / "race")],
        env={**nvml.environment, "TSAN_OPTIONS": "halt_on_error=1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    number = 0
    while process.poll() is None:
        nvml.write(_everything().with_keys({"gpu.0.power.usage_mw": number}))
        number += 1
        time.sleep(0.01)  # what is read anew at every call would take minutes under the check
    assert process.stderr is not None
    complaint = process.stderr.read()
    if "unexpected memory mapping" in complaint:
        pytest.skip("this kernel's memory layout is none that gcc's check of threads knows")
    assert (process.returncode, complaint) == (0, "")


def _everything() -> StandInState:
    """A node with something of everything on it."""
    cut = enable_mig(make_a100(1), {0: make_mig_device(0), 3: make_mig_device(3)})
    busy = StandInProcess(pid=9, memory_used_bytes=5, gpu_instance=7, compute_instance=0)
    state = StandInState(
        gpus=(make_h100(0), type(cut)(uuid=cut.uuid, keys=cut.keys, mig=cut.mig, processes=(busy,)), make_h100(2)),
        events=(StandInEvent(number=1, gpu=0, datum=79),),
        keys={
            "gpu.2.lost": 1,
            "events.replay": 1,
            "gpu.0.cpu_affinity": "0-3,8-4000000000000",
            "gpu.0.fan.0.percent": 3,
        },
    )
    return state.with_keys(
        {
            "gpu.0.retired.sbe": "0x1 2, 0x3, zz",
            "gpu.0.retired.dbe": "",
            "gpu.0.fabric.cluster_uuid": "not a uuid",
            "gpu.0.clock.supported.memory_mhz": "1,2,3",
            "gpu.0.accounting.0.pid": 5,
            "gpu.0.platform.slot": 300,
            "gpu.0.platform.ib_guid": "0123456789abcdef0123456789",
            "gpu.0.energy_mj.rate": "1e300",
        }
    )


_EIGHT_THREADS = """
import threading
pynvml.nvmlInit()
seen, ending = set(), threading.Event()
def read(index):
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    sample = pynvml.nvmlGpmSampleAlloc()
    while True:
        last = ending.is_set()
        seen.add(str(pynvml.nvmlDeviceGetPowerUsage(handle)))
        seen.add(pynvml.nvmlDeviceGetName(handle))
        pynvml.nvmlDeviceGetFieldValues(handle, [82, 83, 138])
        pynvml.nvmlGpmSampleGet(handle, sample)
        if last:
            return
threads = [threading.Thread(target=read, args=(number % 4,)) for number in range(8)]
for thread in threads: thread.start()
print("reading", flush=True)
input()
ending.set()
for thread in threads: thread.join()
print(",".join(sorted(seen)))
"""

_RACE = """
#include <pthread.h>
#include "abi.h"
nvmlReturn_t nvmlInit_v2(void), nvmlShutdown(void);
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int, nvmlDevice_t *);
nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t, unsigned int *);
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t, int, nvmlFieldValue_t *);
nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *), nvmlGpmSampleFree(nvmlGpmSample_t);
nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t, nvmlGpmSample_t);
nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *), nvmlEventSetFree(nvmlEventSet_t);
nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t, unsigned long long, nvmlEventSet_t);
nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t, nvmlEventData_t *, unsigned int);
static nvmlGpmSample_t shared;
static void *work(void *unused) {
    for (int round = 0; round < 300; round++) {
        nvmlDevice_t gpu;
        unsigned int power;
        nvmlFieldValue_t fields[2] = {{.fieldId = 82}, {.fieldId = 138}};
        nvmlEventSet_t set;
        nvmlEventData_t event;
        nvmlInit_v2();
        if (nvmlDeviceGetHandleByIndex_v2(0, &gpu) == 0) {
            nvmlDeviceGetPowerUsage(gpu, &power);
            nvmlDeviceGetFieldValues(gpu, 2, fields);
            nvmlGpmSampleGet(gpu, shared);
            if (nvmlEventSetCreate(&set) == 0) {
                nvmlDeviceRegisterEvents(gpu, 8, set);
                nvmlEventSetWait_v2(set, &event, 0);
                nvmlEventSetFree(set);
            }
        }
        nvmlShutdown();
    }
    return unused;
}
int main(void) {
    pthread_t threads[8];
    nvmlInit_v2();
    nvmlGpmSampleAlloc(&shared);
    for (int at = 0; at < 8; at++) pthread_create(&threads[at], 0, work, 0);
    for (int at = 0; at < 8; at++) pthread_join(threads[at], 0);
    nvmlGpmSampleFree(shared);
    return 0;
}
"""
