"""Follows logs interactively with less than one percent of a CPU core.

Logs are polled, seldom while nothing arrives; after each poll they are left alone for 125 times as long as it took. A
log that grows faster than it can be read at that rate is read at its end, and the skipped bytes are counted.
"""

from __future__ import annotations

import stat
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from opsk.errors import InputError, TelemetryError
from opsk.telemetry.progress.follow import Follower
from opsk.telemetry.progress.records import StepRecord
from opsk.telemetry.progress.stream import ProgressItem, ProgressReader
from opsk.units import KIB, MIB

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


class Tail:
    """Follows the logs of one run; of a step that is in several the first counts.

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
            raise InputError(f"{path}: is no regular file", hint="follow the log itself, or - for standard input")
        with path.open("rb") as file:
            if file.read(8).startswith(_MAGIC):
                raise InputError(f"{path}: is compressed", hint="it does not grow: read it without --follow")
    except FileNotFoundError as error:
        if not path.parent.is_dir():
            raise InputError(f"{path}: {error.strerror}", hint="its folder is not there either") from error
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", hint="name a log that you may read") from error
