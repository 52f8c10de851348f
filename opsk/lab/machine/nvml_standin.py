"""Builds a libnvidia-ml.so.1 for machines without a GPU, and writes the state file with what it reports.

The C source is in ``opsk/lab/nvml``; gcc builds the library from it when a lab or a test needs one, and the real
nvidia-ml-py loads it. ``opsk/lab/nvml/README.md`` documents keys and units of the state file. A GPU does not name what
it does not have: the library answers "not supported", as the real one does.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Self

from opsk.errors import InputError, LabError

Value = str | int | float
"""A number in the unit that the key names, a word, or ``"!NAME"``: the NVML error that this key gives."""

MAX_GPUS = 64
MAX_MIG = 16
_KEY = re.compile(r"[A-Za-z0-9._-]{1,80}")
_CONTROL_SIGN = re.compile(r"[\x00-\x1f]")
LIBRARY = "libnvidia-ml.so.1"
"""The file name under which nvidia-ml-py and every other program loads NVML."""
STATE_VARIABLE = "OPSK_NVML_STATE"
"""The environment variable with the path of the state file."""
_STRICT = ("-std=gnu11", "-Wall", "-Wextra", "-Werror")
_SHARED = ("-fPIC", "-shared", "-fvisibility=hidden", "-pthread")
_SANITIZE = ("-g", "-O1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")


@dataclass(frozen=True, slots=True, kw_only=True)
class StandInProcess:
    """A process on a GPU."""

    pid: int
    memory_used_bytes: int | None = None
    """Not known to the driver where it is None, as for processes of other users' MIG devices."""
    kind: str = "compute"
    """compute, graphics or mps."""
    gpu_instance: int | None = None
    compute_instance: int | None = None
    sm_percent: int | None = None
    memory_percent: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StandInMig:
    """A MIG device; its keys are those of a GPU, as far as a MIG device has them."""

    uuid: str
    gpu_instance: int
    compute_instance: int = 0
    keys: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandInGpu:
    """A GPU, by the keys that it answers."""

    uuid: str
    keys: Mapping[str, Value] = field(default_factory=dict)
    processes: tuple[StandInProcess, ...] = ()
    mig: Mapping[int, StandInMig] = field(default_factory=dict)
    """MIG devices by index; indices may have gaps. The key ``mig.mode`` is whether MIG is on."""

    def having(self, **keys: Value) -> Self:
        """Return this GPU with other keys, ``__`` in place of a dot."""
        return self.with_keys({name.replace("__", "."): value for name, value in keys.items()})

    def with_keys(self, keys: Mapping[str, Value]) -> Self:
        """Return this GPU with other keys."""
        return replace(self, keys={**self.keys, **keys})

    def without(self, *names: str) -> Self:
        """Return this GPU without some keys: it does not support them."""
        return replace(self, keys={name: value for name, value in self.keys.items() if name not in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class StandInEvent:
    """An event of the queue. Each number is handed out once to each event set that registered before it was there."""

    number: int
    gpu: int
    datum: int = 0
    """The XID, or the new recovery action."""
    kind: str = "xid"
    gpu_instance: int | None = None
    compute_instance: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StandInState:
    """The whole machine as NVML sees it."""

    gpus: tuple[StandInGpu, ...] = ()
    driver_version: str = "570.124.06"
    nvml_version: str = "12.570.124.06"
    cuda: int = 12080
    now_s: float | None = None
    """The clock of values that change with time; the machine's where it is None."""
    since_s: float | None = None
    """When the values were true; that many seconds later they have grown by their rates."""
    events: tuple[StandInEvent, ...] = ()
    keys: Mapping[str, Value] = field(default_factory=dict)
    """Any further key, whole: ``init.error``, ``hang.nvmlDeviceGetPowerUsage``, ``topology.0.1`` and so on."""

    def with_keys(self, keys: Mapping[str, Value]) -> Self:
        """Return this state with further keys."""
        return replace(self, keys={**self.keys, **keys})


def format_state(state: StandInState) -> list[str]:
    """Return the lines of a state file.

    Raises
    ------
    InputError
        Too many devices, or a key or value that the form cannot carry.
    """
    if len(state.gpus) > MAX_GPUS:
        raise InputError(f"{len(state.gpus)} GPUs: the NVML stand-in has room for {MAX_GPUS}")
    return [_format_line(key, value) for key, value in _list_pairs(state)]


def write_state(path: Path, state: StandInState) -> None:
    """Replace a state file in one step: a reader sees the old one or the new one.

    Raises
    ------
    InputError
        As `format_state`.
    """
    write_text(path, "".join(f"{line}\n" for line in format_state(state)))


def write_text(path: Path, text: str | bytes) -> None:
    """Replace a state file by any text, a broken one too."""
    half_written = path.with_name(f".{path.name}.{os.getpid()}")
    half_written.write_bytes(text.encode() if isinstance(text, str) else text)
    half_written.replace(path)


@lru_cache(
    maxsize=32_768, typed=True
)  # a node writes 2,800 lines a second, and few values differ from the last second's
def _format_line(key: str, value: Value) -> str:
    if not _KEY.fullmatch(key):
        raise InputError(f"key {key!r}: letters, digits, dots, dashes and underscores, at most 80")
    text = str(int(value)) if isinstance(value, bool) else str(value)
    if _CONTROL_SIGN.search(text):
        raise InputError(f"value of {key}: {text!r} contains control characters")
    return f"{key} = {text}"


def _list_pairs(state: StandInState) -> Iterator[tuple[str, Value]]:
    yield "driver.version", state.driver_version
    yield "nvml.version", state.nvml_version
    yield "driver.cuda", state.cuda
    yield "gpu.count", len(state.gpus)
    if state.now_s is not None:
        yield "now", state.now_s
    if state.since_s is not None:
        yield "since", state.since_s
    for index, gpu in enumerate(state.gpus):
        yield from ((f"gpu.{index}.{name}", value) for name, value in _list_gpu_pairs(gpu))
    for event in state.events:
        numbers = [event.gpu, event.datum]
        if event.gpu_instance is not None:
            numbers += [event.gpu_instance, 0 if event.compute_instance is None else event.compute_instance]
        yield f"event.{event.number}", " ".join([event.kind, *map(str, numbers)])
    yield from state.keys.items()


def _list_gpu_pairs(gpu: StandInGpu) -> Iterator[tuple[str, Value]]:
    yield "uuid", gpu.uuid
    yield from gpu.keys.items()
    for number, process in enumerate(gpu.processes):
        for name in StandInProcess.__slots__:
            value = getattr(process, name)
            if value is not None:
                yield f"process.{number}.{name}", value
    for index, mig in gpu.mig.items():
        if not 0 <= index < MAX_MIG:
            raise InputError(f"MIG device {index}: the NVML stand-in has indices 0 to {MAX_MIG - 1}")
        yield f"mig.{index}.uuid", mig.uuid
        yield f"mig.{index}.gpu_instance", mig.gpu_instance
        yield f"mig.{index}.compute_instance", mig.compute_instance
        yield from ((f"mig.{index}.{name}", value) for name, value in mig.keys.items())


def read_sources() -> dict[str, str]:
    """Return the C sources and headers of the stand-in by name."""
    folder = files("opsk.lab") / "nvml"
    return {
        entry.name: entry.read_text(encoding="utf-8")
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith((".c", ".h"))
    }


def hash_sources() -> str:
    """Return a hash of the sources: the same sources need building once."""
    digest = hashlib.sha256(" ".join((*_STRICT, *_SHARED)).encode())
    for name, text in read_sources().items():
        digest.update(f"{name}\0{text}\0".encode())
    return digest.hexdigest()[:16]


def build(folder: Path, *, sanitize: bool = False) -> Path:
    """Make the library in a folder; return its path.

    Parameters
    ----------
    folder
        Where the library goes; made where it is missing. Nothing else should be in it: it becomes a library path.
    sanitize
        With gcc's checks of addresses and undefined behaviour, for tests of the stand-in itself.

    Raises
    ------
    LabError
        There is no gcc, or it refuses the source.
    """
    compiler = shutil.which("gcc")
    if compiler is None:
        raise LabError("not installed: gcc (package gcc)", hint="as root: apt-get install gcc libc6-dev")
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / LIBRARY
    half_made = folder / f".{LIBRARY}.{os.getpid()}"
    options = (*_STRICT, *(_SANITIZE if sanitize else ("-O1",)), *_SHARED, f"-Wl,-soname,{LIBRARY}")
    with as_file(files("opsk.lab") / "nvml") as source:
        command = [compiler, *options, "-o", str(half_made), *map(str, sorted(source.glob("*.c"))), "-lm"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise LabError(f"gcc on the NVML stand-in: {error}") from error
    if done.returncode != 0:
        half_made.unlink(missing_ok=True)
        raise LabError(f"gcc cannot compile the NVML stand-in: {done.stderr.strip()[-2000:]}")
    half_made.replace(library)
    return library


def build_environment(library: Path, state: Path, inherited: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment in which a program finds the stand-in as its NVML.

    The dynamic linker reads the library path once, when a program starts: give this to a child, or to a systemd unit;
    setting it in a running process does nothing.
    """
    variables = dict(os.environ if inherited is None else inherited)
    rest = variables.get("LD_LIBRARY_PATH", "")
    variables["LD_LIBRARY_PATH"] = f"{library.parent}:{rest}" if rest else str(library.parent)
    variables[STATE_VARIABLE] = str(state)
    return variables
