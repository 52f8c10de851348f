"""Measures a node's GPUs and links with PyTorch, and writes one JSON document.

It runs in the site's own environment for training, where opsk may be absent: it imports PyTorch and the standard
library alone. One process runs per GPU; the variables of torchrun (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR,
MASTER_PORT) or of srun (SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID) say which it is. With ``--cpu`` it runs on
processors with gloo, in small sizes, to try it.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Row = dict[str, Any]
Call = Callable[[], Any]
FORMAT = "opsk-probe"
VERSION = 1
WARM_UP, MIN_REPEATS, MAX_REPEATS = 3, 5, 200
SAMPLE_S = 0.15
"""Time for one measurement, after its warm-up [s]."""


def main() -> None:
    """Measure, and write the document on rank 0."""
    options = parse_options()
    try:
        import torch
    except ImportError:
        sys.exit("opsk probe: this Python has no PyTorch: name another with --python, or load its module")
    if not options.cpu and not torch.cuda.is_available():
        sys.exit("opsk probe: PyTorch sees no GPU here: request one from Slurm, or try the program with --cpu")
    probe = Probe(torch, options)
    try:
        document = probe.run()
    finally:
        probe.close()
    if probe.rank == 0:
        text = json.dumps(document, indent=1, allow_nan=False)
        if options.output == "-":
            print(text)
        else:
            draft = options.output + ".new"
            with open(draft, "w", encoding="ascii") as file:
                file.write(text + "\n")
            os.replace(draft, options.output)
            print(f"opsk probe: {options.output}", file=sys.stderr)


def parse_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description="Measure this node's GPUs and links.")
    parser.add_argument("--output", default="opsk-probe.json", help="file of the document; - is stdout")
    parser.add_argument("--seconds", type=float, default=540.0, help="longest time of all measurements")
    parser.add_argument("--cpu", action="store_true", help="small sizes on processors, to try the program")
    return parser.parse_args()


class Probe:
    """One process of the measurement: a GPU, or a processor with ``--cpu``."""

    def __init__(self, torch: Any, options: argparse.Namespace) -> None:
        self.torch = torch
        self.cpu = options.cpu
        self.began_s = time.monotonic()
        self.seconds = options.seconds
        self.skipped: list[Row] = []
        self.rank, self.ranks, self.local = read_place()
        self.device = torch.device("cpu") if self.cpu else torch.device("cuda", self.local % torch.cuda.device_count())
        if self.cpu:
            torch.set_num_threads(1)
        else:
            torch.cuda.set_device(self.device)
        self.nvml = None if self.cpu else Nvml(torch, self.device)
        if self.ranks > 1:
            from datetime import timedelta

            torch.distributed.init_process_group(
                "gloo" if self.cpu else "nccl", rank=self.rank, world_size=self.ranks, timeout=timedelta(seconds=120)
            )

    def close(self) -> None:
        """Leave the group of processes."""
        if self.ranks > 1 and self.torch.distributed.is_initialized():
            self.torch.distributed.destroy_process_group()

    def run(self) -> dict[str, Any]:
        """Return the document; parts that do not fit into the time are listed in ``skipped``."""
        parts = {}
        for name, share, measure in (
            ("launch", 0.05, self.measure_launch),
            ("memory", 0.1, self.measure_memory),
            ("matmul", 0.4, self.measure_matmul),
            ("attention", 0.55, self.measure_attention),
            ("host_link", 0.6, self.measure_host_link),
            ("collectives", 0.8, self.measure_collectives),
            ("training", 0.95, self.measure_training),
            ("sustained", 1.0, self.measure_sustained),
        ):
            self.until_s = self.began_s + share * self.seconds
            parts[name] = self.attempt(name, measure)
        return {
            "format": FORMAT,
            "version": VERSION,
            "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "took_s": round(time.monotonic() - self.began_s, 1),
            "command": sys.argv[1:],
            "machine": self.describe(),
            **parts,
            "skipped": self.skipped,
        }

    def attempt(self, name: str, measure: Callable[[], Iterator[Row]]) -> list[Row]:
        """Return the rows of one part; a failure costs this part alone."""
        rows = []
        try:
            for row in measure():
                rows.append({key: round_value(value) for key, value in row.items()})
                if self.is_late():
                    self.skipped.append({"part": name, "why": "no time for the rest"})
                    break
        except Exception as error:  # any library may refuse a shape or a format
            text = str(error).splitlines()[0] if str(error) else ""
            self.skipped.append({"part": name, "why": f"{type(error).__name__}: {text}"[:300]})
            if not self.cpu and "out of memory" in text:
                self.torch.cuda.empty_cache()
        return rows

    def is_late(self) -> bool:
        """Return whether the part's time is over, on any rank: all ranks must stop at the same row."""
        late = float(time.monotonic() > self.until_s)
        if self.ranks > 1:
            flag = self.torch.tensor([late], device=self.device)
            self.torch.distributed.all_reduce(flag)
            late = float(flag.item())
        return late > 0

    def describe(self) -> Row:
        """Return what is needed to repeat the measurement."""
        torch = self.torch
        facts = {
            "device": "cpu" if self.cpu else "cuda",
            "gpu": platform.processor() or platform.machine(),
            "ranks": self.ranks,
            "nodes": max(1, self.ranks // max(1, self.count_local())),
            "gpus_per_node": self.count_local(),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "kernel": platform.release(),
            "variables": {
                name: value
                for name, value in sorted(os.environ.items())
                if name.startswith(("NCCL_", "CUDA_", "TORCH_", "OMP_")) and "TOKEN" not in name
            },
        }
        if not self.cpu:
            properties = torch.cuda.get_device_properties(self.device)
            facts |= {
                "gpu": properties.name,
                "memory_bytes": properties.total_memory,
                "multiprocessors": properties.multi_processor_count,
                "capability": list(torch.cuda.get_device_capability(self.device)),
                "cuda": torch.version.cuda or torch.version.hip or "",
                "driver": self.nvml.driver() if self.nvml else "",
                "nccl": ".".join(map(str, torch.cuda.nccl.version())) if torch.version.cuda else "",
                "power_limit_w": self.nvml.read("power_limit_w") if self.nvml else None,
                "max_clock_hz": self.nvml.read("max_clock_hz") if self.nvml else None,
            }
        return facts

    def count_local(self) -> int:
        """Return the number of processes on this node."""
        for name in ("LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE"):
            if os.environ.get(name, "").isdecimal():
                return min(int(os.environ[name]), self.ranks)
        return self.ranks

    # -- timing -------------------------------------------------------------------------------------------------------

    def wait(self) -> None:
        """Wait until the GPU has done all work."""
        if not self.cpu:
            self.torch.cuda.synchronize(self.device)

    def time_call(self, call: Call, repeats: int | None = None) -> tuple[float, float]:
        """Return the median time of a call, and the spread between the quartiles over it [s, ratio].

        Ranks repeat a collective equally often: with ``repeats`` the number is fixed.
        """
        for _ in range(WARM_UP):
            call()
        self.wait()
        if repeats is None:
            began_s = time.perf_counter()
            call()
            self.wait()
            once_s = max(time.perf_counter() - began_s, 1e-7)
            repeats = max(MIN_REPEATS, min(MAX_REPEATS, int(SAMPLE_S / once_s)))
        times = self.time_by_events(call, repeats) if not self.cpu else time_by_clock(call, repeats)
        middle = statistics.median(times)
        quartiles = statistics.quantiles(times, n=4) if len(times) > 3 else [middle] * 3
        return middle, (quartiles[2] - quartiles[0]) / middle if middle else 0.0

    def time_by_events(self, call: Call, repeats: int) -> list[float]:
        """Return the times of calls by the GPU's own clock [s]."""
        event = self.torch.cuda.Event
        marks = [event(enable_timing=True) for _ in range(repeats + 1)]
        marks[0].record()
        for mark in marks[1:]:
            call()
            mark.record()
        self.wait()
        return [first.elapsed_time(second) / 1e3 for first, second in zip(marks, marks[1:])]

    def clocks(self) -> Row:
        """Return clock and power now, and whether heat or power holds the clock down."""
        return self.nvml.sample() if self.nvml else {}

    # -- one GPU ------------------------------------------------------------------------------------------------------

    def measure_launch(self) -> Iterator[Row]:
        """Yield the time from one small kernel to the next, as the host launches them."""
        x = self.torch.ones(16, device=self.device)
        count = 200 if self.cpu else 2000
        for _ in range(3):
            self.wait()
            began_s = time.perf_counter()
            for _ in range(count):
                x.add_(1.0)
            self.wait()
            yield {"kernels": count, "gap_s": (time.perf_counter() - began_s) / count}

    def measure_memory(self) -> Iterator[Row]:
        """Yield the bandwidth of copies: every byte is read once and written once."""
        for mib in (1, 4) if self.cpu else (16, 64, 256, 1024, 4096):
            source = self.torch.empty(mib << 20, dtype=self.torch.uint8, device=self.device)
            target = self.torch.empty_like(source)
            seconds, spread = self.time_call(lambda: target.copy_(source))
            yield {
                "size_bytes": mib << 20,
                "time_s": seconds,
                "spread": spread,
                "bytes_per_s": 2.0 * (mib << 20) / seconds,
                **self.clocks(),
            }

    def measure_matmul(self) -> Iterator[Row]:
        """Yield the rate of products of m x k and k x n."""
        torch = self.torch
        shapes = (
            [(64, 64, 64), (128, 256, 64)]
            if self.cpu
            else [
                *((size, size, size) for size in (512, 1024, 2048, 4096, 8192, 16384)),
                *((rows, 4096, 4096) for rows in (16, 128, 512, 2048, 8192)),
                (4096, 4096, 11008),
                (4096, 8192, 28672),
                (8192, 128, 8192),
                (8192, 512, 8192),
                (8192, 8192, 1024),
            ]
        )
        formats = (
            [("fp32", torch.float32)]
            if self.cpu
            else [
                ("bf16", torch.bfloat16),
                ("fp16", torch.float16),
                ("fp32", torch.float32),
            ]
        )
        for name, kind in formats:
            for m, k, n in shapes:
                a = torch.randn(m, k, device=self.device, dtype=kind)
                b = torch.randn(k, n, device=self.device, dtype=kind)
                seconds, spread = self.time_call(lambda: a @ b)
                yield {
                    "precision": name,
                    "m": m,
                    "k": k,
                    "n": n,
                    "time_s": seconds,
                    "spread": spread,
                    "flop_per_s": 2.0 * m * k * n / seconds,
                    **self.clocks(),
                }
        if not self.cpu and hasattr(torch, "_scaled_mm") and torch.cuda.get_device_capability(self.device) >= (8, 9):
            yield from self.measure_fp8()

    def measure_fp8(self) -> Iterator[Row]:
        """Yield the rate of products in FP8, with one scale for each matrix."""
        torch = self.torch
        one = torch.ones((), device=self.device)
        for size in (2048, 4096, 8192, 16384):
            a = torch.randn(size, size, device=self.device).to(torch.float8_e4m3fn)
            b = torch.randn(size, size, device=self.device).to(torch.float8_e4m3fn).t()
            seconds, spread = self.time_call(
                lambda: torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
            )
            yield {
                "precision": "fp8",
                "m": size,
                "k": size,
                "n": size,
                "time_s": seconds,
                "spread": spread,
                "flop_per_s": 2.0 * size**3 / seconds,
                **self.clocks(),
            }

    def measure_attention(self) -> Iterator[Row]:
        """Yield the rate of causal attention, forward alone and with its backward, by kernel, length and head."""
        torch = self.torch
        from torch.nn.attention import SDPBackend, sdpa_kernel

        kernels = (
            [("math", SDPBackend.MATH)]
            if self.cpu
            else [
                ("flash", SDPBackend.FLASH_ATTENTION),
                ("cudnn", getattr(SDPBackend, "CUDNN_ATTENTION", None)),
                ("efficient", SDPBackend.EFFICIENT_ATTENTION),
            ]
        )
        for name, backend in kernels:
            if backend is None:
                continue
            for length in (64,) if self.cpu else (1024, 2048, 4096, 8192, 16384):
                for head in (16,) if self.cpu else (64, 128):
                    heads = 2 if self.cpu else 2048 // head
                    batch = max(1, (64 if self.cpu else 16384) // length)
                    shape = (batch, heads, length, head)
                    kind = torch.float32 if self.cpu else torch.bfloat16
                    q, k, v = (torch.randn(shape, device=self.device, dtype=kind, requires_grad=True) for _ in range(3))
                    grad = torch.randn(shape, device=self.device, dtype=kind)

                    def forward() -> Any:
                        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

                    def both() -> None:
                        torch.autograd.grad(forward(), (q, k, v), grad)

                    flop = 2.0 * batch * heads * length * length * head  # half of 4 b h s s d: causal
                    try:
                        with sdpa_kernel(backend):
                            forward_s, spread = self.time_call(forward)
                            both_s, _ = self.time_call(both)
                    except RuntimeError as error:
                        self.skipped.append({"part": "attention", "why": f"{name} {length} {head}: {str(error)[:80]}"})
                        continue
                    yield {
                        "kernel": name,
                        "batch": batch,
                        "heads": heads,
                        "length": length,
                        "head": head,
                        "forward_s": forward_s,
                        "both_s": both_s,
                        "spread": spread,
                        "forward_flop_per_s": flop / forward_s,
                        "both_flop_per_s": 3.5 * flop / both_s,
                    }

    def measure_host_link(self) -> Iterator[Row]:
        """Yield the bandwidth of copies between host and GPU, each way, from memory that is pinned."""
        torch = self.torch
        for mib in (1,) if self.cpu else (1, 16, 256):
            host = torch.empty(mib << 20, dtype=torch.uint8, pin_memory=not self.cpu)
            device = torch.empty(mib << 20, dtype=torch.uint8, device=self.device)
            for way, call in (
                ("to_gpu", lambda: device.copy_(host, non_blocking=True)),
                ("to_host", lambda: host.copy_(device, non_blocking=True)),
            ):
                seconds, spread = self.time_call(call)
                yield {
                    "way": way,
                    "size_bytes": mib << 20,
                    "time_s": seconds,
                    "spread": spread,
                    "bytes_per_s": (mib << 20) / seconds,
                }

    def measure_sustained(self) -> Iterator[Row]:
        """Yield clock and power under a long load of large products, second by second."""
        if self.cpu:
            return
        a = self.torch.randn(8192, 8192, device=self.device, dtype=self.torch.bfloat16)
        for _ in range(20):
            began_s, count = time.perf_counter(), 0
            while time.perf_counter() - began_s < 1.0:
                for _ in range(5):
                    a @ a
                self.wait()
                count += 5
            seconds = time.perf_counter() - began_s
            yield {"flop_per_s": 2.0 * 8192**3 * count / seconds, **self.clocks()}

    # -- several GPUs -------------------------------------------------------------------------------------------------

    def measure_collectives(self) -> Iterator[Row]:
        """Yield the time of collectives among all ranks, among those of a node, and among those of one place (rail)."""
        if self.ranks < 2:
            return
        local = self.count_local()
        groups = [("all", self.torch.distributed.group.WORLD, self.ranks)]
        if 1 < local < self.ranks:
            groups += [
                (
                    "node",
                    self.make_group([list(range(start, start + local)) for start in range(0, self.ranks, local)]),
                    local,
                ),
                (
                    "rail",
                    self.make_group([list(range(place, self.ranks, local)) for place in range(local)]),
                    self.ranks // local,
                ),
            ]
        for scope, group, size in groups:
            for mib in (0.0625, 1) if self.cpu else (0.0625, 0.5, 4, 32, 256, 1024):
                for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
                    if self.cpu and name in ("reduce_scatter", "all_to_all"):
                        continue  # gloo has neither
                    size_bytes = int(mib * (1 << 20)) // (2 * size) * 2 * size
                    call = self.make_collective(name, group, size, size_bytes)
                    self.torch.distributed.barrier()
                    seconds, spread = self.time_call(call, repeats=5 if self.cpu or mib >= 256 else 20)
                    yield {
                        "collective": name,
                        "scope": scope,
                        "ranks": size,
                        "nodes": self.count_nodes(scope, local),
                        "size_bytes": size_bytes,
                        "time_s": self.slowest(seconds),
                        "spread": spread,
                    }

    def count_nodes(self, scope: str, local: int) -> int:
        """Return on how many nodes the ranks of a group are."""
        return 1 if scope == "node" else max(1, self.ranks // local)

    def slowest(self, seconds: float) -> float:
        """Return the time of the slowest rank [s]."""
        value = self.torch.tensor([seconds], device=self.device)
        self.torch.distributed.all_reduce(value, op=self.torch.distributed.ReduceOp.MAX)
        return float(value.item())

    def make_group(self, members: list[list[int]]) -> Any:
        """Return this rank's group of several that are made together."""
        groups = [self.torch.distributed.new_group(ranks) for ranks in members]
        return next(group for group, ranks in zip(groups, members) if self.rank in ranks)

    def make_collective(self, name: str, group: Any, size: int, size_bytes: int) -> Call:
        """Return a call of a collective on an array of so many bytes in all."""
        torch, distributed = self.torch, self.torch.distributed
        kind = torch.float32 if self.cpu else torch.bfloat16
        count = size_bytes // (4 if self.cpu else 2) // size * size
        whole = torch.ones(count, device=self.device, dtype=kind)
        part = torch.ones(count // size, device=self.device, dtype=kind)
        if name == "all_reduce":
            return lambda: distributed.all_reduce(whole, group=group)
        if name == "all_gather":
            parts = list(whole.chunk(size))
            return (
                (lambda: distributed.all_gather(parts, part, group=group))
                if self.cpu
                else (lambda: distributed.all_gather_into_tensor(whole, part, group=group))
            )
        if name == "reduce_scatter":
            return lambda: distributed.reduce_scatter_tensor(part, whole, group=group)
        other = torch.empty_like(whole)
        return lambda: distributed.all_to_all_single(other, whole, group=group)

    # -- training -----------------------------------------------------------------------------------------------------

    def measure_training(self) -> Iterator[Row]:
        """Yield steps of a small model of Llama's kind: plain, recomputed, and sharded over all ranks."""
        shape = (
            {"layers": 2, "hidden": 32, "ffn": 64, "heads": 2, "vocab": 64, "seq": 16}
            if self.cpu
            else {"layers": 12, "hidden": 2048, "ffn": 5632, "heads": 16, "vocab": 32000, "seq": 2048}
        )
        variants = [("plain", False, False), ("recomputed", True, False)]
        if self.ranks > 1:
            variants += [("fsdp", False, True), ("fsdp recomputed", True, True)]
        for name, recompute, sharded in variants:
            for batch in (1, 2) if self.cpu else (1, 2, 4):
                row = {"variant": name, "micro_batch": batch, "ranks": self.ranks if sharded else 1, **shape}
                yield {**row, **self.train(shape, batch, recompute=recompute, sharded=sharded)}

    def train(self, shape: Mapping[str, int], batch: int, *, recompute: bool, sharded: bool, steps: int = 4) -> Row:
        """Return the time of a step and the memory that it takes."""
        torch = self.torch
        torch.manual_seed(1)
        model = build_model(torch, shape, recompute=recompute).to(self.device)
        if not self.cpu:
            model = model.to(torch.bfloat16)
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self.device)
        if sharded:
            from torch.distributed.fsdp import fully_shard

            for block in model.blocks:
                fully_shard(block)
            fully_shard(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        tokens = torch.randint(shape["vocab"], (batch, shape["seq"] + 1), device=self.device)
        times = []
        for _ in range(steps):
            self.wait()
            began_s = time.perf_counter()
            logits = model(tokens[:, :-1])
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            self.wait()
            times.append(time.perf_counter() - began_s)
        result = {
            "step_s": min(times[1:]),
            "parameters": sum(math.prod(p.shape) for p in model.parameters()),
            "loss": float(loss.item()),
        }
        if not self.cpu:
            result |= {
                "allocated_bytes": torch.cuda.max_memory_allocated(self.device),
                "reserved_bytes": torch.cuda.max_memory_reserved(self.device),
                "device_bytes": torch.cuda.mem_get_info(self.device)[1] - torch.cuda.mem_get_info(self.device)[0],
            }
        return result


def build_model(torch: Any, shape: Mapping[str, int], *, recompute: bool) -> Any:
    """Return a decoder of Llama's kind: RMS norms, rotary positions, gated MLP, untied head."""
    from torch.utils.checkpoint import checkpoint

    nn, functional = torch.nn, torch.nn.functional
    hidden, heads, ffn = shape["hidden"], shape["heads"], shape["ffn"]
    head = hidden // heads

    class Block(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
            self.qkv, self.out = nn.Linear(hidden, 3 * hidden, bias=False), nn.Linear(hidden, hidden, bias=False)
            self.gate, self.up = nn.Linear(hidden, ffn, bias=False), nn.Linear(hidden, ffn, bias=False)
            self.down = nn.Linear(ffn, hidden, bias=False)

        def forward(self, x: Any, cos: Any, sin: Any) -> Any:
            b, s, _ = x.shape
            q, k, v = self.qkv(self.norm1(x)).view(b, s, 3, heads, head).permute(2, 0, 3, 1, 4)
            q, k = rotate(torch, q, cos, sin), rotate(torch, k, cos, sin)
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, s, hidden))
            z = self.norm2(x)
            return x + self.down(functional.silu(self.gate(z)) * self.up(z))

    class Model(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(shape["vocab"], hidden)
            self.blocks = nn.ModuleList(Block() for _ in range(shape["layers"]))
            self.norm, self.head = nn.RMSNorm(hidden), nn.Linear(hidden, shape["vocab"], bias=False)

        def forward(self, tokens: Any) -> Any:
            x = self.embedding(tokens)
            angles = torch.outer(
                torch.arange(tokens.shape[1], device=x.device, dtype=torch.float32),
                10000.0 ** -(torch.arange(0, head, 2, device=x.device, dtype=torch.float32) / head),
            )
            cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
            for block in self.blocks:
                x = checkpoint(block, x, cos, sin, use_reentrant=False) if recompute else block(x, cos, sin)
            return self.head(self.norm(x))

    return Model()


def rotate(torch: Any, x: Any, cos: Any, sin: Any) -> Any:
    """Return queries or keys at their rotary positions."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def time_by_clock(call: Call, repeats: int) -> list[float]:
    """Return the times of calls by the host's clock [s]."""
    times = []
    for _ in range(repeats):
        began_s = time.perf_counter()
        call()
        times.append(max(time.perf_counter() - began_s, 1e-9))
    return times


def read_place() -> tuple[int, int, int]:
    """Return this process's rank, the number of ranks, and its place on the node."""
    for rank, ranks, local in (("RANK", "WORLD_SIZE", "LOCAL_RANK"), ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")):
        values = [os.environ.get(name, "") for name in (rank, ranks, local)]
        if all(value.isdecimal() for value in values):
            first, second, third = map(int, values)
            return first, second, third
    return 0, 1, 0


def round_value(value: Any) -> Any:
    """Return a number with six digits, for a document that people read."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


class Nvml:
    """Clock, power and throttle reasons of one GPU, from libnvidia-ml; empty where the library is absent."""

    def __init__(self, torch: Any, device: Any) -> None:
        self.handle = None
        try:
            self.library = ctypes.CDLL("libnvidia-ml.so.1")
            if self.library.nvmlInit_v2() != 0:
                return
            uuid = "GPU-" + str(torch.cuda.get_device_properties(device).uuid)
            handle = ctypes.c_void_p()
            if self.library.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle)) == 0:
                self.handle = handle
        except (OSError, AttributeError):
            self.handle = None

    def driver(self) -> str:
        """Return the driver's version."""
        text = ctypes.create_string_buffer(96)
        is_known = self.handle is not None and self.library.nvmlSystemGetDriverVersion(text, 96) == 0
        return text.value.decode() if is_known else ""

    def read(self, name: str) -> float | None:
        """Return one value in SI units; ``None`` where it is not known."""
        if self.handle is None:
            return None
        value = ctypes.c_uint()
        calls = {
            "power_w": lambda: self.library.nvmlDeviceGetPowerUsage(self.handle, ctypes.byref(value)),
            "power_limit_w": lambda: self.library.nvmlDeviceGetEnforcedPowerLimit(self.handle, ctypes.byref(value)),
            "clock_hz": lambda: self.library.nvmlDeviceGetClockInfo(self.handle, 1, ctypes.byref(value)),
            "max_clock_hz": lambda: self.library.nvmlDeviceGetMaxClockInfo(self.handle, 1, ctypes.byref(value)),
            "temperature_c": lambda: self.library.nvmlDeviceGetTemperature(self.handle, 0, ctypes.byref(value)),
        }
        if calls[name]() != 0:
            return None
        return value.value * {"power_w": 1e-3, "power_limit_w": 1e-3, "clock_hz": 1e6, "max_clock_hz": 1e6}.get(name, 1)

    def sample(self) -> Row:
        """Return clock, power and temperature now, and whether heat held the clock down."""
        if self.handle is None:
            return {}
        reasons = ctypes.c_ulonglong()
        self.library.nvmlDeviceGetCurrentClocksThrottleReasons(self.handle, ctypes.byref(reasons))
        # nvml.h: SwThermalSlowdown 0x20, HwThermalSlowdown 0x40, HwPowerBrake 0x80
        return {name: self.read(name) for name in ("clock_hz", "power_w", "temperature_c")} | {
            "is_throttled": bool(reasons.value & 0xE0)
        }


if __name__ == "__main__":
    main()
