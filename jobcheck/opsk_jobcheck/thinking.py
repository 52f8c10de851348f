"""What does the advisor ask of its adviser? The port between the service and the analysis, and the real one behind it.

The analysis is slow beside a socket and works on hostile text, so it runs in processes of its own: see ``worker``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from opsk.config import SiteConfig
from opsk_jobcheck.request import SlurmRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Thought:
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
    quick
        True when only the verdict is wanted: nothing is searched.
    """

    text: str
    file: str
    request: SlurmRequest
    files: Mapping[str, str]
    may_want: bool = False
    quick: bool = False

    def packed(self) -> dict[str, Any]:
        """Return this as JSON values."""
        return asdict(self)

    @classmethod
    def unpacked(cls, document: Mapping[str, Any]) -> Thought:
        """Return what ``packed`` packed."""
        request = dict(document["request"])
        request["arguments"] = tuple(request["arguments"])
        return cls(**{**document, "request": SlurmRequest(**request)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Advised:
    """What came of it; every text is harmless and without prefix.

    Parameters
    ----------
    silent
        No training job, or opted out: nothing is to be said.
    wanted
        Paths whose text would say more; then nothing else is set.
    lines, short_lines, comment
        For the terminal, for a terminal that saw nothing else, and for the job's record.
    """

    silent: bool = False
    wanted: tuple[str, ...] = ()
    verdict: str = ""
    lines: tuple[str, ...] = ()
    short_lines: tuple[str, ...] = ()
    comment: str = ""

    def packed(self) -> dict[str, Any]:
        """Return this as JSON values."""
        return asdict(self)

    @classmethod
    def unpacked(cls, document: Mapping[str, Any]) -> Advised:
        """Return what ``packed`` packed."""
        lists = {name: tuple(document[name]) for name in ("wanted", "lines", "short_lines")}
        return cls(**{**document, **lists})


class Thinker(Protocol):
    """Thinks about scripts; may be slow, may fail."""

    def think(self, thought: Thought) -> Advised:
        """Return what is to be said about one script."""


class SiteThinker:
    """The real analysis for one site: read the script, predict, place, render.

    Raises
    ------
    OpskError
        When the site names a cluster or a fabric that cannot be read.
    """

    def __init__(self, site: SiteConfig) -> None:
        from opsk_jobcheck.site import site_adviser

        self._adviser = site_adviser(site)

    def think(self, thought: Thought) -> Advised:
        """Return the advice; nothing here opens a path that the script names."""
        from opsk_jobcheck.document import record
        from opsk_jobcheck.protocol import MAX_FILES
        from opsk_jobcheck.readers.script import read_script
        from opsk_jobcheck.rendering import lines, short_lines
        from opsk_jobcheck.stored import script_hash

        workload = read_script(thought.text, file=thought.file, request=thought.request, files=thought.files)
        if workload.opted_out or not workload.is_training:
            return Advised(silent=True)
        wanted = tuple(path for path in workload.wanted_files if path not in thought.files)[:MAX_FILES]
        if wanted and thought.may_want:
            return Advised(wanted=wanted)
        adviser = replace(self._adviser, search=False) if thought.quick else self._adviser
        advice = adviser.advise(workload)
        return Advised(
            verdict=str(advice.verdict),
            lines=lines(advice),
            short_lines=short_lines(advice),
            comment=record(advice, script_hash=script_hash(thought.text)[:12]).render(),
        )
