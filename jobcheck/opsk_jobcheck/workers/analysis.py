"""Defines the port between the advisor service and the analysis: requests, results, and the analyzer protocol.

The analysis is slow compared with a socket and works on hostile text, so it runs in processes of its own: see
``worker``. The real one is `SiteAnalyzer`, which only a worker loads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from functools import lru_cache
from typing import Any, Protocol

from opsk_jobcheck.submission.request import SlurmRequest

_LISTS = ("missing_files", "lines", "short_lines", "guessed", "free")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisRequest:
    """A script to analyse.

    Parameters
    ----------
    text, file
        The script, and the name for its lines in the advice.
    request
        The Slurm request.
    files
        Text of the files that it names, by the path as requested before.
    may_want
        True when the client can still fetch files: then missing files are requested instead of ignored.
    unread
        Files that were requested before and could not be fetched: they are not requested again.
    quick
        True when only the verdict is needed: nothing is searched, and only the short lines are rendered.
    is_hurried
        True under load: searches without a cached result are left out.
    detail
        The level of detail that the user requests.
    ascii_only
        The user's terminal shows ASCII alone.
    """

    text: str
    file: str
    request: SlurmRequest
    files: Mapping[str, str]
    may_want: bool = False
    unread: tuple[str, ...] = ()
    quick: bool = False
    is_hurried: bool = False
    detail: str = "default"
    ascii_only: bool = False

    def pack(self) -> dict[str, Any]:
        """Return this as JSON values, without fields that have their defaults."""
        return {
            **_changed_fields(self),
            "request": _changed_fields(self.request),
        }  # asdict would copy all texts, one by one

    @classmethod
    def unpack(cls, document: Mapping[str, Any]) -> AnalysisRequest:
        """Return the request from the result of ``pack``; fields of newer releases are ignored."""
        request = _known_fields(SlurmRequest, document["request"])
        if request.get("arguments") is not None:
            request["arguments"] = tuple(request["arguments"])
        return cls(**{**_known_fields(cls, document), "request": SlurmRequest(**request)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """The result of an analysis; every text is escaped and without prefix.

    Parameters
    ----------
    silent
        No training job: there is no advice.
    opted_out
        The script opts out: there is no advice either, unless the site's policy holds or refuses the job.
    missing_files
        Paths whose text would improve the advice; then no other field is set.
    is_short
        Something was left out because of load: the analysis is repeated once the load is lower.
    lines, short_lines, comment
        For the terminal, for a terminal that showed nothing else, and for the job's record.
    oom_probability
        Probability to run out of memory [ratio]; ``None`` when nothing was predicted.
    guessed
        Inputs of the memory prediction that nobody stated and that may differ: with any of them, nothing is certain.
    why, would_fit
        Why it will run out of memory, and a change after which it would fit; empty where not applicable.
    document
        Where the site has a store: cluster, model and plan as in ``opsk check --json``, as text. With later
        measurements this is a run to calibrate with.
    free
        Numbers of the script that may differ, counted from 0: the advice would be the same, except for the comment.
    """

    silent: bool = False
    opted_out: bool = False
    missing_files: tuple[str, ...] = ()
    verdict: str = ""
    is_short: bool = False
    lines: tuple[str, ...] = ()
    short_lines: tuple[str, ...] = ()
    comment: str = ""
    oom_probability: float | None = None
    guessed: tuple[str, ...] = ()
    why: str = ""
    would_fit: str = ""
    document: str = ""
    free: tuple[int, ...] = ()

    def pack(self) -> dict[str, Any]:
        """Return this as JSON values, without fields that have their defaults."""
        return _changed_fields(self)

    @classmethod
    def unpack(cls, document: Mapping[str, Any]) -> Analysis:
        """Return the analysis from the result of ``pack``; fields of newer releases are ignored."""
        lists = {name: tuple(document[name]) for name in _LISTS if name in document}
        return cls(**{**_known_fields(cls, document), **lists})


def _known_fields(kind: type, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries that this release knows: advisor and workers differ between an upgrade and the restart."""
    return {name: value for name, value in document.items() if name in _DEFAULTS[kind]}


def _changed_fields(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name, without those that have their defaults."""
    defaults = _DEFAULTS[type(value)].items()
    return {name: current for name, default in defaults if (current := getattr(value, name)) != default}


def _read_defaults(kind: type) -> dict[str, Any]:
    """Return the defaults of the fields; required fields have a unique marker."""
    return {
        item.name: item.default if item.default_factory is MISSING else item.default_factory() for item in fields(kind)
    }


_DEFAULTS: dict[type, dict[str, Any]] = {
    kind: _read_defaults(kind) for kind in (SlurmRequest, AnalysisRequest, Analysis)
}
"""Querying the fields from Python takes longer than reading them."""


class Analyzer(Protocol):
    """Analyses scripts; may be slow, may fail."""

    def analyze(self, query: AnalysisRequest) -> Analysis:
        """Return the advice on one script."""


def parse_analysis(document: dict[str, Any]) -> Analysis | None:
    """Return the advice in a worker's answer, ``None`` when there is none."""
    return Analysis.unpack(document["advised"]) if "advised" in document else None


@lru_cache(maxsize=8)
def script_hash(text: str) -> str:
    """Return the SHA-256 of a script, in hex; trailing blank lines are ignored (``--wrap`` adds one)."""
    return hashlib.sha256(text.rstrip("\n").encode("utf-8", errors="surrogatepass")).hexdigest()


def short_hash(text: str) -> str:
    """Return the part of `script_hash` that a job's record holds."""
    return script_hash(text)[:12]
