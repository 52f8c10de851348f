"""Recognises the submissions of an advisor's users, and looks up what earlier runs of the same program used.

A lookup reads a file that another process writes, and never waits. A user gets the history of their own runs: the uid
of the peer is part of the key. Only coordinators of an account are looked up by the keys of the account as well.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opsk.config import SiteConfig
from opsk.hardware.catalog_index import normalise_key
from opsk.history.findings import History, RequestedGpu, summarise_program
from opsk.history.runs import PastRun
from opsk.history.submission import Submission, read_submission
from opsk_jobcheck.advice.site_errors_file import FOLDER_VARIABLE
from opsk_jobcheck.history.index_file import FILE_NAME, IndexFile, build_account_key, build_key
from opsk_jobcheck.submission.protocol import AdviseQuestion
from opsk_jobcheck.submission.request import SlurmRequest, command_text, parse_options
from opsk_jobcheck.workers.supervision import FolderProcess

PUBLISHER_COMMAND = (sys.executable, "-P", "-m", "opsk_jobcheck.history.publisher")
LOOK_EVERY_S = 2.0
"""How often the advisor looks whether the file was replaced."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognised:
    """A submission, the name of its job, and its history; ``None`` where it never ran."""

    submission: Submission
    job_name: str
    history: History | None


def recognise(question: AdviseQuestion, request: SlurmRequest) -> Submission:
    """Return what a question of ``cli_filter`` submits."""
    text = question.script if question.script is not None else command_text(question.command, question.argv)
    return read_submission(
        text,
        script_name=question.script_name,
        directory=question.cwd,
        arguments=request.arguments or () if question.script is not None else (),
        environment=request.environment,
        gpu_type=request.gpu_type,
        gpus=count_gpus(request),
    )


def count_gpus(request: SlurmRequest) -> int | None:
    """Return the GPUs of the whole job; ``None`` where the request fixes no number."""
    if request.gpus is not None:
        return request.gpus
    if request.gpus_per_node is not None and request.nodes is not None:
        return request.gpus_per_node * request.nodes
    if request.gpus_per_task is not None and request.ntasks is not None:
        return request.gpus_per_task * request.ntasks
    return None


def name_job(question: AdviseQuestion) -> str:
    """Return the name that Slurm gives to the job: the requested one, else that of the script or program."""
    requested = parse_options(question.options_json).get("job-name")
    if requested:
        return requested
    named = question.script_name or (question.argv[0] if question.argv else "")
    return named.rpartition("/")[2] or "wrap"


class HistoryFile:
    """The file of earlier runs, opened again when it was replaced.

    Parameters
    ----------
    path
        Where it is, or will be.
    clock
        A monotonic clock [s].
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._looked_s = float("-inf")
        self._stamp: tuple[int, int] | None = None
        self._index: IndexFile | None = None

    def find(self, uid: int, submission: Submission, time_limit_s: float | None) -> History | None:
        """Return what is known of a submission; ``None`` where there are no runs of it that its user may see.

        A user's own runs come first, then those of the accounts that the user coordinates.
        """
        self._look()
        if self._index is None:
            return None
        own = (
            self._read_runs(build_key(uid, "script", submission.script_key)),
            self._read_runs(build_key(uid, "command", submission.command_key)),
        )
        if any(own):
            return self._summarise(*own, submission, time_limit_s, account="")
        for account in self._index.header.get("coordinators", {}).get(str(uid), ()):
            of_account = (
                self._read_runs(build_account_key(account, "script", submission.script_key)),
                self._read_runs(build_account_key(account, "command", submission.command_key)),
            )
            if any(of_account):
                return self._summarise(*of_account, submission, time_limit_s, account=account)
        return None

    def _read_runs(self, index_key: bytes) -> list[PastRun]:
        assert self._index is not None
        document = self._index.find(index_key)
        return [] if document is None else [PastRun.unpack(entry) for entry in json.loads(document)]

    def _summarise(
        self,
        same_script: Sequence[PastRun],
        same_command: Sequence[PastRun],
        submission: Submission,
        time_limit_s: float | None,
        *,
        account: str,
    ) -> History | None:
        gpu = self._find_gpu(submission, same_script or same_command)
        return summarise_program(
            same_script, same_command, submission, gpu=gpu, time_limit_s=time_limit_s, account=account
        )

    def _find_gpu(self, submission: Submission, runs: Sequence[PastRun]) -> RequestedGpu:
        """Return the requested GPU: as runs of any user measured it, else the catalogue's."""
        assert self._index is not None
        capacities = self._index.header.get("capacities", {})
        name = submission.gpu_type or ""
        same = [run.capacity_bytes for run in runs if run.capacity_bytes and run.gpu_type == name]
        capacity = same[-1] if name and same else capacities.get(normalise_key(name))
        return RequestedGpu(name=name.upper(), capacity_bytes=capacity)

    def _look(self) -> None:
        """Open the file again where it was replaced."""
        if self._clock() - self._looked_s < LOOK_EVERY_S:
            return
        self._looked_s = self._clock()
        with suppress(OSError, ValueError):
            stat = self._path.stat()
            if (stat.st_ino, stat.st_mtime_ns) != self._stamp:
                index = IndexFile(self._path)
                if self._index is not None:
                    self._index.close()
                self._index, self._stamp = index, (stat.st_ino, stat.st_mtime_ns)


class ProgramHistory:
    """The history of one advisor.

    Parameters
    ----------
    command
        Program that writes the file; it gets the folder as its last argument and the site configuration as its first
        frame.
    """

    def __init__(self, site: SiteConfig, *, command: Sequence[str] = PUBLISHER_COMMAND) -> None:
        self._site = site
        self._file: HistoryFile | None = None
        self._publisher = FolderProcess("history", command, "earlier runs are not looked up")

    @property
    def is_on(self) -> bool:
        """Whether the site has a store, and wants this."""
        return self._site.history.enabled and self._site.store.url is not None

    def environment(self, site: SiteConfig) -> dict[str, str]:
        """Return the variables for workers of this configuration; the folder is created on first use."""
        is_on = site.history.enabled and site.store.url is not None
        return {FOLDER_VARIABLE: str(self._publisher.path)} if is_on else {}

    def start(self) -> None:
        """Start to publish, where this is on."""
        if not self.is_on:
            self._file = None
            return
        self._file = HistoryFile(self._publisher.path / FILE_NAME)
        self._publisher.start(self._site)

    async def renew(self, site: SiteConfig) -> None:
        """Publish with a new configuration."""
        await self._publisher.stop()
        self._site = site
        self.start()

    async def close(self) -> None:
        """End the process and remove the folder."""
        await self._publisher.close()

    def recognise(self, uid: int, question: AdviseQuestion, request: SlurmRequest) -> Recognised | None:
        """Return what a submission is, and its history; ``None`` where this is off, or fails."""
        if self._file is None or request.is_heterogeneous or question.command == "salloc":
            return None
        try:
            submission = recognise(question, request)
            history = self._file.find(uid, submission, request.time_limit_s)
        except Exception:  # whatever a script or a file holds, the advice goes out
            log.exception("a submission of uid %d is not recognised", uid)
            return None
        return Recognised(submission=submission, job_name=name_job(question), history=history)


def build_record(uid: int, recognised: Recognised) -> Mapping[str, Any]:
    """Return the fields of a submission for the store."""
    submission = recognised.submission
    return {
        "kind": "submitted",
        "uid": uid,
        "name": recognised.job_name,
        "script_key": submission.script_key,
        "command_key": submission.command_key,
        "command": submission.command,
        "settings": dict(submission.settings),
        **({"gpus": submission.gpus} if submission.gpus is not None else {}),
    }
