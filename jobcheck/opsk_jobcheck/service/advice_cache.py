"""Which advice has been given lately, and has its user seen it?

``job_submit`` comes a few milliseconds after ``cli_filter`` with the same script: it gets what is stored here. Bounded
in number and age; of a script only its hash is kept, and nothing is written to disk.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from opsk.workload.advice_record import of_script
from opsk_jobcheck.scripts.free_numbers import Free, Numbered, text_digest
from opsk_jobcheck.service.analysis import Analysis, AnalysisRequest
from opsk_jobcheck.submission.request import SlurmRequest
from opsk_jobcheck.submission.requested import contradicts

MOST_FORMS, MOST_FREE = 256, 4
"""Forms, and sets of free numbers of one form, that are remembered."""


@dataclass(slots=True)
class Forms:
    """Free numbers by the form of the script, the latest first; of a form its hash is kept."""

    _free: OrderedDict[bytes, tuple[Free, ...]] = field(default_factory=OrderedDict)

    def note(self, text: str, free: Free) -> str | None:
        """Remember which numbers of a script are free; return it with these blank, ``None`` where none is."""
        numbered = Numbered.of(text) if free else None
        if numbered is None:
            return None
        name = text_digest(numbered.form)
        others = (other for other in self._free.pop(name, ()) if other != free)
        self._free[name] = (free, *others)[:MOST_FREE]
        if len(self._free) > MOST_FORMS:
            self._free.popitem(last=False)
        return numbered.blanked(free)

    def blanked(self, text: str) -> Iterator[str]:
        """Return a script with those numbers blank that were free in another of its form."""
        numbered = Numbered.of(text) if self._free else None
        if numbered is not None:
            for free in self._free.get(text_digest(numbered.form), ()):
                yield numbered.blanked(free)

    def clear(self) -> None:
        """Forget all."""
        self._free.clear()


MAX_ENTRIES = 2048
KEPT_S = 600.0
SHOWN_FOR_S = 60.0
"""How long a user who was shown advice counts as told: from ``cli_filter`` to ``job_submit`` of one submission."""
TYPED_FOR_S = 10.0
"""How long ``salloc`` and ``srun`` may take from ``cli_filter`` to ``job_submit``, which may not see their words."""


@lru_cache(maxsize=8)
def script_hash(text: str) -> str:
    """Return the SHA-256 of a script, in hex; blank lines at its end do not count (``--wrap`` adds one)."""
    return hashlib.sha256(text.rstrip("\n").encode("utf-8", errors="surrogatepass")).hexdigest()


def short_hash(text: str) -> str:
    """Return what a job's record keeps of `script_hash`."""
    return script_hash(text)[:12]


def context_of(uid: int, query: AnalysisRequest) -> str:
    """Return what makes a question about one script the same question."""
    packed = query.packed() | {"uid": uid, "text": ""}
    return hashlib.sha256(json.dumps(packed, sort_keys=True).encode("ascii")).hexdigest()


def key_of(context: str, text: str) -> str:
    """Return what makes a question the same question; here every line counts."""
    return f"{context} {hashlib.sha256(text.encode('utf-8', errors='surrogatepass')).hexdigest()}"


def environment_hash(environment: Mapping[str, str] | None) -> str | None:
    """Return what tells two environments of a job apart, but for what Slurm itself adds; ``None`` when not known."""
    if environment is None:
        return None
    own = sorted((name, value) for name, value in environment.items() if not name.startswith(("SLURM_", "SBATCH_")))
    return hashlib.sha256(json.dumps(own).encode("ascii")).hexdigest()


@dataclass(slots=True, kw_only=True)
class Stored:
    """One piece of advice that was given.

    Parameters
    ----------
    given_at, shown_at, typed_at
        Readings of a monotonic clock [s]; ``None`` is never.
    environment
        Hash of the variables that were known; ``None`` when none were.
    typed
        Words that were typed after ``salloc`` or ``srun``.
    awaited
        How many submissions of these words are still to come to ``job_submit``.
    timing
        How long it waited for a worker and was thought about, for the audit log.
    """

    key: str
    uid: int
    script: str
    request: SlurmRequest
    analysis: Analysis
    given_at: float
    environment: str | None = None
    shown_at: float | None = None
    typed_at: float | None = None
    typed: tuple[str, ...] = ()
    awaited: int = 0
    timing: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class AdviceStore:
    """The advice of the last minutes, found exactly, by form, by user and script, or by the user who has just typed it.

    However much there is of one user, each of these takes the same time: slurmctld waits for two of them.

    Parameters
    ----------
    clock
        A monotonic clock [s].
    """

    clock: Callable[[], float]
    max_entries: int = MAX_ENTRIES
    kept_s: float = KEPT_S
    _entries: OrderedDict[str, Stored] = field(default_factory=OrderedDict)
    _forms: Forms = field(default_factory=Forms)
    _keys: dict[Hashable, dict[str, None]] = field(default_factory=dict)
    """Keys of the entries of a user's script, and of what a user has typed, each in the order in which it was said."""

    def __len__(self) -> int:
        return len(self._entries)

    def exact(self, key: str) -> Stored | None:
        """Return what was said about exactly this (see `key_of`)."""
        entry = self._entries.get(key)
        if entry is not None and self.clock() - entry.given_at > self.kept_s:
            self._forget(key)
            return None
        return entry

    def of_form(self, context: str, uid: int, query: AnalysisRequest) -> Stored | None:
        """Return what was said about a script with other numbers where they are free, as said about this one."""
        for blanked in self._forms.blanked(query.text):
            entry = self.exact(key_of(context, blanked))
            if entry is not None:
                comment = of_script(entry.analysis.comment, short_hash(query.text))
                found = self.put(context, uid, query, replace(entry.analysis, comment=comment, free=()))
                found.given_at = entry.given_at
                return found
        return None

    def said_again(self, entry: Stored) -> None:
        """Note that this is now the latest that its user was told about the script."""
        keys = self._keys.get((entry.uid, entry.script), {})
        if entry.key in keys:
            del keys[entry.key]
            keys[entry.key] = None

    def alike(self, uid: int, query: AnalysisRequest) -> Stored | None:
        """Return the latest advice on this user's script whose request does not contradict this one."""
        environment = environment_hash(query.request.environment)
        for entry in self._latest((uid, script_hash(query.text))):
            if None not in (environment, entry.environment) and environment != entry.environment:
                continue
            if not contradicts(entry.request, query.request):
                return entry
        return None

    def typed(self, entry: Stored, words: tuple[str, ...]) -> None:
        """Note that a user has just typed this after ``salloc`` or ``srun``, and that its submission will follow."""
        entry.typed_at, entry.typed = self.clock(), words
        entry.awaited += 1
        if entry.key in self._entries:
            keys = self._keys.setdefault(entry.uid, {})
            keys.pop(entry.key, None)
            keys[entry.key] = None

    def just_typed(self, uid: int, request: SlurmRequest, words: tuple[str, ...]) -> Stored | None:
        """Return the advice on what this user has just typed, once for each time it was typed.

        Parameters
        ----------
        words
            What ``job_submit`` saw of it; up to 22.05 that is one word or none, and then only the request is compared.
        """
        asked = replace(request, arguments=None)
        for entry in self._latest(uid):
            if entry.typed_at is None or self.clock() - entry.typed_at > TYPED_FOR_S:
                entry.awaited = 0
                self._unlist(uid, entry.key)
                continue
            same_words = len(words) <= 1 or words[-len(entry.typed) :] == entry.typed
            if same_words and not contradicts(replace(entry.request, arguments=None), asked):
                entry.awaited -= 1
                if not entry.awaited:
                    self._unlist(uid, entry.key)
                return entry
        return None

    def put(
        self,
        context: str,
        uid: int,
        query: AnalysisRequest,
        analysis: Analysis,
        *,
        timing: Mapping[str, float] | None = None,
    ) -> Stored:
        """Store one piece of advice, and forget the oldest when there are too many.

        Parameters
        ----------
        context
            `context_of` the question, with what is known of running jobs and free nodes where advice depends on that.
        """
        blanked = self._forms.note(query.text, analysis.free)
        if blanked is not None:
            self._keep(context, uid, replace(query, text=blanked), analysis, timing)
        return self._keep(context, uid, query, analysis, timing)

    def _keep(
        self,
        context: str,
        uid: int,
        query: AnalysisRequest,
        analysis: Analysis,
        timing: Mapping[str, float] | None,
    ) -> Stored:
        """Store one entry."""
        key = key_of(context, query.text)
        self._forget(key)
        entry = Stored(
            key=key,
            uid=uid,
            script=script_hash(query.text),
            request=replace(query.request, environment=None),
            analysis=analysis,
            given_at=self.clock(),
            environment=environment_hash(query.request.environment),
            timing=timing or {},
        )
        self._entries[key] = entry
        self._keys.setdefault((entry.uid, entry.script), {})[key] = None
        while len(self._entries) > self.max_entries:
            self._forget(next(iter(self._entries)))
        return entry

    def shown(self, entry: Stored) -> None:
        """Note that the user has just been shown this."""
        entry.shown_at = self.clock()

    def told(self, entry: Stored) -> bool:
        """Tell whether the user has just been shown this."""
        return entry.shown_at is not None and self.clock() - entry.shown_at <= SHOWN_FOR_S

    def clear(self) -> None:
        """Forget everything: what was said may no longer hold."""
        self._entries.clear()
        self._keys.clear()
        self._forms.clear()

    def _latest(self, index: Hashable) -> Iterator[Stored]:
        """Return fresh entries that say something, the latest first."""
        for key in reversed(tuple(self._keys.get(index, ()))):
            entry = self.exact(key)
            if entry is not None and not entry.analysis.wanted:
                yield entry

    def _forget(self, key: str) -> None:
        """Remove an entry from everywhere."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._unlist(entry.uid, key)
            self._unlist((entry.uid, entry.script), key)

    def _unlist(self, index: Hashable, key: str) -> None:
        """Remove a key from one list, and the list when it was the last."""
        keys = self._keys.get(index, {})
        keys.pop(key, None)
        if not keys:
            self._keys.pop(index, None)
