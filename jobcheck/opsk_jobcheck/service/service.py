"""``opsk advisor``: the warm process that answers the submit hooks on a Unix socket.

It holds no secret and needs no right: it opens no path that it was told, trusts no uid that it was told, and whatever
goes wrong in it costs a user only the advice. How it talks is in ``protocol``, what it answers in ``answering``.
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
from opsk_jobcheck.service.advice_cache import script_hash, short_hash
from opsk_jobcheck.service.answering import Answered, Answerer, Conversation
from opsk_jobcheck.service.audit import AuditLog
from opsk_jobcheck.service.connections import Connections, Limits
from opsk_jobcheck.service.listening import Listener, listen, notify, submit_uids
from opsk_jobcheck.service.recording import Recording
from opsk_jobcheck.service.sharing import SharedCluster
from opsk_jobcheck.service.watching import LiveWatch
from opsk_jobcheck.service.workers import WORKER_COMMAND, WorkerPool
from opsk_jobcheck.submission.protocol import Answer, Question

log = logging.getLogger(__name__)

COLLECT_AFTER = (20_000, 10, 10)
"""Objects made before Python looks for those that hang together; a question makes hundreds, which go by themselves."""


class Advisor:
    """The server: accepts connections, reads questions, writes answers, keeps the audit log."""

    def __init__(
        self, site: SiteConfig, *, worker_command: Sequence[str] = WORKER_COMMAND, limits: Limits | None = None
    ) -> None:
        self._site = site
        self._worker_command = worker_command
        self._connections = Connections(self, limits or Limits())
        self._audit = AuditLog(site.advisor.audit_log)
        self._live = LiveWatch(site)
        self._shared = SharedCluster(site, self._is_trusted)
        self._recording = Recording(site, self._is_trusted)
        pool = WorkerPool(site, command=worker_command, environment=self._live.environment(site))
        self.answerer = Answerer(
            site.advisor,
            pool,
            submit_uids(site.advisor),
            late=self._note_late,
            live=self._live.generation,
            beside=self,
        )

    async def start(self) -> None:
        """Start the workers.

        Raises
        ------
        ConfigError
            When the site's cluster or fabric cannot be read.
        """
        await self.answerer.pool.start()
        self._live.start()
        gc.freeze()  # what is loaded stays: there is no use in looking through it again and again
        gc.set_threshold(*COLLECT_AFTER)

    def accept(self, listener: Listener) -> None:
        """Answer whoever connects from now on."""
        self._connections.accept_from(listener.socket)

    def refuse(self, listener: Listener) -> None:
        """Take no connections any more."""
        self._connections.refuse_from(listener.socket)

    async def reload(self, load: Callable[[], SiteConfig]) -> None:
        """Take over a new configuration, or keep the old one and say why.

        The new workers are up before the old ones go. The socket stays; moving it needs a restart.
        """
        try:
            site = load()
            pool = WorkerPool(site, command=self._worker_command, environment=self._live.environment(site))
            await pool.start()
        except OpskError as error:
            log.error("configuration kept as it was: %s", error.message)  # noqa: TRY400 - a user's mistake
            self._audit.reopen(self._site.advisor.audit_log)
            return
        old = self.answerer.pool
        self.answerer.renew(site.advisor, pool, submit_uids(site.advisor))
        self._site = site
        await self._live.renew(site)
        await self._shared.renew(site)
        await self._recording.renew(site)
        self._audit.reopen(site.advisor.audit_log)
        await old.close()
        log.info("configuration read again")

    async def close(self) -> None:
        """End all connections and workers, and write what is left of the audit log."""
        self._connections.close()
        await self.answerer.pool.close()
        await self._live.close()
        await self._shared.close()
        await self._recording.close()
        await asyncio.to_thread(self._audit.close)

    def answer(self, question: Question, talk: Conversation) -> Answered:
        """Answer one question; see `Answerer.answer`."""
        return self.answerer.answer(question, talk)

    def cluster(self, uid: int, have: str) -> bytes | None:
        """Return what a user may see of all jobs and nodes, as a frame; ``None`` while it is not known."""
        return None if self._shared.is_off else self._shared.frame_for(uid, have)

    def record(self, uid: int, records: Sequence[str]) -> bool:
        """Take records for the store; tell whether there was room for them."""
        return self._recording.record(uid, records)

    def _is_trusted(self, uid: int) -> bool:
        """Tell whether Slurm hides nothing from a user, and lets him say anything: root, SlurmUser, this process's."""
        return uid in self.answerer.submit_uids

    def note_refused(self, talk: Conversation, why: str) -> None:
        """Write what was no question to the audit log."""
        self._audit.write(uid=talk.peer.uid, pid=talk.peer.pid, refused=why)

    def ended(self, talk: Conversation) -> None:
        """Write down that advice has been shown."""
        if self.answerer.ended(talk):
            self._audit.write(kind="shown", uid=talk.peer.uid, pid=talk.peer.pid)

    def note(self, question: Question, answer: Answer, talk: Conversation, took_s: float) -> None:
        """Write one question and its answer to the audit log."""
        if question.kind == "ping":
            return
        script = getattr(question, "script", None)
        if script and answer.status == "advice" and self._site.store.url is not None:
            self._keep_advice(question, answer, talk, short_hash(script))
        self._audit.write(
            kind=question.kind,
            uid=talk.peer.uid,
            pid=talk.peer.pid,
            **({"script_sha256": script_hash(script)} if script else {}),
            **talk.notes,
            status=answer.status,
            lines=len(answer.lines),
            shown=answer.lines,
            took_ms=round(took_s * 1e3, 3),
        )

    def _keep_advice(self, question: Question, answer: Answer, talk: Conversation, script: str) -> None:
        """Keep what was said; which job it became is found by script, user and time, for it has no number yet."""
        policy = talk.notes.get("policy")
        action = answer.action or (policy.get("action") if isinstance(policy, dict) else None)
        told = {"asked_by": question.kind, "lines": list(answer.lines), "record": answer.comment}
        kept = json.loads(talk.analysis.kept) if talk.analysis is not None and talk.analysis.kept else {}
        self._recording.analysis(
            {
                "uid": getattr(question, "uid", talk.peer.uid),
                "script_hash": script,
                "verdict": answer.verdict or "unknown",
                "shown": bool(answer.lines),
                **({"action": action} if action else {}),
                "document": told | kept,
            }
        )

    def _note_late(self, notes: dict[str, object]) -> None:
        """Write down what came of an analysis that no hook waited for any more."""
        self._audit.write(kind="thought", **notes)


def serve(
    site: SiteConfig,
    *,
    load: Callable[[], SiteConfig] = load_site,
    worker_command: Sequence[str] = WORKER_COMMAND,
) -> None:
    """Answer the submit hooks until SIGTERM or SIGINT; SIGHUP reads the configuration again.

    Parameters
    ----------
    site
        The configuration to start with.
    load
        Reads it again.
    worker_command
        Program that computes advice; see ``worker``.

    Raises
    ------
    ConfigError
        When the socket cannot be made, or the site's cluster or fabric cannot be read.
    UnavailableError
        When another advisor answers on the socket.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="opsk advisor: %(levelname)s %(message)s")
    with asyncio.Runner(loop_factory=_event_loop()) as runner:
        runner.run(_serve(Advisor(site, worker_command=worker_command), site, load))


def _event_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return what makes the event loop: one in C where it is installed, for the advisor does little else than wait."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


async def _serve(advisor: Advisor, site: SiteConfig, load: Callable[[], SiteConfig]) -> None:
    """Run until told to stop, also while it starts or reloads."""
    loop = asyncio.get_running_loop()
    stopped, reloaded = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    loop.add_signal_handler(signal.SIGHUP, reloaded.set)
    serving = asyncio.create_task(_serve_on(advisor, site, load, reloaded))
    stopping = asyncio.create_task(stopped.wait())
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
    finally:
        notify("STOPPING=1")
        for task in (serving, stopping):
            task.cancel()
        await asyncio.gather(serving, stopping, return_exceptions=True)
        await advisor.close()


async def _serve_on(
    advisor: Advisor, site: SiteConfig, load: Callable[[], SiteConfig], reloaded: asyncio.Event
) -> None:
    """Start, then accept connections and reload when asked to, until cancelled."""
    await advisor.start()
    listener = listen(site.advisor)
    advisor.accept(listener)
    try:
        notify("READY=1")
        log.info("answers on %s", listener.path or "the socket that systemd passed")
        while True:
            await reloaded.wait()
            reloaded.clear()
            await advisor.reload(load)
    finally:
        advisor.refuse(listener)
        listener.release()
