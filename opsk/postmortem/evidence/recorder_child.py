"""Summarises one dump of PyTorch's flight recorder in isolation: ``python -I -S recorder_child.py``, dump on stdin.

The dump is a pickle, which may be anything: nothing but plain containers, numbers and texts can come out of it here, no
module is imported for it, and memory, time and files of this process are limited. It prints one JSON document: the
rank, how far it came by group, and the entries that were not completed.
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

MAX_BYTES = 256 << 20
MEMORY_BYTES = 2 << 30
CPU_S = 30
MAX_ENTRIES = 64
NOBODY = 65534


class PlainUnpickler(pickle.Unpickler):
    """Makes no object of any class."""

    def find_class(self, module: str, name: str) -> NoReturn:
        """Refuse whatever it is."""
        raise pickle.UnpicklingError(f"it asks for {str(module)[:60]}.{str(name)[:60]}")

    def persistent_load(self, pid: object) -> NoReturn:
        """Refuse objects that are not in the file."""
        raise pickle.UnpicklingError("it asks for an object outside the file")


def confine() -> None:
    """Drop rights and resources that this process does not need."""
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


def load(data: bytes) -> Any:
    """Return the content of the dump: JSON where it is JSON, else the pickle."""
    if data.lstrip()[:1] in (b"{", b"["):
        return json.loads(data)
    return PlainUnpickler(io.BytesIO(data)).load()


def parse_number(value: object) -> int | None:
    """Return a whole number, or None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and -1 <= value < 1 << 62 else None


def shorten(value: object, limit: int = 120) -> str:
    """Return a short text."""
    return value[:limit] if isinstance(value, str) else str(value)[:limit] if isinstance(value, int) else ""


def read_group(entry: dict[str, Any]) -> tuple[str, str]:
    """Return the group of an entry as (name, description)."""
    group = entry.get("process_group") or entry.get("pg_name") or entry.get("pg_id")
    if isinstance(group, (list, tuple)) and group:
        return shorten(group[0]), shorten(group[1]) if len(group) > 1 else ""
    return shorten(group), ""


def format_shape(value: object) -> str:
    """Format the sizes of some tensors as text; malformed sizes give an empty text."""
    rows = [row for row in value[:4] if isinstance(row, (list, tuple))] if isinstance(value, (list, tuple)) else []
    sizes = [[parse_number(size) for size in row[:8]] for row in rows]
    return shorten(json.dumps([row for row in sizes if None not in row])) if sizes else ""


def read_frame(entry: dict[str, Any]) -> str:
    """Return the line of the program that called it."""
    frames = entry.get("frames")
    for frame in frames if isinstance(frames, list) else ():
        if isinstance(frame, dict) and "site-packages" not in shorten(frame.get("filename"), 300):
            return f"{shorten(frame.get('filename'), 200)}:{shorten(frame.get('line'))} {shorten(frame.get('name'))}"
    return ""


def summarise(dump: Any) -> dict[str, Any]:
    """Return the summary of a dump."""
    entries = dump.get("entries", []) if isinstance(dump, dict) else dump
    if not isinstance(entries, list):
        raise TypeError("it has no list of entries")
    groups: dict[str, dict[str, Any]] = {}
    stuck: list[dict[str, Any]] = []
    for entry in entries:
        if not isinstance(entry, dict):
            continue
        name, description = read_group(entry)
        sequence = parse_number(entry.get("collective_seq_id", entry.get("seq_id")))
        state = shorten(entry.get("state"))
        group = groups.setdefault(name, {"description": description, "enqueued": None, "completed": None})
        if sequence is None or entry.get("is_p2p") is True:
            continue
        if group["enqueued"] is None or sequence > group["enqueued"]:
            group["enqueued"] = sequence
        if state == "completed":
            if group["completed"] is None or sequence > group["completed"]:
                group["completed"] = sequence
        elif len(stuck) < MAX_ENTRIES:
            stuck.append(
                {
                    "group": name,
                    "description": description,
                    "seq": sequence,
                    "state": state,
                    "op": shorten(entry.get("profiling_name")).removeprefix("nccl:"),
                    "shape": format_shape(entry.get("input_sizes")),
                    "frame": read_frame(entry),
                    "created_ns": parse_number(entry.get("time_created_ns")),
                    "timeout_ms": parse_number(entry.get("timeout_ms")),
                }
            )
    header = dump if isinstance(dump, dict) else {}
    for name, status in _table_items(header.get("pg_status")):
        group = groups.setdefault(shorten(name), {"description": "", "enqueued": None, "completed": None})
        for key, status_key in (("enqueued", "last_enqueued_collective"), ("completed", "last_completed_collective")):
            value = parse_number(status.get(status_key))
            if value is not None and value >= 0:
                group[key] = value
    for name, config in _table_items(header.get("pg_config")):
        group = groups.setdefault(shorten(name), {"description": "", "enqueued": None, "completed": None})
        group["description"] = group["description"] or shorten(config.get("desc"))
        group["ranks"] = shorten(config.get("ranks"), 20000)
    return {"version": shorten(header.get("version")), "rank": parse_number(header.get("rank")),
            "entries": len(entries), "groups": groups, "stuck": stuck}  # fmt: skip


def _table_items(table: object) -> list[tuple[Any, dict[str, Any]]]:
    """Return the entries of a table that are tables themselves."""
    return [(k, v) for k, v in table.items() if isinstance(v, dict)] if isinstance(table, dict) else []


def main() -> None:
    """Read, confine, unpickle, print."""
    data = sys.stdin.buffer.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        document: dict[str, Any] = {"problem": f"more than {MAX_BYTES} bytes"}
    else:
        confine()
        try:
            document = summarise(load(data))
        except MemoryError:
            document = {"problem": "it needs more memory than a dump may"}
        except RecursionError:
            document = {"problem": "it is nested too deeply"}
        except Exception as error:  # noqa: BLE001 - a damaged pickle raises anything
            document = {"problem": f"{type(error).__name__}: {error}"[:200]}
    sys.stdout.write(json.dumps(document))


if __name__ == "__main__":
    main()
