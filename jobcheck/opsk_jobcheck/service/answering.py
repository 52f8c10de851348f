"""Answers the advisor's requests within their deadlines.

An answer is never a guess and never late: an analysis that is not ready within the deadline is answered with ``later``
and goes on, so that the next request finds its result stored.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from opsk import __version__
from opsk.config import AdvisorConfig
from opsk.workload.advice_record import Verdict
from opsk_jobcheck.advice.rendering.history import history_lines
from opsk_jobcheck.history.program_history import Recognised
from opsk_jobcheck.records.audit import size_notes, verdict_notes
from opsk_jobcheck.service.advice_cache import AdviceCache, CachedAdvice, Inquiry
from opsk_jobcheck.service.policy import Decision, decide, policy_notes, render_enforcement
from opsk_jobcheck.service.session import AnswerResult, NoSideServices, PendingAnswer, RawFrame, Session, SideServices
from opsk_jobcheck.submission.protocol import (
    MAX_FILES,
    MAX_REQUESTED_PATHS,
    AdviseQuestion,
    Answer,
    ClusterQuestion,
    Question,
    RecordQuestion,
    SubmitQuestion,
)
from opsk_jobcheck.submission.request import SlurmRequest, command_text, parse_advise_request, parse_submit_request
from opsk_jobcheck.workers.analysis import Analysis, AnalysisRequest, script_hash
from opsk_jobcheck.workers.pool import TooBusyError, WorkerPool

SHARE_OF_DEADLINE = 0.7
"""Share of a hook's deadline for the answer; the rest is for the transfer."""
SILENT = Answer(status="silent")
LATER = Answer(status="later")
PONG = Answer(status="pong", release=__version__)
TAKEN = Answer(status="taken")
NOT_ALLOWED = Answer(status="error", error="not allowed to ask for others")
THE_SCRIPT = ""
"""The name of a script's own lines: its user knows it, and in a sweep each script has another."""
MAX_FILE_ROUNDS = 5
"""A script starts a program, whose modules import others, which name a configuration."""
LEAST_LEFT_MS = 80
"""With less time left no more files are asked for: what is known then is worth more than an answer too late."""
"""How often files are requested: a second script names a configuration file, which names another."""

log = logging.getLogger(__name__)


class Answerer:
    """Answers questions from the cache, or has a worker analyse the script.

    Parameters
    ----------
    config, pool
        Deadlines, and the workers.
    submit_uids
        Users who may ask on behalf of others.
    clock
        A monotonic clock [s].
    side_services
        What else the advisor offers and logs.
    """

    def __init__(
        self,
        config: AdvisorConfig,
        pool: WorkerPool,
        submit_uids: frozenset[int],
        *,
        clock: Callable[[], float] = time.monotonic,
        side_services: SideServices | None = None,
    ) -> None:
        self.config = config
        self._side_services: SideServices = side_services or NoSideServices()
        self.pool = pool
        self.submit_uids = submit_uids
        self.cache = AdviceCache(clock)
        self._timed_out: set[str] = set()
        self._running: dict[str, list[_Hook]] = {}

    def answer(self, question: Question, session: Session) -> AnswerResult:
        """Answer one question, or start its analysis."""
        session.notes, session.analysis, session.last, session.recognised = {}, None, None, None
        if isinstance(question, AdviseQuestion):
            return self.advise(question, session)
        if isinstance(question, SubmitQuestion):
            return self.submit(question, session)
        if isinstance(question, ClusterQuestion):
            frame = self._side_services.cluster(session.peer.uid, question.have)
            return LATER if frame is None else RawFrame(frame=frame)
        if isinstance(question, RecordQuestion):
            return TAKEN if self._side_services.record(session.peer.uid, question.records) else LATER
        return PONG

    def advise(self, question: AdviseQuestion, session: Session) -> Answer | PendingAnswer:
        """Answer ``cli_filter``."""
        remaining = _count_paths_to_request(question, session)
        unread = tuple(path for path in session.requested_files if path not in question.files)
        query = build_advise_request(question, may_want=remaining > 0, unread=unread)
        session.rounds += 1
        decision = self._decide(query.request)
        deadline_s = self.config.cli_deadline_s
        if question.left_ms is not None:
            deadline_s = min(deadline_s, question.left_ms / 1e3)
        session.notes |= size_notes(query) | policy_notes(decision) | {"command": question.command}
        session.notes |= {"deadline_ms": round(deadline_s * 1e3, 1), "detail": question.detail}
        if decision.action == "off":
            return SILENT
        render = partial(
            self._render_advice, question=question, request=query.request, session=session, max_files=remaining,
            is_shown=decision.is_shown,
        )  # fmt: skip
        inquiry = Inquiry(uid=session.peer.uid, query=query, state=self._side_services.state_version())
        return self._find_or_analyze(inquiry, deadline_s, session, render)

    def _render_advice(
        self,
        entry: CachedAdvice,
        *,
        question: AdviseQuestion,
        request: SlurmRequest,
        session: Session,
        max_files: int,
        is_shown: bool,
    ) -> Answer:
        """Return the answer to ``cli_filter``."""
        session.notes |= verdict_notes(entry.analysis)
        session.analysis = entry.analysis
        if entry.analysis.missing_files:
            paths = entry.analysis.missing_files[:max_files]
            session.requested_files += paths
            return Answer(status="files", paths=paths)
        self.cache.mark_latest(entry)
        if question.command != "sbatch":
            self.cache.mark_typed(entry, question.argv)
        answer = _build_answer(entry.analysis, entry.analysis.lines) if is_shown else SILENT
        if not entry.analysis.opted_out:
            session.recognised = self._side_services.recognise(session.peer.uid, question, request)
            if is_shown:
                answer = _add_history(answer, session.recognised, question)
        session.last = entry if answer.lines else None
        return answer

    def record_end(self, session: Session) -> bool:
        """Record that the last advice has been shown, and return whether there was any: the client has closed."""
        if session.last is None:
            return False
        self.cache.mark_shown(session.last)
        return True

    def submit(self, question: SubmitQuestion, session: Session) -> Answer | PendingAnswer:
        """Answer ``job_submit``."""
        if session.peer.uid not in self.submit_uids:
            return NOT_ALLOWED
        inquiry = Inquiry(uid=question.uid, query=build_submit_request(question))
        request = inquiry.query.request
        decision = self._decide(request)
        session.notes |= size_notes(inquiry.query) | policy_notes(decision) | {"for_uid": inquiry.uid}
        session.notes["deadline_ms"] = round(self.config.submit_deadline_s * 1e3, 1)
        if decision.action == "off":
            return SILENT
        if question.script is None:
            entry = self.cache.find_just_typed(inquiry.uid, request, question.argv)
            if entry is None and len(question.argv) <= 1:
                return SILENT
        else:
            entry = self.cache.find_similar(inquiry)
        session.notes["stored"] = entry is not None
        submission = _Submission(
            question=question,
            request=request,
            decision=decision,
            session=session,
            has_name_only=question.script is None and entry is None,
        )
        if entry is not None:
            return self._render_record(submission, entry)
        render = partial(self._render_record, submission)
        return self._find_or_analyze(inquiry, self.config.submit_deadline_s, session, render, first=True)

    def _render_record(self, submission: _Submission, entry: CachedAdvice) -> Answer:
        """Return the answer to ``job_submit``."""
        question, decision, session = submission.question, submission.decision, submission.session
        session.notes |= verdict_notes(entry.analysis)
        session.analysis = entry.analysis
        # The user's hook read the script of this command, and sent no request: its name alone proves nothing.
        if submission.has_name_only and entry.analysis.verdict == Verdict.UNKNOWN.value:
            return SILENT
        if question.script is not None and decision.enforces(entry.analysis, submission.request):
            session.notes["enforced"] = decision.action
            return _build_enforced_answer(entry.analysis, decision)
        if not decision.is_recorded:
            return SILENT
        quiet = question.quiet or not decision.is_shown or self.cache.was_shown(entry)
        return _build_answer(entry.analysis, () if quiet else entry.analysis.short_lines)

    def _decide(self, request: SlurmRequest) -> Decision:
        """Return the decision of the site's policy; a job that names no partition goes to the site's default one."""
        if request.partition is None and self.config.default_partition is not None:
            request = replace(request, partition=self.config.default_partition)
        return decide(self.config.policy, request)

    def renew(self, config: AdvisorConfig, pool: WorkerPool, submit_uids: frozenset[int]) -> None:
        """Apply a new configuration: earlier advice is discarded."""
        self.config, self.pool, self.submit_uids = config, pool, submit_uids
        self.cache.clear()

    def _find_or_analyze(
        self,
        inquiry: Inquiry,
        deadline_s: float,
        session: Session,
        render: Callable[[CachedAdvice], Answer],
        *,
        first: bool = False,
    ) -> Answer | PendingAnswer:
        """Return the cached answer; else a fresh one or, at the deadline, ``later``."""
        cached = self.cache.find(inquiry)
        if cached is not None and cached.analysis.is_short and not self.pool.is_crowded:
            cached = None
        session.notes.setdefault("stored", cached is not None)
        if cached is not None:
            return render(cached)
        loop = asyncio.get_running_loop()
        hook = _Hook(answer=loop.create_future(), session=session, render=render)
        hook.timer = loop.call_later(deadline_s * SHARE_OF_DEADLINE, self._time_out, inquiry.key, hook)
        if inquiry.key in self._running:
            self._running[inquiry.key].append(hook)
            return hook.answer
        self._running[inquiry.key] = [hook]
        try:
            then = partial(self._take_result, self.pool, inquiry)
            self.pool.analyze(inquiry.query, uid=inquiry.uid, first=first, then=then)
        except TooBusyError:
            self._answer_hooks(inquiry.key, None)
        return hook.answer

    def _time_out(self, key: str, hook: _Hook) -> None:
        """Answer a hook at its deadline; the analysis goes on."""
        self._timed_out.add(key)
        hook.resolve(None)

    def _answer_hooks(self, key: str, entry: CachedAdvice | None) -> None:
        """Answer all hooks that wait for one analysis."""
        for hook in self._running.pop(key, ()):
            hook.resolve(entry)

    def _take_result(
        self, pool: WorkerPool, inquiry: Inquiry, analysis: Analysis | None, timing: dict[str, float]
    ) -> None:
        """Store the result of an analysis, and answer with it; a script that broke a worker is not retried soon."""
        had_timed_out = inquiry.key in self._timed_out
        self._timed_out.discard(inquiry.key)
        if pool is not self.pool:
            self._answer_hooks(inquiry.key, None)
            return
        if analysis is None:
            log.warning("no advice for a script of uid %d", inquiry.uid)
            analysis = Analysis(silent=True)
        if had_timed_out:
            notes = verdict_notes(analysis) | timing
            script = script_hash(inquiry.query.text)
            self._side_services.note_late({"uid": inquiry.uid, "script_sha256": script, **notes})
        self._answer_hooks(inquiry.key, self.cache.put(inquiry, analysis, timing=timing))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Submission:
    """A question of ``job_submit``, and the site's decision on it.

    Parameters
    ----------
    has_name_only
        A command was typed whose script nobody has read.
    """

    question: SubmitQuestion
    request: SlurmRequest
    decision: Decision
    session: Session
    has_name_only: bool


@dataclass(slots=True, kw_only=True)
class _Hook:
    """A hook that waits for an analysis."""

    answer: PendingAnswer
    session: Session
    render: Callable[[CachedAdvice], Answer]
    timer: asyncio.TimerHandle | None = None

    def resolve(self, entry: CachedAdvice | None) -> None:
        """Answer it, unless it was answered before; ``None`` is "later"."""
        if self.answer.done():
            return
        if self.timer is not None:
            self.timer.cancel()
        answer = LATER
        if entry is not None:
            self.session.notes |= entry.timing
            try:
                answer = self.render(entry)
            except Exception:
                log.exception("advice cannot be rendered")
        self.answer.set_result(answer)


def build_advise_request(question: AdviseQuestion, *, may_want: bool, unread: tuple[str, ...] = ()) -> AnalysisRequest:
    """Return the analysis request of ``cli_filter``."""
    request = parse_advise_request(question)
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
    """Return the analysis request of ``job_submit``: the verdict only, nobody can fetch files any more."""
    request = parse_submit_request(question)
    if question.script is None:
        text, name = command_text("srun", question.argv), "command"
        request = replace(request, arguments=None)
    else:
        text, name = question.script, THE_SCRIPT
    return AnalysisRequest(text=text, file=name, request=request, files={}, quick=True, ascii_only=question.ascii)


def _count_paths_to_request(question: AdviseQuestion, session: Session) -> int:
    """Return how many more files may be asked for in this answer."""
    is_late = question.left_ms is not None and question.left_ms < LEAST_LEFT_MS
    if is_late or session.rounds >= MAX_FILE_ROUNDS:
        return 0
    return max(0, min(MAX_FILES - len(question.files), MAX_REQUESTED_PATHS - len(session.requested_files)))


def _build_answer(analysis: Analysis, lines: tuple[str, ...]) -> Answer:
    """Return the answer with these lines."""
    if analysis.silent or analysis.opted_out or analysis.missing_files:
        return SILENT
    return Answer(status="advice", verdict=analysis.verdict, lines=lines, comment=analysis.comment)


def _add_history(answer: Answer, recognised: Recognised | None, question: AdviseQuestion) -> Answer:
    """Return the answer with what earlier runs of the program used; it needs no other advice."""
    if recognised is None or recognised.history is None:
        return answer
    is_alone = not answer.lines
    lines = history_lines(recognised.history, question.detail, is_alone=is_alone, ascii_only=question.ascii)
    if not lines:
        return answer
    return answer.model_copy(update={"status": "advice", "lines": (*answer.lines, *lines)})


def _build_enforced_answer(analysis: Analysis, decision: Decision) -> Answer:
    """Return the answer that holds or refuses the job, with the reason; the record says that opsk did it."""
    action: Literal["hold", "reject"] = "hold" if decision.action == "hold" else "reject"
    return Answer(
        status="advice",
        verdict=analysis.verdict,
        lines=render_enforcement(decision, analysis),
        comment=f"{analysis.comment} policy={action}",
        action=action,
    )
