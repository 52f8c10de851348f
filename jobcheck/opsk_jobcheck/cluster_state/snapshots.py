"""How does everybody on a host see all jobs and nodes while Slurm is asked once? The process that asks.

It asks only while somebody has wanted to know within the last half minute, which the advisor says by touching a file,
and never more often than once an interval, however many want to know. What Slurm answered lies in one file, put there
as a whole. It ends when its standard input does, so it does not outlive the advisor.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pwd
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from opsk.errors import OpskError
from opsk.slurm.client import SlurmClient
from opsk.slurm.commands.command import CommandClient
from opsk.slurm.snapshot import Snapshot, pack, private_words

SNAPSHOT, WANTED = "cluster", "wanted"
"""Files in the folder: what Slurm said last, and the one whose time says when somebody wanted to know."""
WANTED_FOR_S = 30.0
LOOK_EVERY_S = 0.2
CONFIG_EVERY_S = 600.0
"""Slurm's own configuration changes seldom, and what it hides from users is in it."""
SHARE_OF_TIME = 0.1
"""No more of the time than this is spent with asking: a controller that answers slowly is asked less often."""
LONGEST_PAUSE_S = 60.0
"""People look at screens: a controller that is back is seen soon."""
QUESTION_DEADLINE_S = 10.0
NICENESS = 10

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Asking:
    """Asks Slurm for everything, and remembers what it said last.

    Parameters
    ----------
    slurm
        Whom it asks.
    clock
        Seconds since 1970.
    interval_s
        Shortest time between two answers' questions [s].
    """

    slurm: SlurmClient
    clock: Callable[[], float]
    interval_s: float
    last: Snapshot = field(default_factory=lambda: Snapshot(taken_at_s=0.0))
    _asked_at_s: float = float("-inf")
    _took_s: float = 0.0
    _failures: int = 0
    _config_at_s: float = float("-inf")

    def is_due(self) -> bool:
        """Tell whether Slurm may be asked again."""
        pause_s = max(self.interval_s, self._took_s / SHARE_OF_TIME) * 2.0 ** min(self._failures, 8)
        since_s = self.clock() - self._asked_at_s
        return since_s >= min(pause_s, max(LONGEST_PAUSE_S, self.interval_s)) or since_s < 0

    def ask(self) -> Snapshot:
        """Ask once; where Slurm does not answer, what it said last stays, with the reason."""
        begun_s = self._asked_at_s = self.clock()
        try:
            if begun_s - self._config_at_s > CONFIG_EVERY_S or not self.last.taken_at_s:
                self._read_config(begun_s)
            jobs = self.slurm.jobs(details=True)
            nodes = self.slurm.nodes()
            self.last = replace(self.last, jobs=jobs, nodes=nodes, taken_at_s=self.clock(), problem="", hint="")
            self._failures = 0
        except OpskError as error:
            self._failures += 1
            self.last = replace(self.last, problem=error.message, hint=error.hint)
        finally:
            self._took_s = max(0.0, self.clock() - begun_s)
        return self.last

    def _read_config(self, now_s: float) -> None:
        """Read what Slurm hides from users, before anything of it is handed to them."""
        config = self.slurm.config()
        self.last = replace(
            self.last,
            private=private_words(config),
            cluster=config.get("ClusterName", ""),
            release=self.slurm.release(),
        )
        self._config_at_s = now_s


def uid_of(user: str) -> int | None:
    """Return a user's uid; ``None`` where this host knows no such user."""
    try:
        return pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError):
        return int(user) if user.isdecimal() and len(user) < 10 else None


def keep_asking(asking: Asking, folder: Path, *, is_over: Callable[[float], bool]) -> None:
    """Ask whenever somebody wants to know and it is time, until it is over.

    Parameters
    ----------
    is_over
        Waits so long [s] and tells whether to end.
    """
    while not is_over(LOOK_EVERY_S):
        if is_wanted(folder) and asking.is_due():
            try:
                _hand_over(asking.ask(), folder)
            except OSError as error:  # the folder is gone with an advisor that was killed, or its disk is full
                log.warning("jobs and nodes are not handed over: %s", error)
            except Exception:
                log.exception("jobs and nodes are not known")


def is_wanted(folder: Path) -> bool:
    """Tell whether somebody wanted to know a short while ago."""
    try:
        age_s = time.time() - (folder / WANTED).stat().st_mtime
    except OSError:
        return False
    return -WANTED_FOR_S < age_s < WANTED_FOR_S


def _hand_over(snapshot: Snapshot, folder: Path) -> None:
    """Put the file in its place."""
    draft = folder / f".{SNAPSHOT}.{os.getpid()}"
    draft.write_bytes(pack(snapshot, uid_of).to_bytes())
    draft.chmod(0o600)
    draft.replace(folder / SNAPSHOT)


def main(folder: Path, interval_s: float) -> None:
    """Ask on behalf of the advisor that has started this."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    threading.Thread(target=_end_with_input, daemon=True).start()
    stand(folder, interval_s)


def stand(folder: Path, interval_s: float) -> None:
    """Ask until this process is ended."""
    asking = Asking(slurm=CommandClient(deadline_s=QUESTION_DEADLINE_S), clock=time.time, interval_s=interval_s)
    keep_asking(asking, folder, is_over=_paused)


def _paused(pause_s: float) -> bool:
    """Wait; whoever ends this process ends it here."""
    time.sleep(pause_s)
    return False


def _end_with_input() -> None:
    """End this process when the advisor has gone."""
    while os.read(0, 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="opsk advisor: %(levelname)s %(message)s")
    main(Path(sys.argv[1]), float(sys.argv[2]))
