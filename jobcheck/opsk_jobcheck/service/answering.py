"""What does the advisor answer to one question, and within which time?

Never a guess and never late: what is not ready within the deadline is ``later``, and its computation goes on, so that
the next question finds it stored.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from opsk import __version__
from opsk.config import AdvisorConfig
from opsk.workload.advice_record import Verdict
from opsk_jobcheck.service.advice_cache import AdviceStore, Stored, context_of, key_of, script_hash
from opsk_jobcheck.service.analysis import Analysis, AnalysisRequest
from opsk_jobcheck.service.audit import policy_notes, size_notes, verdict_notes
from opsk_jobcheck.service.listening import Peer
from opsk_jobcheck.service.policy import Decision, decide, enforced_lines
from opsk_jobcheck.service.side_services import Beside, Nothing
from opsk_jobcheck.service.workers import TooBusyError, WorkerPool
from opsk_jobcheck.submission.protocol import (
    MAX_FILES,
    AdviseQuestion,
    Answer,
    ClusterQuestion,
    Question,
    RecordQuestion,
    SubmitQuestion,
)
from opsk_jobcheck.submission.request import SlurmRequest
from opsk_jobcheck.submission.requested import advise_request, command_text, submit_request

SHARE_OF_DEADLINE = 0.7
"""Share of a hook's deadline in which it is answered; the rest is for the way there and back."""

SILENT = Answer(status="silent")
LATER = Answer(status="later")
PONG = Answer(status="pong", release=__version__)
TAKEN = Answer(status="taken")
NOT_ALLOWED = Answer(status="error", error="not allowed to ask for others")

THE_SCRIPT = ""
"""How a script's own lines are cited: who has just typed its name knows it, and in a sweep each has another."""

MAX_FILE_ROUNDS = 3
"""How often files are wanted: a second script names a configuration file, which names another."""

log = logging.getLogger(__name__)

PendingAnswer = asyncio.Future[Answer]
"""Will hold an answer, at the latest at the deadline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handed:
    """An answer that is no JSON and was made elsewhere: a frame, sent as it is."""

    frame: bytes


Answered = Answer | Handed | PendingAnswer
"""What came of a question: an answer, or one that is to come."""


@dataclass(slots=True, kw_only=True)
class Conversation:
    """What one connection has been about so far.

    Parameters
    ----------
    peer
        Who asks, from the kernel.
    rounds
        Number of ``advise`` questions so far: files are wanted in the first ones only.
    asked
        Files that were wanted so far.
    last
        The advice that the last answer told, for the asker to show.
    notes
        Facts for the audit log.
    advised
        The advice that the last answer comes of.
    """

    peer: Peer
    rounds: int = 0
    asked: tuple[str, ...] = ()
    last: Stored | None = None
    notes: dict[str, object] = field(default_factory=dict)
    analysis: Analysis | None = None


class Answerer:
    """Answers questions from what is stored, or lets a worker think.

    Parameters
    ----------
    config, pool
        Deadlines, and who computes.
    submit_uids
        Users who may ask on behalf of others.
    clock
        A monotonic clock [s].
    late
        Is told what came of an analysis that nobody waited for any more, for the audit log.
    live
        Names what is known of running jobs and free nodes: advice is stored for as long as that is the same.
    beside
        What is done beside advice.
    """

    def __init__(
        self,
        config: AdvisorConfig,
        pool: WorkerPool,
        submit_uids: frozenset[int],
        *,
        clock: Callable[[], float] = time.monotonic,
        late: Callable[[dict[str, object]], None] = lambda _: None,
        live: Callable[[], str] = str,
        beside: Beside | None = None,
    ) -> None:
        self.config = config
        self._beside: Beside = beside or Nothing()
        self.pool = pool
        self.submit_uids = submit_uids
        self.store = AdviceStore(clock)
        self._late = late
        self._live = live
        self._left: set[str] = set()
        self._running: dict[str, list[_Hook]] = {}

    def answer(self, question: Question, talk: Conversation) -> Answered:
        """Answer one question, or begin to think about it."""
        talk.notes, talk.analysis, talk.last = {}, None, None
        if isinstance(question, AdviseQuestion):
            return self.advise(question, talk)
        if isinstance(question, SubmitQuestion):
            return self.submit(question, talk)
        if isinstance(question, ClusterQuestion):
            frame = self._beside.cluster(talk.peer.uid, question.have)
            return LATER if frame is None else Handed(frame=frame)
        if isinstance(question, RecordQuestion):
            return TAKEN if self._beside.record(talk.peer.uid, question.records) else LATER
        return PONG

    def advise(self, question: AdviseQuestion, talk: Conversation) -> Answer | PendingAnswer:
        """Answer ``cli_filter``."""
        left = MAX_FILES - len(talk.asked) if talk.rounds < MAX_FILE_ROUNDS else 0
        unread = tuple(path for path in talk.asked if path not in question.files)
        query = build_advise_request(question, may_want=left > 0, unread=unread)
        talk.rounds += 1
        decision = self._decide(query.request)
        deadline_s = self.config.cli_deadline_s
        if question.left_ms is not None:
            deadline_s = min(deadline_s, question.left_ms / 1e3)
        talk.notes |= size_notes(query) | policy_notes(decision) | {"command": question.command}
        talk.notes |= {"deadline_ms": round(deadline_s * 1e3, 1), "detail": question.detail}
        if decision.action == "off":
            return SILENT
        say = partial(self._say_advice, question=question, talk=talk, left=left, is_shown=decision.is_shown)
        return self._find_or_analyze(deadline_s, talk.peer.uid, query, talk, say)

    def _say_advice(
        self, entry: Stored, *, question: AdviseQuestion, talk: Conversation, left: int, is_shown: bool
    ) -> Answer:
        """Return what ``cli_filter`` is told."""
        talk.notes |= verdict_notes(entry.analysis)
        talk.analysis = entry.analysis
        if entry.analysis.wanted:
            paths = entry.analysis.wanted[:left]
            talk.asked += paths
            return Answer(status="files", paths=paths)
        self.store.said_again(entry)
        if question.command != "sbatch":
            self.store.typed(entry, question.argv)
        answer = _said(entry.analysis, entry.analysis.lines) if is_shown else SILENT
        talk.last = entry if answer.lines else None
        return answer

    def ended(self, talk: Conversation) -> bool:
        """Note that what was told last has been shown, and tell whether there was such: who asked has hung up."""
        if talk.last is None:
            return False
        self.store.shown(talk.last)
        return True

    def submit(self, question: SubmitQuestion, talk: Conversation) -> Answer | PendingAnswer:
        """Answer ``job_submit``."""
        if talk.peer.uid not in self.submit_uids:
            return NOT_ALLOWED
        uid, query = question.uid, build_submit_request(question)
        decision = self._decide(query.request)
        talk.notes |= size_notes(query) | policy_notes(decision) | {"for_uid": uid}
        talk.notes["deadline_ms"] = round(self.config.submit_deadline_s * 1e3, 1)
        if decision.action == "off":
            return SILENT
        if question.script is None:
            entry = self.store.just_typed(uid, query.request, question.argv)
            if entry is None and len(question.argv) <= 1:
                return SILENT
        else:
            entry = self.store.alike(uid, query)
        talk.notes["stored"] = entry is not None
        is_typed = question.script is None and entry is None
        say = partial(self._say_record, question=question, talk=talk, query=query, decision=decision)
        if entry is not None:
            return say(entry, is_typed=is_typed)
        say = partial(say, is_typed=is_typed)
        return self._find_or_analyze(self.config.submit_deadline_s, uid, query, talk, say, first=True)

    def _say_record(
        self,
        entry: Stored,
        *,
        question: SubmitQuestion,
        talk: Conversation,
        query: AnalysisRequest,
        decision: Decision,
        is_typed: bool,
    ) -> Answer:
        """Return what ``job_submit`` is told."""
        talk.notes |= verdict_notes(entry.analysis)
        talk.analysis = entry.analysis
        # The user's hook read the script that these words run, and had nothing to ask: its name proves nothing.
        if is_typed and entry.analysis.verdict == Verdict.UNKNOWN.value:
            return SILENT
        if question.script is not None and decision.enforces(entry.analysis, query.request):
            talk.notes["enforced"] = decision.action
            return _enforced(entry.analysis, decision)
        if not decision.is_recorded:
            return SILENT
        quiet = question.quiet or not decision.is_shown or self.store.told(entry)
        return _said(entry.analysis, () if quiet else entry.analysis.short_lines)

    def _decide(self, request: SlurmRequest) -> Decision:
        """Return what the site's policy says; a job that names no partition goes to the site's default one."""
        if request.partition is None and self.config.default_partition is not None:
            request = replace(request, partition=self.config.default_partition)
        return decide(self.config.policy, request)

    def renew(self, config: AdvisorConfig, pool: WorkerPool, submit_uids: frozenset[int]) -> None:
        """Take over a new configuration: nothing said before counts any more."""
        self.config, self.pool, self.submit_uids = config, pool, submit_uids
        self.store.clear()

    def _find_or_analyze(
        self,
        deadline_s: float,
        uid: int,
        query: AnalysisRequest,
        talk: Conversation,
        say: Callable[[Stored], Answer],
        *,
        first: bool = False,
    ) -> Answer | PendingAnswer:
        """Return the answer that is stored; else a fresh one or, at the deadline, that it comes later."""
        context = context_of(uid, query) + ("" if query.quick else self._live())
        key = key_of(context, query.text)
        found = self.store.exact(key) or self.store.of_form(context, uid, query)
        if found is not None and found.analysis.is_short and not self.pool.is_crowded:
            found = None
        talk.notes.setdefault("stored", found is not None)
        if found is not None:
            return say(found)
        loop = asyncio.get_running_loop()
        hook = _Hook(answer=loop.create_future(), talk=talk, say=say)
        hook.timer = loop.call_later(deadline_s * SHARE_OF_DEADLINE, self._leave, key, hook)
        if key in self._running:
            self._running[key].append(hook)
            return hook.answer
        self._running[key] = [hook]
        try:
            then = partial(self._take_result, self.pool, context, uid, query)
            self.pool.analyze(query, uid=uid, first=first, then=then)
        except TooBusyError:
            self._tell(key, None)
        return hook.answer

    def _leave(self, key: str, hook: _Hook) -> None:
        """Let a hook go at its deadline; what it asked about is thought through all the same."""
        self._left.add(key)
        hook.tell(None)

    def _tell(self, key: str, entry: Stored | None) -> None:
        """Answer all hooks that wait for one thought."""
        for hook in self._running.pop(key, ()):
            hook.tell(entry)

    def _take_result(
        self,
        pool: WorkerPool,
        context: str,
        uid: int,
        query: AnalysisRequest,
        analysis: Analysis | None,
        timing: dict[str, float],
    ) -> None:
        """Store what came of an analysis, and tell it; a script that broke a worker is not tried again for a while."""
        key = key_of(context, query.text)
        was_left = key in self._left
        self._left.discard(key)
        if pool is not self.pool:
            self._tell(key, None)
            return
        if analysis is None:
            log.warning("no advice for a script of uid %d", uid)
            analysis = Analysis(silent=True)
        if was_left:
            notes = verdict_notes(analysis) | timing
            self._late({"uid": uid, "script_sha256": script_hash(query.text), **notes})
        self._tell(key, self.store.put(context, uid, query, analysis, timing=timing))


@dataclass(slots=True, kw_only=True)
class _Hook:
    """A hook that waits for what a worker thinks."""

    answer: PendingAnswer
    talk: Conversation
    say: Callable[[Stored], Answer]
    timer: asyncio.TimerHandle | None = None

    def tell(self, entry: Stored | None) -> None:
        """Answer it, unless it was answered before; ``None`` is "later"."""
        if self.answer.done():
            return
        if self.timer is not None:
            self.timer.cancel()
        answer = LATER
        if entry is not None:
            self.talk.notes |= entry.timing
            try:
                answer = self.say(entry)
            except Exception:
                log.exception("advice that cannot be told")
        self.answer.set_result(answer)


def build_advise_request(question: AdviseQuestion, *, may_want: bool, unread: tuple[str, ...] = ()) -> AnalysisRequest:
    """Return what ``cli_filter`` wants to be thought about."""
    request = advise_request(question)
    if question.script is None:
        text = command_text(question.command, question.argv)
        return AnalysisRequest(
            text=text,
            file=f"{question.command} command",
            request=replace(request, arguments=None),
            files=dict(question.files),
            may_want=may_want,
            unread=unread,
            detail=question.detail,
            ascii_only=question.ascii,
        )
    return AnalysisRequest(
        text=question.script,
        file=THE_SCRIPT if question.script_name or question.argv else "--wrap",
        request=request,
        files=dict(question.files),
        may_want=may_want,
        unread=unread,
        detail=question.detail,
        ascii_only=question.ascii,
    )


def build_submit_request(question: SubmitQuestion) -> AnalysisRequest:
    """Return what ``job_submit`` wants to be thought about: the verdict only, nobody can fetch files any more."""
    request = submit_request(question)
    if question.script is None:
        text, name = command_text("srun", question.argv), "command"
        request = replace(request, arguments=None)
    else:
        text, name = question.script, THE_SCRIPT
    return AnalysisRequest(text=text, file=name, request=request, files={}, quick=True, ascii_only=question.ascii)


def _said(analysis: Analysis, lines: tuple[str, ...]) -> Answer:
    """Return the answer that says this."""
    if analysis.silent or analysis.opted_out or analysis.wanted:
        return SILENT
    return Answer(status="advice", verdict=analysis.verdict, lines=lines, comment=analysis.comment)


def _enforced(analysis: Analysis, decision: Decision) -> Answer:
    """Return the answer that holds or refuses the job, and says why; the record says that opsk did it."""
    action: Literal["hold", "reject"] = "hold" if decision.action == "hold" else "reject"
    return Answer(
        status="advice",
        verdict=analysis.verdict,
        lines=enforced_lines(decision, analysis),
        comment=f"{analysis.comment} policy={action}",
        action=action,
    )
