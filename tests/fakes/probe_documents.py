"""The document of a measurement of an H100 node, with a few rows of every part."""

from __future__ import annotations

from typing import Any

LOADED = {"clock_hz": 1.7e9, "power_w": 650.0, "temperature_c": 60, "is_throttled": False}


def probe_document(**more: Any) -> dict[str, Any]:
    """Return the document as JSON values; ``more`` replaces parts."""
    timed = {"time_s": 1e-3, "spread": 0.01}
    return {
        "format": "opsk-probe", "version": 1, "measured_at": "2026-05-01T10:00:00Z", "took_s": 310.0,
        "command": ["--seconds", "540"],
        "machine": {
            "device": "cuda", "gpu": "NVIDIA H100 80GB HBM3", "ranks": 8, "nodes": 1, "gpus_per_node": 8,
            "torch": "2.13.0", "driver": "570.1", "cuda": "12.8", "nccl": "2.27.3", "memory_bytes": 8.5e10,
            "power_limit_w": 700.0, "max_clock_hz": 1.98e9, "variables": {"NCCL_DEBUG": "WARN"},
        },
        "launch": [{"kernels": 2000, "gap_s": 4.5e-6}],
        "memory": [{"size_bytes": 1 << size, **timed, "bytes_per_s": 2.6e12, **LOADED} for size in (24, 30)],
        "matmul": [
            {"precision": "bf16", "m": size, "k": size, "n": size, **timed, "flop_per_s": rate, **LOADED}
            for size, rate in ((1024, 3e14), (8192, 7e14))
        ],
        "attention": [
            {"kernel": "flash", "batch": 2, "heads": 16, "length": 8192, "head": 128, "forward_s": 1e-3, "both_s": 3e-3,
             "spread": 0.01, "forward_flop_per_s": 5e14, "both_flop_per_s": 4.2e14}
        ],
        "host_link": [{"way": "to_gpu", "size_bytes": 1 << 28, **timed, "bytes_per_s": 5.5e10}],
        "collectives": [
            {"collective": name, "scope": "all", "ranks": 8, "nodes": 1, "size_bytes": 1 << 28, "time_s": seconds,
             "spread": 0.02}
            for name, seconds in (("all_reduce", 1.2e-3), ("all_gather", 0.7e-3), ("all_to_all", 0.7e-3))
        ],
        "training": [
            {"variant": "plain", "micro_batch": 1, "ranks": 1, "layers": 12, "hidden": 2048, "ffn": 5632, "heads": 16,
             "vocab": 32000, "seq": 2048, "step_s": 0.05, "parameters": 742_000_000, "loss": 10.4,
             "allocated_bytes": 9e9, "reserved_bytes": 1e10, "device_bytes": 1.1e10}
        ],
        "sustained": [{"flop_per_s": 6.5e14, **LOADED}],
        "skipped": [],
        **more,
    }  # fmt: skip
