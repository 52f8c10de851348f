"""Reads the traceback below a line: the exception at its end, where it was raised, and whether it was handled."""

from __future__ import annotations

import re
from collections.abc import Sequence

from opsk.postmortem.logs.lines import REACH_BYTES, LogLine, has_stamp, strip_stamp
from opsk.postmortem.logs.pieces import EXCEPTION_REACH_BYTES, LINES_BEFORE, TRACEBACK
from opsk.telemetry.progress.lines import parse_label, strip_escapes

_RAISED = re.compile(r"(?P<type>[A-Za-z_][\w.]{0,120}?)(?::|: (?P<message>.*))?$")
_RAY_TASK = re.compile(
    r"(?:ray\.exceptions\.)?(?:RayTaskError\(\w{1,80}\):"
    r"|\w{1,30}Error: The actor died because of an error raised in its creation task)"
)
"""Ray names the exception of a task before it prints the task's own frames and, last, the exception."""
_HEAD_OF_TRACEBACK = TRACEBACK.decode()
_HEAD_ALONE = "Traceback (most recent call last):"
_STATES_LEVEL = re.compile(r"(?:level|severity|levelname)\W{1,5}(?:error|critical|fatal)", re.IGNORECASE)
_ROOT_ERRORS = " root error(s) found."
"""TensorFlow lists below this what its operations failed by (core/platform/status.cc StatusGroup)."""
_BOX = ("│", "╭", "╰", "|", "+")
"""Rich draws tracebacks in a box; the exception stands below it."""
_FLAT = 'File "'
"""A traceback whose indentation a collector of logs took away."""
_KIND = re.compile(r"[\w.]*(?:Error|Exception|Interrupt|Exit|Warning|Timeout)(?::|$)")
_FRAME = re.compile(r'\s*File "(?:[^"]{0,400}/)?(?P<file>[^"/]{1,100})", line (?P<line>\d{1,7})')
_AFTER_BYTES = 240
_HANDLED = re.compile(
    r"\b(?:retrying|retry loop|trying again|will (?:be )?(?:retr|ignor|skip)\w+|falling back|skipp(?:ed|ing)"
    r"|Trial \d{1,7} failed with value)",
    re.IGNORECASE,
)
_IGNORED = (
    "Exception ignored ", "the following exception was raised", "Could not load bitsandbytes native library",
    "--- Logging error ---", "Error in atexit._run_exitfuncs:", "processing of request from (",
    "exception calling callback for <Future", "handle: <Handle ", "handle: <TimerHandle ", "```",
    "current Metropolis proposal is about to be rejected", "fits failed with the following error:",
    "Exception in thread NetStatThr:", "Exception in thread ChkStopThr:", "Exception in thread IntMsgThr:",
    "Exception in thread MsgRouterThr:", "Thread SenderThread:", "Thread HandlerThread:", "Thread WriterThread:",
)  # fmt: skip
"""What stands above a traceback that ended nothing: Python's of destructors, of calls of the logger, of what is done at
exit, of requests (socketserver), of call-backs (concurrent.futures, asyncio); Sphinx's, that of an optional part, the
beginning of a quotation in Markdown, Stan's of a proposal that it rejects, scikit-learn's of settings that it left
out of a search, and those of wandb's threads, without which the program goes on (wandb_run.py, interface/router.py,
internal/internal_util.py)."""
_UNRAISABLE = "Exception ignored in: '"
"""Cython writes this below an exception that its function cannot pass on, and the exception once more below that."""
_PLAIN_ENDS = ("KeyboardInterrupt", "SystemExit", "SignalException", "InterruptedError")
_LONGEST_PREFIX_CHARS = 120
_LEVELS = frozenset(("DEBUG", "INFO", "NOTE", "NOTICE", "WARN", "WARNING", "ERROR", "CRITICAL", "FATAL"))
_LOWER_CASE = frozenset(("error", "timeout", "herror", "gaierror"))
"""Exceptions of Python's own modules that are not capitalised: socket, struct, zlib."""
_ORIGINAL = "Original Traceback (most recent call last):"
"""PyTorch's data loader raises the exception of its worker anew, with the worker's own traceback below it."""
_SPAWNED = re.compile(r"-- Process \d{1,4} terminated with the following error:")
"""torch.multiprocessing raises the exception of a process anew, with the process's own traceback below this line."""
_LOGGED = re.compile(r"(?:ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[[\w./]{1,80}:\d{1,5}\] ?")
"""vLLM's logger writes this before every line of a traceback."""
_RAISED_KIND = re.compile(r"(?!Error:)[\w.]*(?:Error|Exception|Interrupt|Exit|Timeout)(?::|$)")
_FRAME_LINES = 8
_OF_COMPILER = ("SyntaxError", "IndentationError", "TabError")
_COMPILED = re.compile(r'  File "[^"]{1,400}", line \d{1,7}\s*$')
_COMPILED_LINES = 4
"""The line of the script, its text and a mark below it: no function is named (CPython Python/pythonrun.c)."""
_HEADS = 16
"""So many tracebacks of other processes are looked at for one of a line's own."""
_TOP = (", in <module>", ", in _run_module_as_main", ", in _bootstrap")
"""The first frame of an exception that nothing in the program caught, and of one that its outermost file did catch."""
_OF_SCRIPT = ", in <module>"
_BY_FRAMEWORK = "Error executing job with overrides"
"""Hydra prints the frames of the program alone, and ends it."""
_WAITS_FOR_RAY = "/ray/_private/"
"""The driver ended here; the rest of Ray's processes print on."""
_UNBUFFERED = re.compile(
    rb"\d%\||\d ?it/s\b|\ds/it\b|^\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d|^[IWE]\d{4} \d\d:\d\d:", re.MULTILINE
)
"""Progress bars and loggers write at once: what they write below an exception was written after it."""
_BELOW_BYTES = 4096
_LAST_BYTES = 1024
"""Behind an exception that ended a program there is little more: what launchers say."""
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python\d|<frozen |/torch/_|/conda/")
"""Files of these frames are libraries': the frame above them is of the program."""
_CHAINS = {"During handling of the above exception": "during", "The above exception was the direct cause": "cause"}
"""How Python joins two tracebacks: an exception was raised while another one was handled, or in its place."""


def is_quoted(line: LogLine) -> bool:
    """Return whether a whole traceback stands in one line of data, with marks for its line ends: nobody raised it here.

    A logger that writes JSON does so as well, and states the level.
    """
    rest = line.text.partition(_HEAD_ALONE)[2]
    return rest.lstrip("\\").startswith("n") and rest.startswith("\\") and _STATES_LEVEL.search(line.text) is None


def read_exception(data: bytes, line: LogLine) -> tuple[dict[str, str], str, int] | None:
    """Return the end of a traceback: type and message, the line, and where it begins; ``None`` where it is cut off.

    Lines of other ranks in between are passed over by their labels.
    """
    position, stop = line.end, min(len(data), line.end + EXCEPTION_REACH_BYTES)
    frames, is_flat = _Frames(), False
    prefix = _compile_prefix(line.text)
    is_stamped = has_stamp(line.text)
    while position < stop:
        begin = position + 1
        end = data.find(b"\n", begin, stop)
        if end < 0:
            end = stop
        labelled_line = parse_label(strip_escapes(data[begin:end][:REACH_BYTES]))
        labelled_line = strip_stamp(labelled_line) if is_stamped else labelled_line
        text, position = labelled_line.text.rstrip("\r\n "), end
        if prefix is not None and (start := prefix.match(text)) is not None:
            text = text[start.end() :]
        if labelled_line.label != line.label or not text.strip() or _RAY_TASK.match(text) or text == _ORIGINAL:
            continue
        if frames.is_passed_on and (_SPAWNED.match(text) or text == _HEAD_ALONE):
            continue
        if text[:1] in " \t":
            frames.take(text)
            continue
        if text.startswith(_FLAT):
            is_flat = True
        if text.startswith((_FLAT, *_BOX)) or (is_flat and not _KIND.match(text)):
            frames.take(text)
            continue
        match = _RAISED.match(text)
        if match is None or not _is_class(match["type"]) or (frames.are_none and not _KIND.match(text)):
            is_flat = True  # cut off, or another rank without a label writes in between: only what is surely one counts
            continue
        after = data[position : position + _AFTER_BYTES].decode("utf-8", "replace")
        if ((match["message"] or "").startswith("Caught ") and _ORIGINAL in after) or _SPAWNED.match(after.lstrip()):
            frames.pass_on()
            continue
        fields = {"type": match["type"].rpartition(".")[2]}
        if match["message"]:
            fields["message"] = match["message"][:300]
            if match["message"].endswith(_ROOT_ERRORS):
                first = after.strip().partition("\n")[0].strip()
                text, fields["message"] = f"{text} {first}", f"{match['message']} {first}"[:300]
        fields |= frames.fields()
        is_ignored = any(each in _find_line_before(data, line) for each in _IGNORED)
        if is_ignored or _HANDLED.search(after) or after.lstrip().startswith(_UNRAISABLE):
            fields["handled"] = "yes"
        if frames.reach_top and (
            frames.wait_for_ray or not _UNBUFFERED.search(data, position, position + _BELOW_BYTES)
        ):
            fields["uncaught"] = "yes"
        if frames.reach_top or _BY_FRAMEWORK in _find_line_before(data, line):
            fields["top"] = "yes"
        chained = next((how for words, how in _CHAINS.items() if words in after), "")
        return fields | ({"chained": chained} if chained else {}), text[:400], begin
    return None


def _ends_compilation(kind: str, before: Sequence[str]) -> bool:
    """Return whether Python could not compile a script: it prints a line of it, and no head of a traceback."""
    if kind not in _OF_COMPILER:
        return False
    frames = [at for at, text in enumerate(before[-_COMPILED_LINES:]) if _COMPILED.match(text)]
    if not frames:
        return False
    above = before[-_COMPILED_LINES:][: frames[-1]]
    return not above or not (above[-1][:1] in (" ", "\t") or above[-1].startswith(_HEAD_ALONE))


def read_raised(data: bytes, line: LogLine, *, is_end: bool) -> dict[str, str] | None:
    """Return type and message of an exception whose traceback has no head in this log; ``None`` where it is none.

    Frames stand before it, or it is the last thing that the log says. A traceback with a head is `read_exception`'s.

    Parameters
    ----------
    is_end
        The log ends with these bytes.
    """
    text = line.text
    if (logged := _LOGGED.match(text)) is not None:
        text = text[logged.end() :]
    match = _RAISED.match(text)
    if match is None or not _RAISED_KIND.match(text) or not _is_class(match["type"]):
        return None
    lines = [
        labelled.text
        for raw in data[max(0, line.start - REACH_BYTES) : line.start].splitlines()[-_FRAME_LINES:]
        if (labelled := parse_label(strip_escapes(raw))).label == line.label
    ]
    is_of_compiler = _ends_compilation(match["type"], lines)
    if not is_of_compiler and _has_head(data, line):
        return None
    frames = _Frames()
    for before in lines:
        frames.take(before[logged.end() :] if (logged := _LOGGED.match(before)) is not None else before)
    fields = frames.fields()
    if is_of_compiler:
        fields |= {"program": fields.get("file", ""), "top": "yes", "uncaught": "yes", "apart": "yes"}
    if not fields and not (is_end and len(data) - line.end <= _LAST_BYTES):
        return None
    fields |= {"type": match["type"].rpartition(".")[2]}
    if match["message"]:
        fields["message"] = match["message"][:300]
    is_handled = _HANDLED.search(data[line.end : line.end + _AFTER_BYTES].decode("utf-8", "replace")) is not None
    if is_handled or any(each in _find_line_before(data, line) for each in _IGNORED):
        fields["handled"] = "yes"
    return fields


def is_unraisable(data: bytes, line: LogLine) -> bool:
    """Return whether Python only tells of an exception, which nothing above its own frames can see."""
    if not _RAISED_KIND.match(line.text):
        return False
    after = data[line.end : line.end + len(_UNRAISABLE) + 2].lstrip().decode("utf-8", "replace")
    return after.startswith(_UNRAISABLE) or _find_line_before(data, line).startswith(_UNRAISABLE)


def _has_head(data: bytes, line: LogLine) -> bool:
    """Return whether the head of a traceback with the same label stands before a line, in reach."""
    stop, begin = line.start, max(0, line.start - EXCEPTION_REACH_BYTES)
    for _ in range(_HEADS):
        stop = data.rfind(TRACEBACK, begin, stop)
        if stop < 0:
            return False
        raw = data[data.rfind(b"\n", begin, stop) + 1 : stop + len(TRACEBACK)]
        if parse_label(strip_escapes(raw)).label == line.label:
            return True
    return False


def _is_class(name: str) -> bool:
    """Return whether a name can be of an exception: ranks write ``INFO: ...`` or ``memory: 41 GiB`` in between."""
    last = name.rpartition(".")[2].lstrip("_")
    return (last[:1].isupper() and last not in _LEVELS) or last in _LOWER_CASE


def _find_line_before(data: bytes, line: LogLine) -> str:
    """Return the line before this one that has the same label; empty where none of the last few has it."""
    raw_lines = data[max(0, line.start - REACH_BYTES) : line.start].splitlines()[-LINES_BEFORE:]
    for raw in reversed(raw_lines):
        labelled = parse_label(strip_escapes(raw))
        if labelled.label == line.label and labelled.text.strip():
            return labelled.text
    return ""


class _Frames:
    """The frames of one traceback, as they are read: the last one, and the last that is no library's.

    Attributes
    ----------
    reach_top
        The first one is of the outermost file of the program.
    wait_for_ray
        The program waited for Ray.
    is_passed_on
        They are of another process, whose exception was raised anew.
    """

    def __init__(self) -> None:
        self._last = self._own = self._program = ""
        self._is_raised = self.reach_top = self.wait_for_ray = self.is_passed_on = False

    def pass_on(self) -> None:
        """Begin with the frames of the process whose exception was raised anew in the outermost file of this one."""
        self._last = self._own = ""
        self._is_raised, self.is_passed_on = False, True

    @property
    def are_none(self) -> bool:
        """Return whether no frame was read."""
        return not self._last

    def take(self, text: str) -> None:
        """Read a line of a traceback."""
        match = _FRAME.match(text)
        if match is None:
            stripped = text.strip()
            if stripped.strip("^~ "):
                self._is_raised = stripped.startswith("raise ")
            return
        if not self._last and not self.is_passed_on:
            self.reach_top = text.rstrip().endswith(_TOP)
        if not self._program and text.rstrip().endswith(_OF_SCRIPT) and _LIBRARY.search(text) is None:
            self._program = match["file"]
        self.wait_for_ray = self.wait_for_ray or _WAITS_FOR_RAY in text
        self._last, self._is_raised = f"{match['file']}:{match['line']}", False
        if _LIBRARY.search(text) is None:
            self._own = self._last

    def fields(self) -> dict[str, str]:
        """Return where the exception was raised: in the program's own code if that is there (``at``), and last."""
        at = self._own or self._last
        fields = {"at": at, "file": self._last.partition(":")[0]} if at else {}
        fields |= {"program": self._program} if self._program else {}
        return fields | ({"raised": "yes"} if self._is_raised else {})


def _compile_prefix(text: str) -> re.Pattern[str] | None:
    """Return what a logger (vLLM's and others) writes before every line of a traceback: the same, but for numbers."""
    head = text[: max(text.find(_HEAD_OF_TRACEBACK), 0)]
    if not 3 <= len(head) <= _LONGEST_PREFIX_CHARS:
        return None
    return re.compile(re.sub(r"\d+", r"\\d+", re.escape(head)), re.ASCII)


def is_plain_end(kind: str) -> bool:
    """Return whether an exception only reports that the program was asked to end."""
    return kind in _PLAIN_ENDS
