"""Tells what a shell says of a line of its script from what ended the script: without ``set -e`` it goes on."""

from __future__ import annotations

import re

from opsk.postmortem.logs.lines import REACH_BYTES, LogLine
from opsk.postmortem.logs.ordinary import find_third_last_ordinary
from opsk.postmortem.logs.pieces import Piece
from opsk.postmortem.values import TRIFLE
from opsk.units import KIB

SURVIVED_BY_SCRIPTS = ("shell.not_found", "shell.not_found_localised", "shell.module_unknown", "shell.syntax")
_IN_SCRIPT = re.compile(r": (?:line )?\d{1,6}: |Lmod|[Mm]odule|[Cc]onda\b|Conda|Environment|given prefix")
_SCRIPT_GOES_ON_BYTES = 8192
_SETS_UP = re.compile(
    r": (?:line )?\d{1,6}: "
    r"(?:(?:cd|module|ml|source|conda|mamba|micromamba|pushd|ulimit|nvidia-smi|lscpu|numactl|ccache)\b"
    r"|\S{0,200}(?:activate|\.sh|\.bashrc|profile): No such file)|: \S{0,200}/(?:modulecmd|lmod)\S{0,8}: No such file"
)
_SET_UP_GOES_ON_LINES = 10
"""A command that only prepares is not what the job was for: this many lines below it were printed by something else."""
_MODULE_GOES_ON_LINES = 40
"""The same for Lmod and Modules, which themselves print up to some twenty lines of advice."""
_NOHUP, _NOHUP_LINES = "nohup: ", 3
"""It says no more where it cannot run a program: what stands below is of another start, into the same file."""
_CLEANS_UP = re.compile(r"conda deactivate|: line \d{1,6}: deactivate: ")
"""Below a program, a line that only takes its environment down."""
_NO_SHEBANG = re.compile(r": line 1: !/\S{1,200}: No such file or directory$")
"""The first line of a script lacks its ``#``: the shell that reads it tries to run it, and goes on."""
_PYTHON_WARNED = re.compile(rb"\.py:\d{1,6}: \w{0,40}Warning: ")
"""Where Python warns of what a program does, the program runs."""
_BAR_IS_FULL, _BAR_BYTES = re.compile(rb"100%\|[^\r\n]{1,200}[\r\n]+$"), 400
"""What the job was for has just been done to its end: a line of the script below that is no reason for a failure."""
_OF_A_LINE = re.compile(r": line \d{1,6}: (?P<command>[^\s:]{1,200}): ")
_OF_A_TOOL = re.compile(
    r"^(?:\S{0,200}/)?(?:gzip|gunzip|zcat|bzip2|xz|zip|unzip|tar|cp|mv|rm|rmdir|ln|cat|ls|chmod|chgrp|chown|touch"
    r"|rsync|scp|mail|sendmail|curl|wget): "
)
"""It puts results away, and does not make them."""
_RUNS_PROGRAMS = re.compile(
    r"(?:^|/)(?:python|torchrun|srun|sbatch|mpi|ibrun|aprun|jsrun|accelerate|deepspeed|horovodrun|ray|julia|R\b"
    r"|Rscript|matlab|java|perl|ruby|node|make|cmake|gcc|g\+\+|nvcc|singularity|apptainer|docker|podman|conda|mamba"
    r"|module|ml\b|source|bash|sh\b|time|nohup|exec|uv\b|pip|poetry|jupyter|vllm|ollama|gmx|lmp|vasp|cp2k|namd|nwchem"
    r"|orca|g09|g16|psi4|pmemd|sander|openmc|wrf|fluent|abaqus|ansys|comsol|snakemake|nextflow|samtools|bcftools|bwa"
    r"|bowtie|hisat|STAR\b|blast|fastqc|gatk|salmon|kallisto|cellranger)|\w+Foam$|\.(?:py|sh|pl|R|jl|m|x|exe|sif)$"
    r"|^\.{1,2}/(?!.*\.(?:txt|log|out|err|csv|json|ya?ml|dat|png|pdf|gz|tar|zip|h5|npy)$)",
)
"""What a job is for: without it nothing was done."""
_DONE = re.compile(
    rb"(?i)\b(?:done|finish(?:ed)?|complet(?:ed?|ion)|saved|sav(?:ing|es) \S+ to|success\w*|took|elapsed|total time"
    rb"|wrote|written)\b"
)
_DONE_BYTES = 400
_SERVER_KILLED = re.compile(
    r": line \d{1,6}: +\d{1,10} Killed .{0,200}?(?:api_server|launch_server|\bserve\b|[_-]server\b|server\.py|ray start"
    r"|tensorboard|nvidia-smi|dcgmi|vmstat|iostat|\btop\b|tail -f|monitor)"
)
"""Servers and monitors do not end by themselves: scripts start them in the background and kill them at the end."""
_HELPER_PROGRAMS = re.compile(
    r"monitor|smi\b|dcgm|scrape|[Ss]erver|\bserve\b|daemon|exporter|redis|mongod|postgres|mysqld|tensorboard|jupyter"
    r"|vmstat|iostat|\btop\b|\btail\b|\bsleep\b|watch|\btee\b|\bray\b|ngrok|ssh\b|proxy|tunnel|ollama|vllm|code-"
)
_WORKED_BYTES = 4 * KIB
"""Before this much of output there was more than the beginning of a script."""
_LAST_BYTES = 1024


def goes_on(signature: str, piece: Piece, line: LogLine) -> bool:
    """Return whether much follows what a shell says of one of its script's lines: without ``set -e`` it goes on."""
    if line.text.startswith(_NOHUP):
        return piece.data.count(b"\n", line.end, line.end + _SCRIPT_GOES_ON_BYTES) > _NOHUP_LINES
    if not _IN_SCRIPT.search(line.text):
        return False
    if _CLEANS_UP.search(line.text) is not None or _NO_SHEBANG.search(line.text) is not None:
        return True
    if _BAR_IS_FULL.search(piece.data[max(0, line.start - _BAR_BYTES) : line.start]) is not None:
        return True
    below = piece.data[line.end : line.end + _SCRIPT_GOES_ON_BYTES]
    lines = below.count(b"\n")
    if _SETS_UP.search(line.text) and (lines > _SET_UP_GOES_ON_LINES or _PYTHON_WARNED.search(below)):
        return True
    if signature == "shell.module_unknown" and (lines > _MODULE_GOES_ON_LINES or _PYTHON_WARNED.search(below)):
        return True
    return len(piece.data) - line.end >= _SCRIPT_GOES_ON_BYTES or not piece.is_near_end


def find_trifle(piece: Piece, line: LogLine) -> dict[str, str]:
    """Return as a field that a line of a script failed that was not what the job was for.

    ``yes`` after its program ran, ``if_done`` where only steps or a program's own words can tell that it did.
    """
    match = _OF_A_LINE.search(line.text)
    if match is None and _OF_A_TOOL.match(line.text) is None:
        return {}
    if match is not None and _RUNS_PROGRAMS.search(match["command"]) is not None:
        return {}
    above = piece.data[max(0, line.start - _DONE_BYTES) : line.start]
    is_after = piece.offset + line.start >= _WORKED_BYTES or _DONE.search(above) is not None
    return {TRIFLE: "yes" if is_after else "if_done"}


def is_stopped_server(piece: Piece, line: LogLine) -> bool:
    """Return whether a shell says that a server was killed that a script had started, after its work was done."""
    if _SERVER_KILLED.search(line.text) is None:
        return False
    return _DONE.search(piece.data[max(0, line.start - _DONE_BYTES) : line.start]) is not None


def is_killed_last(piece: Piece, line: LogLine) -> bool:
    """Return whether a program that a shell says was killed is the last word of a log, and nothing was done above."""
    if _HELPER_PROGRAMS.search(line.text) is not None or not is_last_word(piece, line):
        return False
    return _DONE.search(piece.data[max(0, line.start - _DONE_BYTES) : line.start]) is None


def is_last_word(piece: Piece, line: LogLine) -> bool:
    """Return whether a log ends with a line, but for what is said of the end."""
    rest = piece.data[line.end :]
    return piece.is_near_end and len(rest) <= _LAST_BYTES and find_third_last_ordinary(rest) is None


def is_near_end(piece: Piece, end: int) -> bool:
    """Return whether a match can be in the last lines of a log."""
    return piece.is_near_end and len(piece.data) - end <= _LAST_BYTES + REACH_BYTES
