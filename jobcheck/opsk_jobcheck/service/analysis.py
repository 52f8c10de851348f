"""What does the advisor ask of its adviser? The port between the service and the analysis.

The analysis is slow beside a socket and works on hostile text, so it runs in processes of its own: see ``worker``. The
real one is `SiteAnalyzer`, which nobody but a worker loads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, Protocol

from opsk_jobcheck.submission.request import SlurmRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysisRequest:
    """A script to think about.

    Parameters
    ----------
    text, file
        The script and how its lines are to be cited.
    request
        What was asked of Slurm.
    files
        Text of the files that it names, by the path as wanted before.
    may_want
        True when somebody can still fetch files: then wanted ones are named instead of doing without them.
    unread
        Files that were wanted before and could not be fetched: they are not wanted again.
    quick
        True when only the verdict is wanted: nothing is searched, and only the short lines are written.
    is_hurried
        True while many wait: what was not searched for before is left out.
    detail
        How much the user wants to read.
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

    def packed(self) -> dict[str, Any]:
        """Return this as JSON values, without what is as it is unless said."""
        return {**_stated(self), "request": _stated(self.request)}  # asdict would copy all texts, one by one

    @classmethod
    def unpacked(cls, document: Mapping[str, Any]) -> AnalysisRequest:
        """Return what ``packed`` packed; what a newer release packed beside it is passed over."""
        request = _known(SlurmRequest, document["request"])
        if request.get("arguments") is not None:
            request["arguments"] = tuple(request["arguments"])
        return cls(**{**_known(cls, document), "request": SlurmRequest(**request)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """What came of it; every text is harmless and without prefix.

    Parameters
    ----------
    silent
        No training job: nothing is to be said.
    opted_out
        The script says so: nothing is to be said either, unless the site's policy holds or refuses the job.
    wanted
        Paths whose text would say more; then nothing else is set.
    is_short
        Something was left out because many wait: once fewer do, it is thought about anew.
    lines, short_lines, comment
        For the terminal, for a terminal that saw nothing else, and for the job's record.
    oom_probability
        Probability to run out of memory [ratio]; ``None`` when nothing was predicted.
    guessed
        Inputs of the memory that nobody stated and that may be otherwise: with any of them, nothing is certain.
    why, would_fit
        Why it will run out of memory, and a change after which it would fit; empty where there is nothing to say.
    kept
        Where the site has a store: cluster, model and plan as ``opsk check --json`` tells them, as text. With what is
        measured later this is a run to calibrate with.
    free
        Which numbers of the script may be others, counted from 0: the same would be said, but for the comment.
    """

    silent: bool = False
    opted_out: bool = False
    wanted: tuple[str, ...] = ()
    verdict: str = ""
    is_short: bool = False
    lines: tuple[str, ...] = ()
    short_lines: tuple[str, ...] = ()
    comment: str = ""
    oom_probability: float | None = None
    guessed: tuple[str, ...] = ()
    why: str = ""
    would_fit: str = ""
    kept: str = ""
    free: tuple[int, ...] = ()

    def packed(self) -> dict[str, Any]:
        """Return this as JSON values, without what is as it is unless said."""
        return _stated(self)

    @classmethod
    def unpacked(cls, document: Mapping[str, Any]) -> Analysis:
        """Return what ``packed`` packed; what a newer release packed beside it is passed over."""
        lists = {name: tuple(document[name]) for name in _LISTS if name in document}
        return cls(**{**_known(cls, document), **lists})


def _known(kind: type, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries that this release knows: advisor and workers differ between an upgrade and the restart."""
    return {name: value for name, value in document.items() if name in _DEFAULTS[kind]}


def _stated(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name, those that are as they are unless said left out."""
    defaults = _DEFAULTS[type(value)].items()
    return {name: own for name, default in defaults if (own := getattr(value, name)) != default}


def _defaults_of(kind: type) -> dict[str, Any]:
    """Return what fields are unless said; those that have to be said are like nothing else."""
    return {
        item.name: item.default if item.default_factory is MISSING else item.default_factory() for item in fields(kind)
    }


_DEFAULTS: dict[type, dict[str, Any]] = {kind: _defaults_of(kind) for kind in (SlurmRequest, AnalysisRequest, Analysis)}
"""To ask Python for the fields takes longer than to read them."""
_LISTS = ("wanted", "lines", "short_lines", "guessed", "free")


class Analyzer(Protocol):
    """Thinks about scripts; may be slow, may fail."""

    def analyze(self, query: AnalysisRequest) -> Analysis:
        """Return what is to be said about one script."""
