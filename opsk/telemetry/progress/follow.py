"""Follows log files that grow, are rotated or truncated: for the exporter, and for a person at a terminal.

A poll reads a bounded number of bytes and never blocks: only regular files are opened, never through a link, and only
those of one owner where the caller asks for that. Users may choose where a log is; its content is never written
anywhere. In a user namespace (systemd's ``PrivateUsers``) the owners of files are unknown: there files of an unmapped
owner count if everybody may read them.
"""

from __future__ import annotations

import math
import os
import stat
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from opsk.errors import InputError, TelemetryError
from opsk.telemetry.progress.records import StepRecord
from opsk.telemetry.progress.runs import skip_warm_up
from opsk.telemetry.progress.stream import ProgressItem, ProgressReader
from opsk.units import KIB, MIB

_READ_BYTES = 64 * KIB
_NOBODY = 65534
"""The owner of a file whose owner has no number in this user namespace (kernel.overflowuid)."""
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_WATCH_POLL_BYTES, _WATCH_TAIL_BYTES = MIB, 256 * KIB
_WINDOW = 16
"""Records whose median is the speed of now."""
SHARE = 0.008
"""Of a core, at most, once what was there at the beginning has been read."""
MIN_PAUSE_S, MAX_PAUSE_S = 0.25, 2.0
"""Between two polls: while steps arrive, and after a while without any."""
_BACK_OFF = 1.5
_WHOLE_BYTES, _LIVE_BYTES = 256 * MIB, 4 * MIB
"""How far from its end a log is read at first, and once it is followed."""
_POLL_BYTES = 256 * KIB
_MAX_SEEN_STEPS = 4096
_MAGIC = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00")


class Follower:
    """Reads a growing log.

    Parameters
    ----------
    path
        The log.
    poll_bytes
        Most bytes that one poll reads.
    tail_bytes
        How far from its end a log is read that is opened first, or that has outrun its reader; ``None`` is
        from its beginning, whatever its length.
    owner
        Only a file of this user is read; ``None`` is anybody's.
    reader
        Parses the lines; given where more is known of the run than is in the log.
    links
        Whether the name may be a link: allowed for a log that the caller names, not for a path that a user chose.
    """

    def __init__(
        self,
        path: Path,
        *,
        poll_bytes: int = MIB,
        tail_bytes: int | None = None,
        owner: int | None = None,
        reader: ProgressReader | None = None,
        links: bool = False,
    ) -> None:
        self.path = path
        self.reader = ProgressReader(str(path)) if reader is None else reader
        self.has_backlog = False
        self._links = links
        self.written_unix_s: float | None = None
        self.skipped_bytes = 0
        self._poll_bytes = poll_bytes
        self._tail_bytes = tail_bytes
        self._owner = owner
        self._handle: int | None = None
        self._inode: tuple[int, int] | None = None
        self._offset = 0

    def poll(self) -> Iterator[ProgressItem]:
        """Yield what has come since the last poll.

        Raises
        ------
        TelemetryError
            There is no such file, or it is none that may be read.
        """
        if self._handle is None:
            self._open()
        remaining_bytes, self.has_backlog = self._poll_bytes, False
        for turn in range(2):
            if self._handle is None:
                return
            status = os.fstat(self._handle)
            if status.st_size < self._offset:
                self.reader.skip()
                self._offset = 0
            self._catch_up(status.st_size)
            for data in self._read(remaining_bytes):
                remaining_bytes -= len(data)
                yield from self.reader.feed(data)
            self.has_backlog = self._offset < status.st_size
            if self.has_backlog or turn or not self._is_replaced():
                break
            self.close()
            self.reader.skip()
            self._open()
        self.written_unix_s = status.st_mtime

    def limit_tail(self, tail_bytes: int) -> None:
        """Read no more than this far from the end from now on."""
        self._tail_bytes = tail_bytes

    def close(self) -> None:
        """Close the file."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _read(self, max_bytes: int) -> Iterator[bytes]:
        """Yield what is there, at most ``max_bytes``."""
        handle = self._handle
        while max_bytes > 0 and handle is not None:
            data = os.pread(handle, min(max_bytes, _READ_BYTES), self._offset)
            if not data:
                return
            self._offset += len(data)
            max_bytes -= len(data)
            yield data

    def _catch_up(self, size: int) -> None:
        """Skip what could never be read in time."""
        unread_bytes = size - self._offset
        if self._tail_bytes is None or unread_bytes <= self._tail_bytes + self._poll_bytes:
            return
        self.skipped_bytes += unread_bytes - self._tail_bytes
        self._offset = size - self._tail_bytes
        self.reader.skip()

    def _is_replaced(self) -> bool:
        """Return whether another file has the log's name now."""
        try:
            status = self.path.stat() if self._links else self.path.lstat()
        except OSError:
            return False
        return (status.st_dev, status.st_ino) != self._inode

    def _open(self) -> None:
        """Open the log: the same file continues at its offset, a new file under its name starts at 0."""
        try:
            handle = os.open(self.path, _FLAGS & ~os.O_NOFOLLOW if self._links else _FLAGS)
        except OSError as error:
            raise TelemetryError(f"{self.path}: {error.strerror}") from error
        status = os.fstat(handle)
        wrong = None
        if not stat.S_ISREG(status.st_mode):
            wrong = "is not a regular file"
        elif self._owner is not None and not _is_owned_by(status, self._owner):
            wrong = "does not belong to its owner"
        if wrong:
            os.close(handle)
            raise TelemetryError(f"{self.path}: {wrong}")
        before, self._inode = self._inode, (status.st_dev, status.st_ino)
        self._handle = handle
        if before == self._inode:
            return
        self._offset = 0
        if before is None and self._tail_bytes is not None and status.st_size > self._tail_bytes:
            self._offset = status.st_size - self._tail_bytes


def _is_owned_by(status: os.stat_result, owner: int) -> bool:
    """Return whether a file counts as owned by this user."""
    return status.st_uid == owner or (status.st_uid == _NOBODY and bool(status.st_mode & stat.S_IROTH))


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a job; ``None`` is what its log does not have.

    Parameters
    ----------
    framework
        The framework that trains.
    last
        The last step.
    step_s, tokens_per_s, tflops_per_gpu
        Medians of the last records of this start, its first left out where there are others.
    restarts
        Restarts since the logs were first read, by the log that has most.
    at_unix_s
        When the log had last been written when the last step was found [s since 1970].
    """

    framework: str | None
    last: StepRecord
    step_s: float | None
    tokens_per_s: float | None
    tflops_per_gpu: float | None
    restarts: int
    at_unix_s: float | None


class LogWatch:
    """Watches the logs of one job; the one with most steps counts.

    It tracks the progress and the current speed of a running job.

    Parameters
    ----------
    paths
        Its logs.
    owner
        Only files of this user are read; ``None`` is anybody's.
    """

    def __init__(self, paths: Sequence[Path], owner: int | None = None) -> None:
        self.unreadable = 0
        self._owner = owner
        self._logs = tuple(_Log(path, owner) for path in dict.fromkeys(paths))

    def add(self, paths: Sequence[Path], max_logs: int) -> None:
        """Watch more logs, up to ``max_logs`` in total."""
        watched = {log.follower.path for log in self._logs}
        more = [path for path in dict.fromkeys(paths) if path not in watched]
        self._logs += tuple(_Log(path, self._owner) for path in more[: max(max_logs - len(watched), 0)])

    def look(self) -> Progress | None:
        """Read on, and return the progress of the job; ``None`` while its logs have no step."""
        self.unreadable = sum(not log.poll() for log in self._logs)
        best = max(self._logs, key=lambda log: log.steps, default=None)
        progress = best.progress() if best else None
        # Another log may count from now on, which has seen fewer restarts: theirs is a counter, and may not go back.
        return replace(progress, restarts=max(log.restarts for log in self._logs)) if progress else None

    def close(self) -> None:
        """Close the files."""
        for log in self._logs:
            log.follower.close()


class _Log:
    """One log: the last records, and how many there were."""

    def __init__(self, path: Path, owner: int | None) -> None:
        self.follower = Follower(path, poll_bytes=_WATCH_POLL_BYTES, tail_bytes=_WATCH_TAIL_BYTES, owner=owner)
        self.steps = 0
        self._changes = self.restarts = 0
        self._at: float | None = None
        self._recent: deque[StepRecord] = deque(maxlen=_WINDOW)
        self._of_start = 0

    def poll(self) -> bool:
        """Read on; ``False`` when the log cannot be read."""
        reader, before = self.follower.reader, self.steps
        try:
            for item in self.follower.poll():
                if reader.changes != self._changes:
                    self._changes, self.steps, self._of_start = reader.changes, 0, 0
                    self._recent.clear()
                if isinstance(item, StepRecord):
                    self._add(item)
        except (TelemetryError, OSError):
            self.follower.close()
            return False
        if self.steps != before:
            self._at = self.follower.written_unix_s
        self.restarts = max(self.restarts, reader.restarts)
        return True

    def _add(self, record: StepRecord) -> None:
        """Add a record; those of an earlier start are dropped."""
        if self._recent and self._recent[-1].generation != record.generation:
            self._recent.clear()
            self._of_start = 0
        self._recent.append(record)
        self._of_start += 1
        self.steps += 1

    def progress(self) -> Progress | None:
        """Return the progress of the job by this log."""
        if not self._recent:
            return None
        return Progress(
            framework=self.follower.reader.framework,
            last=self._recent[-1],
            step_s=self._median("step_s"),
            tokens_per_s=self._median("tokens_per_s"),
            tflops_per_gpu=self._median("tflops_per_gpu"),
            restarts=self.restarts,
            at_unix_s=self._at,
        )

    def _median(self, name: str) -> float | None:
        """Return the median of a value over the last records."""
        records: Sequence[StepRecord] = list(self._recent)
        if self._of_start <= len(records):
            records = skip_warm_up(records)
        values = [value for record in records if (value := getattr(record, name)) is not None and math.isfinite(value)]
        return median(values) if values else None


class Tail:
    """Follows the logs of one run; of a step that is in several the first counts.

    It needs less than one percent of a CPU core. Logs are polled, seldom while nothing arrives; after each poll they
    are left alone for 125 times as long as it took. A log that grows faster than it can be read at that rate is read at
    its end, and the skipped bytes are counted.

    Parameters
    ----------
    paths
        The logs; one may come into being later.
    sequence_tokens, gpus
        Tokens of a sample and GPUs of the job, where the logs do not state them.
    cpu_s
        CPU time of this process [s].

    Raises
    ------
    InputError
        A log is there and cannot be followed, or has no folder to come into.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        sequence_tokens: float | None = None,
        gpus: float | None = None,
        cpu_s: Callable[[], float] = time.process_time,
    ) -> None:
        for path in paths:
            _check(path)
        self.is_live = False
        self.rest_s = 0.0
        self.problems: dict[Path, str] = {}
        self._cpu_s = cpu_s
        self._pause_s = MIN_PAUSE_S
        self._seen_steps: OrderedDict[tuple[int, int], None] = OrderedDict()
        self._logs = tuple(
            Follower(
                path,
                poll_bytes=_POLL_BYTES,
                tail_bytes=_WHOLE_BYTES,
                reader=ProgressReader(str(path), sequence_tokens=sequence_tokens, gpus=gpus),
                links=True,
            )
            for path in dict.fromkeys(paths)
        )

    @property
    def framework(self) -> str | None:
        """The framework."""
        return next((name for log in self._logs if (name := log.reader.framework)), None)

    @property
    def changes(self) -> int:
        """Grows when the steps yielded before were not the training's."""
        return sum(log.reader.changes for log in self._logs)

    @property
    def skipped_bytes(self) -> int:
        """What was left out because it came too fast, or was there long before."""
        return sum(log.skipped_bytes for log in self._logs)

    def poll(self) -> Iterator[ProgressItem]:
        """Yield what has arrived, and set ``rest_s``: the time until the next poll [s]."""
        began, has_come = self._cpu_s(), False
        for log in self._logs:
            for item in self._poll_log(log):
                if not isinstance(item, StepRecord) or self._is_new(item):
                    has_come = True
                    yield item
        if not self.is_live:
            if any(log.has_backlog for log in self._logs):
                return
            self.is_live = True
            for log in self._logs:
                log.limit_tail(_LIVE_BYTES)
        self._pause_s = MIN_PAUSE_S if has_come else min(self._pause_s * _BACK_OFF, MAX_PAUSE_S)
        self.rest_s = max(self._pause_s, (self._cpu_s() - began) / SHARE)

    def finish(self) -> Iterator[ProgressItem]:
        """Yield the unfinished items, and close the files."""
        for log in self._logs:
            log.close()
            yield from (item for item in log.reader.finish() if not isinstance(item, StepRecord) or self._is_new(item))

    def _poll_log(self, log: Follower) -> Iterator[ProgressItem]:
        """Yield the items of one log; a log that is missing may come back."""
        try:
            yield from log.poll()
        except (TelemetryError, OSError) as error:
            log.close()
            log.has_backlog = False
            self.problems[log.path] = str(error)
        else:
            self.problems.pop(log.path, None)

    def _is_new(self, record: StepRecord) -> bool:
        """Return whether no log has had this step before."""
        if record.iteration is None:
            return True
        key = (record.generation, record.iteration)
        if key in self._seen_steps:
            return False
        self._seen_steps[key] = None
        if len(self._seen_steps) > _MAX_SEEN_STEPS:
            self._seen_steps.popitem(last=False)
        return True


def _check(path: Path) -> None:
    """Refuse what can never be followed."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise InputError(f"{path}: is not a regular file", hint="follow the log itself, or - for standard input")
        with path.open("rb") as file:
            if file.read(8).startswith(_MAGIC):
                raise InputError(f"{path}: is compressed", hint="such a log does not grow: read it without --follow")
    except FileNotFoundError as error:
        if not path.parent.is_dir():
            raise InputError(f"{path}: {error.strerror}", hint="its folder does not exist either") from error
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", hint="choose a log that you may read") from error
