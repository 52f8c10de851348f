"""Caches the advice of the last minutes by question, and finds it again for ``job_submit``.

Advice is cached at two levels, each with one key:

- Here, in the advisor, whole answers by `Inquiry`: the user, the request, the files, the script's text and the
  version of the cluster's state. Where an answer is found no worker is asked. Numbers of a script that were found to
  change nothing that is read from it (`opsk_jobcheck.scripts.free_numbers`) are masked in a second entry, so that the
  next script of a sweep finds it.
- In each worker, what was computed, by recipe (`opsk_jobcheck.advice.recipe_cache`): for scripts that have to be read.

A new configuration clears the first level and comes with new workers; the site's policy is applied to each answer
afterwards, and is no part of a key. ``job_submit`` comes a few milliseconds after ``cli_filter`` with the same script
and knows less of the request: it finds the answer by user and script. The cache is bounded in number and age. It holds
only hashes of scripts, and writes nothing to disk.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from opsk.workload.advice_record import replace_hash
from opsk_jobcheck.scripts.free_numbers import Free, Numbered, text_digest
from opsk_jobcheck.submission.request import SlurmRequest, contradicts
from opsk_jobcheck.workers.analysis import Analysis, AnalysisRequest, script_hash, short_hash

MAX_ENTRIES = 2048
MAX_AGE_S = 600.0
MAX_TEMPLATES, MAX_FREE_SETS = 256, 4
"""Number of templates, and of sets of free numbers of one template, that are stored."""
SHOWN_FOR_S = 60.0
"""How long advice counts as shown to its user: from ``cli_filter`` to ``job_submit`` of one submission."""
TYPED_FOR_S = 10.0
"""How long ``salloc`` and ``srun`` may take from ``cli_filter`` to ``job_submit``, which may not get all arguments."""


@dataclass(frozen=True, kw_only=True)
class Inquiry:
    """One user's question: everything that advice depends on.

    Parameters
    ----------
    state
        The version of the cluster's live state, empty where the advice does not depend on it.
    """

    uid: int
    query: AnalysisRequest
    state: str = ""

    @cached_property
    def key(self) -> str:
        """The cache key."""
        return self.build_key(self.query.text)

    def build_key(self, text: str) -> str:
        """Return the cache key of the same question about another script; here every line counts."""
        return f"{self._context} {hashlib.sha256(text.encode('utf-8', errors='surrogatepass')).hexdigest()}"

    @cached_property
    def _context(self) -> str:
        """A hash of everything but the text."""
        packed = self.query.pack() | {"uid": self.uid, "text": "", "state": self.state}
        return hashlib.sha256(json.dumps(packed, sort_keys=True).encode("ascii")).hexdigest()


@dataclass(slots=True, kw_only=True)
class CachedAdvice:
    """One piece of advice that was given.

    Parameters
    ----------
    given_at, shown_at, typed_at
        Readings of a monotonic clock [s]; ``None`` is never.
    environment
        Hash of the known variables; ``None`` when none were known.
    typed
        Arguments that were typed after ``salloc`` or ``srun``.
    pending
        Number of submissions of these arguments that ``job_submit`` has yet to receive.
    timing
        How long it was queued and computed, for the audit log.
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
    pending: int = 0
    timing: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class AdviceCache:
    """The advice of the last minutes.

    Each lookup takes the same time however many entries a user has: slurmctld waits for two of them.

    Parameters
    ----------
    clock
        A monotonic clock [s].
    """

    clock: Callable[[], float]
    max_entries: int = MAX_ENTRIES
    max_age_s: float = MAX_AGE_S
    _entries: OrderedDict[str, CachedAdvice] = field(default_factory=OrderedDict)
    _free: OrderedDict[bytes, tuple[Free, ...]] = field(default_factory=OrderedDict)
    """Sets of free numbers, the latest first, by the digest of the template of their script."""
    _keys: dict[Hashable, dict[str, None]] = field(default_factory=dict)
    """Keys of the entries of a user's script, and of a user's typed commands, each in the order of the answers."""

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, inquiry: Inquiry) -> CachedAdvice | None:
        """Return the advice on this script, or on one that differs only in free numbers, as advice on this one."""
        entry = self._find_fresh(inquiry.key)
        if entry is not None:
            return entry
        text = inquiry.query.text
        for masked in self._mask(text):
            entry = self._find_fresh(inquiry.build_key(masked))
            if entry is not None:
                comment = replace_hash(entry.analysis.comment, short_hash(text))
                result = self._store(inquiry, text, replace(entry.analysis, comment=comment, free=()), {})
                result.given_at = entry.given_at
                return result
        return None

    def find_similar(self, inquiry: Inquiry) -> CachedAdvice | None:
        """Return the latest advice on this user's script whose request does not contradict this one."""
        environment = environment_hash(inquiry.query.request.environment)
        for entry in self._iterate_latest((inquiry.uid, script_hash(inquiry.query.text))):
            if None not in (environment, entry.environment) and environment != entry.environment:
                continue
            if not contradicts(entry.request, inquiry.query.request):
                return entry
        return None

    def find_just_typed(self, uid: int, request: SlurmRequest, words: tuple[str, ...]) -> CachedAdvice | None:
        """Return the advice on what this user has just typed, once for each time it was typed.

        Parameters
        ----------
        words
            The arguments that ``job_submit`` got; up to 22.05 that is one or none, and then only the request is
            compared.
        """
        request = replace(request, arguments=None)
        for entry in self._iterate_latest(uid):
            if entry.typed_at is None or self.clock() - entry.typed_at > TYPED_FOR_S:
                entry.pending = 0
                self._unlist(uid, entry.key)
                continue
            same_words = len(words) <= 1 or words[-len(entry.typed) :] == entry.typed
            if same_words and not contradicts(replace(entry.request, arguments=None), request):
                entry.pending -= 1
                if not entry.pending:
                    self._unlist(uid, entry.key)
                return entry
        return None

    def put(self, inquiry: Inquiry, analysis: Analysis, *, timing: Mapping[str, float] | None = None) -> CachedAdvice:
        """Store one piece of advice, and remove the oldest when there are too many."""
        text = inquiry.query.text
        masked = self._note_free(text, analysis.free)
        if masked is not None:
            self._store(inquiry, masked, analysis, timing or {})
        return self._store(inquiry, text, analysis, timing or {})

    def mark_latest(self, entry: CachedAdvice) -> None:
        """Record that this is now the latest advice to its user on the script."""
        keys = self._keys.get((entry.uid, entry.script), {})
        if entry.key in keys:
            del keys[entry.key]
            keys[entry.key] = None

    def mark_typed(self, entry: CachedAdvice, words: tuple[str, ...]) -> None:
        """Record that a user has just typed this after ``salloc`` or ``srun``, and that its submission will follow."""
        entry.typed_at, entry.typed = self.clock(), words
        entry.pending += 1
        if entry.key in self._entries:
            keys = self._keys.setdefault(entry.uid, {})
            keys.pop(entry.key, None)
            keys[entry.key] = None

    def mark_shown(self, entry: CachedAdvice) -> None:
        """Record that the user has just been shown this."""
        entry.shown_at = self.clock()

    def was_shown(self, entry: CachedAdvice) -> bool:
        """Return whether the user has just been shown this."""
        return entry.shown_at is not None and self.clock() - entry.shown_at <= SHOWN_FOR_S

    def clear(self) -> None:
        """Remove everything: the advice may be out of date."""
        self._entries.clear()
        self._keys.clear()
        self._free.clear()

    def _note_free(self, text: str, free: Free) -> str | None:
        """Store which numbers of a script are free; return it with these masked, ``None`` where there are none."""
        numbered = Numbered.parse(text) if free else None
        if numbered is None:
            return None
        template = text_digest(numbered.template)
        others = (other for other in self._free.pop(template, ()) if other != free)
        self._free[template] = (free, *others)[:MAX_FREE_SETS]
        if len(self._free) > MAX_TEMPLATES:
            self._free.popitem(last=False)
        return numbered.mask(free)

    def _mask(self, text: str) -> Iterator[str]:
        """Yield a script with those numbers masked that were free in another with the same template."""
        numbered = Numbered.parse(text) if self._free else None
        if numbered is not None:
            for free in self._free.get(text_digest(numbered.template), ()):
                yield numbered.mask(free)

    def _find_fresh(self, key: str) -> CachedAdvice | None:
        """Return the entry of a key, unless it is too old."""
        entry = self._entries.get(key)
        if entry is not None and self.clock() - entry.given_at > self.max_age_s:
            self._remove(key)
            return None
        return entry

    def _iterate_latest(self, index: Hashable) -> Iterator[CachedAdvice]:
        """Yield fresh entries that contain advice, the latest first."""
        for key in reversed(tuple(self._keys.get(index, ()))):
            entry = self._find_fresh(key)
            if entry is not None and not entry.analysis.missing_files:
                yield entry

    def _store(self, inquiry: Inquiry, text: str, analysis: Analysis, timing: Mapping[str, float]) -> CachedAdvice:
        """Store one entry, for the script of a question or for that script with masked numbers."""
        request = inquiry.query.request
        key = inquiry.key if text is inquiry.query.text else inquiry.build_key(text)
        self._remove(key)
        entry = CachedAdvice(
            key=key,
            uid=inquiry.uid,
            script=script_hash(text),
            request=replace(request, environment=None),
            analysis=analysis,
            given_at=self.clock(),
            environment=environment_hash(request.environment),
            timing=timing,
        )
        self._entries[key] = entry
        self._keys.setdefault((entry.uid, entry.script), {})[key] = None
        while len(self._entries) > self.max_entries:
            self._remove(next(iter(self._entries)))
        return entry

    def _remove(self, key: str) -> None:
        """Remove an entry and its index entries."""
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


def environment_hash(environment: Mapping[str, str] | None) -> str | None:
    """Return a hash of a job's environment, without the variables that Slurm adds; ``None`` when it is unknown."""
    if environment is None:
        return None
    variables = sorted(
        (name, value) for name, value in environment.items() if not name.startswith(("SLURM_", "SBATCH_"))
    )
    return hashlib.sha256(json.dumps(variables).encode("ascii")).hexdigest()
