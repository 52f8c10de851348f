"""Runs ``opsk advisor``: the warm process that answers the submit hooks on a Unix socket.

It holds no secret and needs no privilege: it opens no path and trusts no uid that a request names, and any fault in it
costs a user only the advice. The protocol is in ``protocol``, the answers are in ``answering``.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import signal
import sys
from collections.abc import Callable, Sequence

from opsk.config import SiteConfig, load_site
from opsk.errors import OpskError
from opsk_jobcheck.history.program_history import ProgramHistory, Recognised, build_record
from opsk_jobcheck.records.audit import AuditLog
from opsk_jobcheck.records.record_queue import RecordQueue
from opsk_jobcheck.service.answering import Answerer
from opsk_jobcheck.service.connections import Connections, Limits, Listener, listen, notify, submit_uids
from opsk_jobcheck.service.reloads import FitWatch, Reloads
from opsk_jobcheck.service.session import AnswerResult, Session
from opsk_jobcheck.service.shared_cluster import SharedCluster
from opsk_jobcheck.submission.protocol import AdviseQuestion, Answer, Question
from opsk_jobcheck.submission.request import SlurmRequest
from opsk_jobcheck.workers.analysis import script_hash, short_hash
from opsk_jobcheck.workers.forked_processes import FORK_SERVER_COMMAND, ForkServer
from opsk_jobcheck.workers.pool import WorkerPool
from opsk_jobcheck.workers.supervision import WatcherSupervisor

log = logging.getLogger(__name__)

COLLECT_AFTER = (20_000, 10, 10)
"""Allocations before Python looks for reference cycles; a question makes hundreds, which are freed without it."""


class Advisor:
    """The server: accepts connections, reads questions, writes answers, keeps the audit log."""

    def __init__(
        self, site: SiteConfig, *, fork_command: Sequence[str] = FORK_SERVER_COMMAND, limits: Limits | None = None
    ) -> None:
        self._site = site
        self._forks = ForkServer(fork_command)
        self._connections = Connections(self, limits or Limits())
        self._audit = AuditLog(site.advisor.audit_log)
        self._live = WatcherSupervisor(site, self._forks.start)
        self._shared = SharedCluster(site, self._is_trusted)
        self._record_queue = RecordQueue(site, self._is_trusted)
        self._history = ProgramHistory(site)
        pool = WorkerPool(site, self._forks, environment=self._build_environment(site))
        self.answerer = Answerer(site.advisor, pool, submit_uids(site.advisor), side_services=self)

    def _build_environment(self, site: SiteConfig) -> dict[str, str]:
        """Return the variables for workers: where the files are that other processes publish."""
        return self._live.environment(site) | self._history.environment(site)

    async def start(self) -> None:
        """Start the workers.

        Raises
        ------
        ConfigError
            When the site's cluster or fabric cannot be read.
        """
        await self.answerer.pool.start()
        self._live.start()
        self._history.start()
        gc.freeze()  # loaded objects stay: scanning them again and again has no use
        gc.set_threshold(*COLLECT_AFTER)

    def get_site(self) -> SiteConfig:
        """Return the configuration in use."""
        return self._site

    def accept(self, listener: Listener) -> None:
        """Serve new connections from now on."""
        self._connections.accept_from(listener.socket)

    def refuse(self, listener: Listener) -> None:
        """Accept no more connections."""
        self._connections.refuse_from(listener.socket)

    async def reload(self, load: Callable[[], SiteConfig]) -> None:
        """Apply a new configuration, or keep the old one and log why.

        The new workers are up before the old ones go. The socket stays; moving it needs a restart.
        """
        try:
            site = load()
            pool = WorkerPool(site, self._forks, environment=self._build_environment(site))
            await pool.start()
        except OpskError as error:
            log.error("the configuration is unchanged: %s", error.message)  # noqa: TRY400 - a user's mistake
            self._audit.reopen(self._site.advisor.audit_log)
            return
        old = self.answerer.pool
        self.answerer.renew(site.advisor, pool, submit_uids(site.advisor))
        self._site = site
        await self._live.renew(site)
        await self._shared.renew(site)
        await self._record_queue.renew(site)
        await self._history.renew(site)
        self._audit.reopen(site.advisor.audit_log)
        await old.close()
        log.info("configuration read again")

    async def close(self) -> None:
        """End all connections and workers, and write what is left of the audit log."""
        self._connections.close()
        await self.answerer.pool.close()
        await self._live.close()
        await self._shared.close()
        await self._history.close()
        await self._record_queue.close()
        await self._forks.close()
        await asyncio.to_thread(self._audit.close)

    def answer(self, question: Question, session: Session) -> AnswerResult:
        """Answer one question; see `Answerer.answer`."""
        return self.answerer.answer(question, session)

    def state_version(self) -> str:
        """Return the version of the live state that advice on free nodes and shared links depends on."""
        return self._live.generation()

    def cluster(self, uid: int, have: str) -> bytes | None:
        """Return the jobs and nodes that a user may see, as a frame; ``None`` while they are unknown."""
        return None if self._shared.is_off else self._shared.frame_for(uid, have)

    def record(self, uid: int, records: Sequence[str]) -> bool:
        """Accept records for the store; return whether there was room for them."""
        return self._record_queue.record(uid, records)

    def recognise(self, uid: int, question: AdviseQuestion, request: SlurmRequest) -> Recognised | None:
        """Return the program that a submission starts, and its history."""
        return self._history.recognise(uid, question, request)

    def _is_trusted(self, uid: int) -> bool:
        """Return whether Slurm hides nothing from a user, who may write any record: root, SlurmUser, this process's."""
        return uid in self.answerer.submit_uids

    def note_refused(self, session: Session, why: str) -> None:
        """Log an invalid question."""
        self._audit.write(uid=session.peer.uid, pid=session.peer.pid, refused=why)

    def handle_end(self, session: Session) -> None:
        """Log that advice has been shown."""
        if self.answerer.record_end(session):
            self._audit.write(kind="shown", uid=session.peer.uid, pid=session.peer.pid)

    def note(self, question: Question, answer: Answer, session: Session, took_s: float) -> None:
        """Write one question and its answer to the audit log."""
        if question.kind == "ping":
            return
        script = getattr(question, "script", None)
        if session.recognised is not None:
            self._record_queue.add(build_record(session.peer.uid, session.recognised))
        is_of_history = session.analysis is not None and session.analysis.silent
        if script and answer.status == "advice" and self._site.store.url is not None and not is_of_history:
            self._store_advice(question, answer, session, short_hash(script))
        self._audit.write(
            kind=question.kind,
            uid=session.peer.uid,
            pid=session.peer.pid,
            **({"script_sha256": script_hash(script)} if script else {}),
            **session.notes,
            status=answer.status,
            lines=len(answer.lines),
            shown=answer.lines,
            took_ms=round(took_s * 1e3, 3),
        )

    def _store_advice(self, question: Question, answer: Answer, session: Session, script: str) -> None:
        """Store the answer; its job, which has no number yet, is found later by script, user and time."""
        policy = session.notes.get("policy")
        action = answer.action or (policy.get("action") if isinstance(policy, dict) else None)
        shown = {"asked_by": question.kind, "lines": list(answer.lines), "record": answer.comment}
        document = (
            json.loads(session.analysis.document) if session.analysis is not None and session.analysis.document else {}
        )
        self._record_queue.analysis(
            {
                "uid": getattr(question, "uid", session.peer.uid),
                "script_hash": script,
                "verdict": answer.verdict or "unknown",
                "shown": bool(answer.lines),
                **({"action": action} if action else {}),
                "document": shown | document,
            }
        )

    def note_late(self, notes: dict[str, object]) -> None:
        """Log the result of an analysis after its hook's deadline."""
        self._audit.write(kind="thought", **notes)


def serve(
    site: SiteConfig,
    *,
    load: Callable[[], SiteConfig] = load_site,
    fork_command: Sequence[str] = FORK_SERVER_COMMAND,
) -> None:
    """Answer the submit hooks until SIGTERM or SIGINT; SIGHUP reads the configuration again.

    A fit that the site publishes is loaded without it.

    Parameters
    ----------
    site
        The configuration to start with.
    load
        Reads it again.
    fork_command
        Program that starts the processes which compute advice; see ``fork_server``.

    Raises
    ------
    ConfigError
        When the socket cannot be made, or the site's cluster or fabric cannot be read.
    UnavailableError
        When another advisor answers on the socket.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="opsk advisor: %(levelname)s %(message)s")
    with asyncio.Runner(loop_factory=_event_loop()) as runner:
        runner.run(_serve(Advisor(site, fork_command=fork_command), site, load))


def _event_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return the factory of the event loop: one in C where it is installed, since the advisor mostly waits."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


async def _serve(advisor: Advisor, site: SiteConfig, load: Callable[[], SiteConfig]) -> None:
    """Run until stopped, also while it starts or reloads."""
    loop = asyncio.get_running_loop()
    stopped, reloads = asyncio.Event(), Reloads()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    loop.add_signal_handler(signal.SIGHUP, reloads.request_configuration)
    fit_watch = FitWatch(site)
    serving = asyncio.create_task(_serve_on(advisor, site, load, reloads))
    watching = asyncio.create_task(fit_watch.watch(advisor.get_site, reloads))
    stopping = asyncio.create_task(stopped.wait())
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
    finally:
        notify("STOPPING=1")
        for task in (serving, stopping, watching):
            task.cancel()
        await asyncio.gather(serving, stopping, watching, return_exceptions=True)
        await advisor.close()


async def _serve_on(advisor: Advisor, site: SiteConfig, load: Callable[[], SiteConfig], reloads: Reloads) -> None:
    """Start, then accept connections and reload on request, until cancelled."""
    await advisor.start()
    listener = listen(site.advisor)
    advisor.accept(listener)
    try:
        notify("READY=1")
        log.info("answers on %s", listener.path or "the socket that systemd passed")
        while True:
            reads_configuration = await reloads.wait()
            await advisor.reload(load if reads_configuration else advisor.get_site)
    finally:
        advisor.refuse(listener)
        listener.release()
