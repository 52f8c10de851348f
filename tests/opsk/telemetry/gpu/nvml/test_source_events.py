"""Are XIDs heard, whose they are told, and is the listener there again after everything that can happen to it?"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opsk.lab.machine.gpus import gpu_uuid
from opsk.lab.machine.nvml_standin import StandInEvent, StandInState
from opsk.telemetry.gpu.nvml import source as nvml_events
from opsk.telemetry.gpu.nvml.caller import TIMEOUT
from tests.fakes.nvml import Nvml
from tests.fakes.nvml_gpus import make_h100_node

_PROGRAM = """
import dataclasses, threading
from opsk.telemetry.gpu.nvml.source import NvmlEvents

lock = threading.Lock()
def say(**what):
    with lock:
        print(json.dumps(what), flush=True)
class Loud(NvmlEvents):
    def _wait(self, events):
        say(listening=len(self._owners))
        return super()._wait(events)
events = Loud(lambda event: say(**dataclasses.asdict(event)), clock=lambda: 1700000000.0)
events.start()
for line in sys.stdin:
    if line.strip() == "pause":
        say(paused=events.pause())
    else:
        events.resume()
"""


class Listener:
    """A child that listens; its lines in order."""

    def __init__(self, nvml: Nvml) -> None:
        root = str(Path(__file__).resolve().parents[5])
        self._child: subprocess.Popen[str] = nvml.start(_PROGRAM, extra={"PYTHONPATH": root})

    def line(self) -> Any:
        assert self._child.stdout is not None
        return json.loads(self._child.stdout.readline())

    def tell(self, word: str) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(f"{word}\n")
        self._child.stdin.flush()

    def end(self) -> None:
        self._child.kill()
        self._child.communicate()


@pytest.fixture
def node(tmp_path: Path) -> Nvml:
    return Nvml(tmp_path, make_h100_node(2))


@pytest.fixture
def listener(node: Nvml) -> Iterator[Listener]:
    listening = Listener(node)
    assert listening.line() == {"listening": 2}
    yield listening
    listening.end()


def with_xid(number: int, gpu: int, code: int, **keys: int) -> StandInState:
    events = (StandInEvent(number=number, gpu=gpu, datum=code),)
    return StandInState(gpus=make_h100_node(2).gpus, events=events).with_keys(keys)


def test_an_xid_is_told_with_its_gpu_and_address(node: Nvml, listener: Listener) -> None:
    node.write(with_xid(1, 1, 79))
    assert listener.line() == {
        "code": 79,
        "at_unix_s": 1700000000.0,
        "gpu": gpu_uuid(1),
        "pci": "0000:43:00.0",
    }


def test_a_gpu_that_is_lost_with_its_xid_is_named_all_the_same(node: Nvml, listener: Listener) -> None:
    node.write(with_xid(1, 1, 79, **{"gpu.1.lost": 1}))
    event = listener.line()
    if "listening" in event:  # the loss was seen before the event: the others are listened to
        pytest.skip("the stand-in gives no events of a lost GPU")
    assert (event["gpu"], event["pci"]) == (gpu_uuid(1), "0000:43:00.0")


def test_the_listener_lets_go_of_nvml_and_takes_it_up_again(node: Nvml, listener: Listener) -> None:
    listener.tell("pause")
    assert listener.line() == {"paused": True}
    listener.tell("resume")
    assert listener.line() == {"listening": 2}
    node.write(with_xid(1, 0, 31))
    assert listener.line()["code"] == 31


class NvmlOfOneGpu:
    """As much of pynvml as the listener uses; a wait ends as the test wants."""

    def __init__(self, code: int) -> None:
        self.code = code
        self.registered = threading.Semaphore(0)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)
        return lambda *_arguments: None

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802 - NVML's name
        return 1

    def nvmlDeviceRegisterEvents(self, *_arguments: Any) -> None:  # noqa: N802 - NVML's name
        self.registered.release()

    def nvmlEventSetWait_v2(self, *_arguments: Any) -> Any:  # noqa: N802 - NVML's name
        error = RuntimeError("NVML said so")
        error.value = self.code  # type: ignore[attr-defined]
        raise error


class Handle:
    """A GPU as pynvml hands it out: another object each time, with the same pointer behind it."""

    def __init__(self, index: int) -> None:
        self.contents = index
        self.index = index


class NvmlOfTwoGpus(NvmlOfOneGpu):
    """The second GPU cannot be registered at first; each GPU has one event, and tells it when it is listened to."""

    def __init__(self) -> None:
        super().__init__(TIMEOUT)
        self.listened_to: list[int] = []
        self.tries = 0
        self.sets = 0
        self.freed_early = 0
        self.closing = False

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802 - NVML's name
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Handle:  # noqa: N802 - NVML's name
        return Handle(index)

    def nvmlEventSetCreate(self) -> str:  # noqa: N802 - NVML's name
        self.sets += 1
        return f"set {self.sets}"

    def nvmlEventSetFree(self, _events: Any) -> None:  # noqa: N802 - NVML's name
        self.freed_early += not self.closing

    def nvmlDeviceRegisterEvents(self, handle: Handle, *_arguments: Any) -> None:  # noqa: N802 - NVML's name
        self.tries += 1
        if handle.index == 1 and self.tries < 5:
            raise RuntimeError("lost")
        self.listened_to.append(handle.index)
        self.registered.release()


def test_a_gpu_that_came_back_is_heard_and_no_other_is_unheard_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml_events, "_LOOK_AGAIN_S", 0.01)
    monkeypatch.setattr(nvml_events, "_get_address", lambda handle: handle.index)
    nvml = NvmlOfTwoGpus()
    events = nvml_events.NvmlEvents(lambda _event: None, nvml)
    events.start()
    assert all(nvml.registered.acquire(timeout=10) for _ in range(2))
    assert not nvml.registered.acquire(timeout=0.2)  # looked over again and again, and none is registered twice
    assert (nvml.listened_to, nvml.sets, nvml.freed_early) == ([0, 1], 1, 0)
    nvml.closing = True
    events.close()


def test_a_listener_ends_when_it_is_closed_also_while_it_lets_go() -> None:
    for paused in (False, True):
        before = threading.enumerate()
        nvml = NvmlOfOneGpu(TIMEOUT)
        events = nvml_events.NvmlEvents(lambda _event: None, nvml)
        events.start()
        assert nvml.registered.acquire(timeout=10)
        (thread,) = [each for each in threading.enumerate() if each.name == "gpu-events" and each not in before]
        if paused:
            assert events.pause()
        events.close()
        thread.join(30)
        assert not thread.is_alive()


def test_after_nvml_fails_there_is_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml_events, "_FIRST_BACKOFF_S", 60.0)
    nvml = NvmlOfOneGpu(TIMEOUT + 1)
    events = nvml_events.NvmlEvents(lambda _event: None, nvml)
    events.start()
    try:
        assert nvml.registered.acquire(timeout=10)
        assert not nvml.registered.acquire(timeout=0.5)
    finally:
        events.close()


def test_after_a_driver_reload_it_listens_again(node: Nvml, listener: Listener) -> None:
    node.write(make_h100_node(2).with_keys({"driver.generation": 1}))
    assert listener.line() == {"listening": 2}
    node.write(with_xid(1, 0, 94, **{"driver.generation": 1}))
    assert listener.line()["code"] == 94


def test_reader_and_listener_survive_a_reload_together(node: Nvml) -> None:
    program = """
from opsk.telemetry.gpu.nvml.source import NvmlGpus
from opsk.telemetry.gpu.nvml.source import NvmlEvents
heard = []
events = NvmlEvents(lambda event: heard.append(event.code))
source = NvmlGpus(events=events)
events.start()
for line in sys.stdin:
    print(json.dumps({"gpus": len(source.gpus().gpus), "heard": heard}), flush=True)
"""
    child = node.start(program, extra={"PYTHONPATH": str(Path(__file__).resolve().parents[5])})
    assert child.stdin is not None
    assert child.stdout is not None

    def tell(word: str) -> Any:
        child.stdin.write(f"{word}\n")  # type: ignore[union-attr]
        child.stdin.flush()  # type: ignore[union-attr]
        return json.loads(child.stdout.readline())  # type: ignore[union-attr]

    try:
        assert tell("read")["gpus"] == 2
        node.write(make_h100_node(2).with_keys({"driver.generation": 1}))
        assert tell("read")["gpus"] == 2
        # The listener is there again at an unknown time: events go on coming until one is heard.
        for number in range(1, 40):
            node.write(with_xid(number, 0, 48, **{"driver.generation": 1}))
            child_heard = tell("read")["heard"]
            if child_heard:
                break
            threading.Event().wait(0.25)
        assert child_heard[0] == 48
    finally:
        child.kill()
        child.communicate()
