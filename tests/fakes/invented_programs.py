"""Forty programs that no reader knows, run again and again by four users, with a memory that only this module knows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from opsk.units import GIB

USERS = ("ada", "grace", "emmy", "rosalind")
GPUS = {"h100": 79.6 * GIB, "a100": 39.4 * GIB, "l40s": 44.5 * GIB}
_STARTS = (
    "srun ./{name} {flags}",
    "srun --mpi=pmix -n 4 {tools}/bin/{name} {flags}",
    "python {tools}/{name}.py {flags}",
    "srun python -m {name}.main {flags}",
    "julia --project={tools} {name}.jl {flags}",
    "singularity exec --nv {tools}/{name}.sif {name} {flags}",
    "mpirun -np 8 {name} {flags}",
    "Rscript {name}.R {flags}",
    "CUDA_LAUNCH_BLOCKING=0 {name} {flags} > {out}/{name}.log 2>&1",
    "time {name} {flags} | tee {out}/run.log",
)
_SIZES = ("--batch", "--width", "-b", "--chunk-size", "--particles", "size", "--tile")
_OTHERS = ("--rate", "--cutoff", "--tolerance", "--rounds", "--warmup")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program: how it is started, and the memory that it takes: a constant and so much per unit of its size."""

    name: str
    user: str
    start: str
    size_flag: str
    sizes: tuple[int, ...]
    other_flag: str
    constant_bytes: float
    unit_bytes: float
    gpus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InventedJob:
    """One submission, and the peak of its memory when it runs."""

    number: int
    program: Program
    script: str
    script_name: str
    directory: str
    gpu_type: str
    gpus: int
    size: int
    is_repeated: bool
    has_failed: bool
    memory_bytes: float = field(repr=False)


def invent_programs(draw: random.Random, count: int = 40) -> list[Program]:
    """Return programs; every tenth is one that another user has as well, to the letter."""
    programs: list[Program] = []
    for number in range(count):
        if number % 10 == 9:
            twin = programs[-1]
            user = USERS[(USERS.index(twin.user) + 1) % len(USERS)]
            programs.append(replace(twin, user=user, constant_bytes=twin.constant_bytes + 9 * GIB))
        else:
            programs.append(_invent_program(draw))
    return programs


def _invent_program(draw: random.Random) -> Program:
    base = draw.choice((1, 2, 4, 8))
    return Program(
        name="".join(draw.choice("bdfgklmnprst") + draw.choice("aeiou") for _ in range(4)),
        user=draw.choice(USERS),
        start=draw.choice(_STARTS),
        size_flag=draw.choice(_SIZES),
        sizes=(base, 2 * base, 3 * base),
        other_flag=draw.choice(_OTHERS),
        constant_bytes=draw.uniform(0.5, 8) * GIB,
        unit_bytes=draw.uniform(0.2, 2) * GIB,
        gpus=draw.choice((1, 1, 2, 4)),
    )


def invent_jobs(draw: random.Random, programs: list[Program], count: int = 300) -> Iterator[InventedJob]:
    """Yield jobs in the order of their submission; what differs between two of a program is drawn for each."""
    seen: set[tuple[str, str]] = set()
    sizes: dict[tuple[str, str], int] = {}
    for number in range(count):
        program = draw.choice(programs)
        key = (program.user, program.name)
        size = sizes.get(key, program.sizes[0])
        if key in seen and draw.random() < 0.3:
            size = draw.choice(program.sizes)
        sizes[key] = size
        gpu_type = draw.choice(tuple(GPUS)) if draw.random() < 0.2 else "h100"
        has_failed = draw.random() < 0.05
        memory = (program.constant_bytes + program.unit_bytes * size) * draw.uniform(0.99, 1.01)
        yield InventedJob(
            number=number, program=program, script=_write_script(draw, program, number, size),
            script_name=f"run_{number}.sh" if draw.random() < 0.5 else "run.sh",
            directory=f"/home/{program.user}/{program.name}/run_{draw.randrange(99)}", gpu_type=gpu_type,
            gpus=program.gpus, size=size, is_repeated=key in seen, has_failed=has_failed, memory_bytes=memory,
        )  # fmt: skip
        if not has_failed:
            seen.add(key)


def _write_script(draw: random.Random, program: Program, number: int, size: int) -> str:
    """Return a script with all that changes from run to run: names, dates, seeds, paths, modules, comments."""
    day = f"2026-{draw.randrange(1, 13):02d}-{draw.randrange(1, 29):02d}"
    out = f"/scratch/{program.user}/{day}/run{number}"
    size_text = f"{program.size_flag}={size}" if "-" not in program.size_flag else f"{program.size_flag} {size}"
    is_variable = program.name < "m"
    flags = (
        f"{'size=$SIZE' if is_variable and '-' not in program.size_flag else size_text} --seed {draw.randrange(10**6)}"
    )
    if is_variable and "-" in program.size_flag:
        flags = flags.replace(size_text, f"{program.size_flag} ${{SIZE}}")
    flags += f" {program.other_flag} {draw.choice((0.1, 0.2, 0.5))} --out {out} --name {program.name}-{number}"
    if draw.random() < 0.1:
        flags += " --verbose"
    lines = [
        "#!/bin/bash",
        f"#SBATCH --job-name={program.name}-{number}",
        f"#SBATCH --output={out}/%j.log",
        f"# tried again on {day}" if draw.random() < 0.5 else "",
        f"module load gcc/{draw.randrange(9, 14)} cuda/12.{draw.randrange(6)}",
        f"mkdir -p {out}",
        f"SIZE={size}" if is_variable else "",
        f'echo "started {day}"' if draw.random() < 0.5 else "",
        program.start.format(name=program.name, flags=flags, tools="/opt/tools", out=out),
    ]
    return "\n".join(lines) + "\n"
