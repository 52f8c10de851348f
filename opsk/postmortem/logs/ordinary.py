"""Finds where a log last says what programs say while they work, and not while they end.

A program that ends by a failure writes frames of its traceback, reports of launchers and of the services it logs to,
and the last words of its script. A program that caught what failed goes on with its own lines.
"""

from __future__ import annotations

import re

from opsk.telemetry.progress.lines import parse_label, strip_escapes
from opsk.units import KIB

TAIL_BYTES = 16 * KIB
"""This much of a log's end is read."""
_LINES = 3
"""One or two may be a handler's own words on what failed."""
_MAX_LINE_BYTES = 256
_MAX_LINES = 128
_ENDS = re.compile(rb"[\r\n]+")
_BAR = re.compile(r"\d{1,3}%\|")
_MIN_LETTERS = re.compile(r"[^\W\d_]{2}")
_RESULT = re.compile(r"\s{1,8}[A-Za-z][\w@./ ()%-]{0,40}[:=]\s*[-+]?\d[\d.,]*(?:e[-+]?\d+)?\s?%?\s*$")
_OF_REPORT = re.compile(
    r"\s*(?:rank|host|time|pid|exit\s?code|signal|line|column|CPU|GPU|Max|Average|Total|Delta|Run|Turnaround|Wall|Memory|Swap)\b",
    re.IGNORECASE,
)
"""Of a launcher or a batch system, which indents its numbers as well."""
_WROTE = re.compile(
    r"\b(?:saved|wrote|written|saving|exported)\b.{0,80}(?:\b(?:to|in|as)\b|[:→>]).{0,160}[/\\.]\w"
    r"|\b(?:saved|wrote|exported) \S{1,160}\.\w{1,8}\b",
    re.IGNORECASE,
)
_OF_FAILURE = re.compile(r"log|crash|error|report|trace|emergency|interrupt|core\b|dump|partial", re.IGNORECASE)
"""What a program writes because it failed."""
_FRAME = re.compile(
    r'(?:[\[(].{0,60}[\])] ?)?\s*(?:File "|Traceback|raise\b|return\b|self\.|\^|~|[│╭╰|+] |at /|in <'
    r"|#\d{1,3} |@ +0x|\d{1,3}: )"
    r"|[\w.]{1,120}(?:Error|Exception|Warning|Interrupt|Exit|Timeout)\b"
    r"|\S{1,80}\s+[0-9A-F]{16}\s|Image\s+PC\s+Routine"
    r"|.{0,80}\b0x[0-9a-f]{4,16}\b|.{0,120}\.(?:py|cpp|cc|cu|h|so(?:\.\d{1,3})*):\d{1,6}\b"
)
"""Of a traceback, a stack of C++ or Fortran, or a warning."""
_FAILS = re.compile(
    r"(?:\b|_)(?:err(?:or|no)?s?|exceptions?|fail(?:s|ed|ure|ing)?|fatal|abort\w*|terminat\w*|kill(?:ed|ing)?|crash\w*"
    r"|interrupt\w*|cancel\w*|exit(?:ed|ing|code|s)?|core dumped|shut(?:ting)? ?down|stopp(?:ed|ing)|sig[a-z]{3,4}"
    r"|not found|no such|invalid|unable|cannot|can't|could not|couldn't|missing|unexpected|refused|denied|usage"
    r"|warn(?:ing)?s?|deprecat\w+|please|try(?:ing)?|retry\w*|hint|note|see|traceback|stack ?trace|debug\w*|leaked)\b"
    r"|^\W*[EWFC] ?\d{4}|失败|错误|异常|请检查|检查|建议|是否|❌|⚠",
    re.IGNORECASE,
)
"""Of the failure itself, or of what to do about it."""
_LAUNCHER = re.compile(
    r"\W*(?:wandb\b|srun\b|slurmstepd|torch\.distributed|torch\.multiprocessing|mpirun|mpiexec|prterun|raylet|clearml\b"
    r"|comet\b|neptune\b|mlflow\b|resource_tracker|Failures:|Root Cause|Compile with|To enable|Set the environment"
    r"|CUDA kernel errors|For debugging|During handling|The above exception|Original|Call stack|Message:|Arguments:"
    r"|During startup|If you|You (?:can|may|need|should)"
    r"|\[?(?:time|host|rank|exitcode|error_file|traceback|pid|signal) *[:=])"
)
_OF_SCRIPT = re.compile(
    r"\W*(?:(?:real|user|sys)\s+\d|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\w* "
    r"|[\w ]{0,30}\b(?:job|script|time|date|done|end(?:ed|s)?|finish(?:ed|es)?|complet(?:ed?|es)|elapsed|duration"
    r"|clean\w*|delet\w+|remov\w+|deactivat\w+|unload\w*|results?)\b"
    r"|(?:Job|Task|Nodes?|Cores|State|CPU|GPU|Memory|Wall|Cluster|User|Account|Partition)\b.{0,24}:)",
    re.IGNORECASE,
)
"""What batch scripts and their epilogs write however the program ended."""
_OF_BATCH_SYSTEM = re.compile(
    r"\s*(?:Resource usage summary|(?:CPU time|Run time|Turnaround time|(?:Max|Average|Total Requested|Delta) "
    r"(?:Memory|Swap|Processes|Threads))\b|The output \(if any\)|PS:|Read file <|Sender: LSF|Subject: Job"
    r"|Your job looked like|Results reported|Started at|Terminated at|Exited with exit code"
    r"|(?:cput|walltime|mem|vmem|ncpus)=|\+-{3,})"
)
"""LSF's report below a job's output, and PBS's."""


def find_third_last_ordinary(data: bytes) -> int | None:
    """Return where the third-last line begins that only a program at work writes; ``None`` where there are fewer."""
    count, stop = 0, len(data)
    for _ in range(_MAX_LINES):
        start = max(data.rfind(b"\n", 0, stop), data.rfind(b"\r", 0, stop)) + 1
        if start < stop:
            raw = data[start : min(stop, start + _MAX_LINE_BYTES)]
            count += _weigh(parse_label(strip_escapes(raw)).text)
            if count >= _LINES:
                return start
        if start == 0:
            break
        stop = start - 1
    return None


def _weigh(text: str) -> int:
    """Return how many lines of a program at work a line is worth: where it wrote its results counts twice."""
    if _BAR.search(text) is not None:
        return 1
    if _FAILS.search(text) is None and _LAUNCHER.match(text) is None:
        if _RESULT.match(text) is not None:
            return int(_OF_REPORT.match(text) is None)
        if _WROTE.search(text) is not None and _OF_FAILURE.search(text) is None:
            return 2
    return int(_is_ordinary(text))


def _is_ordinary(text: str) -> bool:
    """Return whether a line is of a program at work."""
    if text[:1] in " \t" or _MIN_LETTERS.search(text) is None:
        return False
    return not any(
        match is not None
        for match in (_FRAME.match(text), _FAILS.search(text), _LAUNCHER.match(text), _OF_SCRIPT.match(text))
    )


def is_ordinary(text: str) -> bool:
    """Return whether a line is of a program at work, or says where it wrote what it made."""
    return _weigh(text) > 0


def is_of_launcher(text: str) -> bool:
    """Return whether a launcher, a service or a batch system writes a line, or none that can be read."""
    return _MIN_LETTERS.search(text) is None or any(
        each.match(text) is not None for each in (_LAUNCHER, _OF_BATCH_SYSTEM)
    )


def is_of_script(text: str) -> bool:
    """Return whether a batch script or its epilog writes a line however its program ended."""
    return _OF_SCRIPT.match(text) is not None
