"""What is in one dump of PyTorch's flight recorder? Run alone, as ``python -I -S recorder_child.py``, dump on stdin.

The dump is a pickle, which may be anything: here nothing but plain containers, numbers and texts can come out of it, no
module is imported for it, and memory, time and files of this process are limited. It prints one JSON document: rank by
groups how far they came, and entries that were not completed.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import resource
import sys
from typing import Any, NoReturn

MOST_BYTES = 256 << 20
MEMORY_BYTES = 2 << 30
CPU_S = 30
MOST_ENTRIES = 64
NOBODY = 65534


class PlainUnpickler(pickle.Unpickler):
    """Makes no object of any class."""

    def find_class(self, module: str, name: str) -> NoReturn:
        """Refuse whatever it is."""
        raise pickle.UnpicklingError(f"it asks for {str(module)[:60]}.{str(name)[:60]}")

    def persistent_load(self, pid: object) -> NoReturn:
        """Refuse what is not in the file."""
        raise pickle.UnpicklingError("it asks for an object outside the file")


def confine() -> None:
    """Take from this process what it does not need."""
    if os.geteuid() == 0:
        with contextlib.suppress(OSError):  # a sandbox may have taken the right to
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
    for what, limit in (
        (resource.RLIMIT_AS, MEMORY_BYTES), (resource.RLIMIT_CPU, CPU_S), (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 3), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_NPROC, 0),
    ):  # fmt: skip
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(what, (limit, limit))
    sys.setrecursionlimit(500)


def loaded(data: bytes) -> Any:
    """Return what the dump holds: JSON where it is, else the pickle."""
    if data.lstrip()[:1] in (b"{", b"["):
        return json.loads(data)
    return PlainUnpickler(io.BytesIO(data)).load()


def number(value: object) -> int | None:
    """Return a whole number, or None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and -1 <= value < 1 << 62 else None


def text(value: object, limit: int = 120) -> str:
    """Return a short text."""
    return value[:limit] if isinstance(value, str) else str(value)[:limit] if isinstance(value, int) else ""


def group_of(entry: dict[str, Any]) -> tuple[str, str]:
    """Return the group of an entry as (name, description)."""
    group = entry.get("process_group") or entry.get("pg_name") or entry.get("pg_id")
    if isinstance(group, (list, tuple)) and group:
        return text(group[0]), text(group[1]) if len(group) > 1 else ""
    return text(group), ""


def shape(value: object) -> str:
    """Return sizes of some tensors as text; what is nested as no sizes are says nothing."""
    rows = [row for row in value[:4] if isinstance(row, (list, tuple))] if isinstance(value, (list, tuple)) else []
    told = [[number(size) for size in row[:8]] for row in rows]
    return text(json.dumps([row for row in told if None not in row])) if told else ""


def frame_of(entry: dict[str, Any]) -> str:
    """Return the line of the program that called it."""
    frames = entry.get("frames")
    for frame in frames if isinstance(frames, list) else ():
        if isinstance(frame, dict) and "site-packages" not in text(frame.get("filename"), 300):
            return f"{text(frame.get('filename'), 200)}:{text(frame.get('line'))} {text(frame.get('name'))}"
    return ""


def summary(dump: Any) -> dict[str, Any]:
    """Return what matters of a dump."""
    entries = dump.get("entries", []) if isinstance(dump, dict) else dump
    if not isinstance(entries, list):
        raise TypeError("it has no list of entries")
    groups: dict[str, dict[str, Any]] = {}
    stuck: list[dict[str, Any]] = []
    for entry in entries:
        if not isinstance(entry, dict):
            continue
        name, description = group_of(entry)
        sequence = number(entry.get("collective_seq_id", entry.get("seq_id")))
        state = text(entry.get("state"))
        found = groups.setdefault(name, {"description": description, "enqueued": None, "completed": None})
        if sequence is None or entry.get("is_p2p") is True:
            continue
        if found["enqueued"] is None or sequence > found["enqueued"]:
            found["enqueued"] = sequence
        if state == "completed":
            if found["completed"] is None or sequence > found["completed"]:
                found["completed"] = sequence
        elif len(stuck) < MOST_ENTRIES:
            stuck.append(
                {
                    "group": name,
                    "description": description,
                    "seq": sequence,
                    "state": state,
                    "op": text(entry.get("profiling_name")).removeprefix("nccl:"),
                    "shape": shape(entry.get("input_sizes")),
                    "frame": frame_of(entry),
                    "created_ns": number(entry.get("time_created_ns")),
                    "timeout_ms": number(entry.get("timeout_ms")),
                }
            )
    told = dump if isinstance(dump, dict) else {}
    for name, status in _items(told.get("pg_status")):
        found = groups.setdefault(text(name), {"description": "", "enqueued": None, "completed": None})
        for key, said in (("enqueued", "last_enqueued_collective"), ("completed", "last_completed_collective")):
            value = number(status.get(said))
            if value is not None and value >= 0:
                found[key] = value
    for name, config in _items(told.get("pg_config")):
        found = groups.setdefault(text(name), {"description": "", "enqueued": None, "completed": None})
        found["description"] = found["description"] or text(config.get("desc"))
        found["ranks"] = text(config.get("ranks"), 20000)
    return {"version": text(told.get("version")), "rank": number(told.get("rank")), "entries": len(entries),
            "groups": groups, "stuck": stuck}  # fmt: skip


def _items(table: object) -> list[tuple[Any, dict[str, Any]]]:
    """Return the entries of a table that are tables themselves."""
    return [(k, v) for k, v in table.items() if isinstance(v, dict)] if isinstance(table, dict) else []


def main() -> None:
    """Read, confine, unpickle, say."""
    data = sys.stdin.buffer.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        said: dict[str, Any] = {"problem": f"more than {MOST_BYTES} bytes"}
    else:
        confine()
        try:
            said = summary(loaded(data))
        except MemoryError:
            said = {"problem": "it needs more memory than a dump may"}
        except RecursionError:
            said = {"problem": "it is nested too deeply"}
        except Exception as error:  # noqa: BLE001 - a damaged pickle raises anything
            said = {"problem": f"{type(error).__name__}: {error}"[:200]}
    sys.stdout.write(json.dumps(said))


if __name__ == "__main__":
    main()
