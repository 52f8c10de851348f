"""Finds who coordinates which accounts: from slurmdbd, or from the file of a service that has the network for it.

The advisor's service has no network. Where `opsk advisor --watch` runs as a service of its own, it writes the file.
"""

from __future__ import annotations

import json
import logging
import os
import pwd
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from opsk.errors import OpskError
from opsk.slurm.commands.accounting import AccountingClient
from opsk.units import MIB

FILE_NAME = "coordinators"
EVERY_S = 900.0
MAX_AGE_S = 86400.0
"""An older answer is none: who coordinates an account no longer sees its runs."""
MAX_BYTES = MIB
_Accounts = Mapping[str, tuple[str, ...]]

log = logging.getLogger(__name__)


class CoordinatorLookup:
    """Returns the accounts that each uid coordinates, as of the last quarter of an hour; nothing where unknown.

    Parameters
    ----------
    folder
        Where another service writes; ``None``: this process queries slurmdbd.
    query
        Queries slurmdbd.
    find_uid
        Returns the uid of a user's name; raises `KeyError` where there is none.
    clock
        A monotonic clock [s].
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        query: Callable[[], _Accounts] | None = None,
        find_uid: Callable[[str], int] = lambda name: pwd.getpwnam(name).pw_uid,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._query = query or AccountingClient().coordinators
        self._find_uid = find_uid
        self._clock = clock
        self._due_s = self._answered_s = float("-inf")
        self._problem = ""
        self._known: dict[int, tuple[str, ...]] = {}

    def __call__(self) -> Mapping[int, tuple[str, ...]]:
        """Return the accounts by uid; after a failure those of the last answer, for a day."""
        now_s = self._clock()
        if now_s >= self._due_s:
            self._due_s = now_s + EVERY_S
            try:
                accounts = self._query() if self._folder is None else read_coordinators(self._folder / FILE_NAME)
            except (OpskError, OSError, ValueError) as error:
                problem = getattr(error, "message", "") or str(error)
                if problem != self._problem:
                    log.warning("coordinators of accounts see their own runs alone: %s", problem)
                self._problem = problem
                if now_s - self._answered_s > MAX_AGE_S:
                    self._known = {}
            else:
                self._problem, self._answered_s, self._known = "", now_s, self._resolve(accounts)
        return self._known

    def _resolve(self, accounts: _Accounts) -> dict[int, tuple[str, ...]]:
        """Return the accounts by uid; a user whom this host does not know submits nothing here."""
        known = {}
        for user, names in accounts.items():
            try:
                known[self._find_uid(user)] = names
            except (KeyError, ValueError):
                continue
        return known


def read_coordinators(path: Path) -> dict[str, tuple[str, ...]]:
    """Return the accounts by user, as `run_service` wrote them.

    Raises
    ------
    OSError
        It cannot be read.
    ValueError
        It is no such file, or was written long ago.
    """
    with path.open("rb") as file:
        if time.time() - os.fstat(file.fileno()).st_mtime > MAX_AGE_S:
            raise ValueError(f"{path} was written more than a day ago")
        document = json.loads(file.read(MAX_BYTES))
    if not isinstance(document, dict):
        raise ValueError(f"{path} holds no coordinators")  # noqa: TRY004 - a file's content, not an argument
    return {str(user): tuple(map(str, names)) for user, names in document.items() if isinstance(names, list)}


def write_coordinators(path: Path, accounts: _Accounts) -> None:
    """Replace the file; it can be read by this user alone.

    Raises
    ------
    OSError
        There is no room, or the folder is gone.
    """
    draft = path.with_name(f"{path.name}.new")
    with os.fdopen(os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:
        json.dump(accounts, file)
    draft.replace(path)


def run_service(folder: Path) -> None:
    """Write the file every quarter of an hour, until this process ends."""
    client, problem = AccountingClient(), ""
    while True:
        before, problem = problem, ""
        try:
            write_coordinators(folder / FILE_NAME, client.coordinators())
        except OpskError as error:
            problem = error.message
        except OSError as error:
            problem = error.strerror or str(error)
        if problem and problem != before:
            log.warning("coordinators of accounts are not known: %s", problem)
        time.sleep(EVERY_S)
