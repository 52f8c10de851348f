"""What does the advisor ask of its adviser? The port between the service and the analysis, and the real one behind it.

The analysis is slow beside a socket and works on hostile text, so it runs in processes of its own: see ``worker``.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from opsk.config import SiteConfig
from opsk.workload.workload import Workload
from opsk_jobcheck.request import SlurmRequest

if TYPE_CHECKING:
    from opsk_jobcheck.advice import Advice
    from opsk_jobcheck.live.handing import LiveReader
    from opsk_jobcheck.told import Told

log = logging.getLogger(__name__)

WARM_UP = (
    "#!/bin/bash\ntorchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py --bf16 --num-layers 24 --hidden-size 2048 "
    "--num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 1 "
    "--global-batch-size 128 --vocab-size 50257 --train-iters 1 --use-distributed-optimizer\n"
)


SLOW_S = 0.05
"""A script whose reading takes longer is not read once more to learn about it."""


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
        """Return this as JSON values."""
        return {**_fields_of(self), "request": _fields_of(self.request)}  # asdict would copy all texts, one by one

    @classmethod
    def unpacked(cls, document: Mapping[str, Any]) -> Thought:
        """Return what ``packed`` packed; what a newer release packed beside it is passed over."""
        request = _known(SlurmRequest, document["request"])
        request["arguments"] = tuple(request["arguments"])
        return cls(**{**_known(cls, document), "request": SlurmRequest(**request)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Advised:
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
        """Return this as JSON values."""
        return _fields_of(self)

    @classmethod
    def unpacked(cls, document: Mapping[str, Any]) -> Advised:
        """Return what ``packed`` packed; what a newer release packed beside it is passed over."""
        lists = {name: tuple(document[name]) for name in ("wanted", "lines", "short_lines", "guessed")}
        lists["free"] = tuple(document.get("free", ()))
        return cls(**{**_known(cls, document), **lists})


def _known(kind: type, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries that this release knows: advisor and workers differ between an upgrade and the restart."""
    return {name: document[name] for name in _names_of(kind) if name in document}


def _fields_of(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name."""
    return {name: getattr(value, name) for name in _names_of(type(value))}


def _names_of(kind: type) -> tuple[str, ...]:
    """Return the names of a dataclass's fields: to ask Python for them takes longer than to read the fields."""
    names = _NAMES.get(kind)
    if names is None:
        names = _NAMES[kind] = tuple(item.name for item in fields(kind))
    return names


_NAMES: dict[type, tuple[str, ...]] = {}


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
        from opsk_jobcheck.kept import Kept
        from opsk_jobcheck.live.handing import LiveReader, fingerprint
        from opsk_jobcheck.live.watching import FOLDER_VARIABLE, is_watched
        from opsk_jobcheck.readers.free_numbers import FreeNumbers
        from opsk_jobcheck.site import site_adviser
        from opsk_jobcheck.told import ToldBefore

        self._is_kept = site.store.url is not None
        folder = os.environ.get(FOLDER_VARIABLE, "") if is_watched(site) else ""
        self._adviser = replace(site_adviser(site, with_wires=bool(folder)), kept=Kept())
        self._told_before = ToldBefore()
        self._free_numbers = FreeNumbers()
        self._live: LiveReader | None = None
        if folder and self._adviser.wires is not None:
            self._live = LiveReader(Path(folder), time.monotonic, fingerprint(self._adviser.wires))
        self._warm_up()

    def _warm_up(self) -> None:
        """Think once about a script of our own: the first user is not to wait for what every process loads once."""
        thought = Thought(text=WARM_UP, file="", request=SlurmRequest(nodes=2, gpus_per_node=8), files={})
        try:
            for quick in (True, False):
                self.think(replace(thought, quick=quick))
        except Exception:
            log.exception("no advice on a script of our own")

    def think(self, thought: Thought) -> Advised:
        """Return the advice; nothing here opens a path that the script names."""
        from opsk_jobcheck.readers.script import read_script

        request = self._on_partition(thought.request)
        read = partial(read_script, thought.text, file=thought.file, request=request, files=thought.files)
        began = time.monotonic()
        workload = read()
        is_slow = thought.is_hurried or time.monotonic() - began > SLOW_S
        free = () if is_slow else self._free(thought, request, workload, read)
        advised = self._advised(thought, workload)
        return replace(advised, free=free) if free else advised

    def _free(
        self, thought: Thought, request: SlurmRequest, workload: Workload, read: Callable[..., Workload]
    ) -> tuple[int, ...]:
        """Return which numbers of the script what was read does not depend on, as far as that is known."""
        from opsk_jobcheck.readers.numbered import Numbered, text_digest

        numbered = Numbered.of(thought.text)
        if numbered is None:
            return ()
        files = tuple((path, text_digest(text)) for path, text in sorted(thought.files.items()))
        context = (thought.file, request, files)
        return self._free_numbers.of(numbered, context, workload, lambda places: read(numbers_at=places))

    def _advised(self, thought: Thought, workload: Workload) -> Advised:
        """Return the advice on what was read."""
        from opsk_jobcheck.live.wanted import ANY_NODES, wanted_nodes
        from opsk_jobcheck.protocol import MAX_FILES
        from opsk_jobcheck.stored import short_hash

        known = {*thought.files, *thought.unread}
        wanted = tuple(path for path in workload.wanted_files if path not in known)[:MAX_FILES]
        if wanted and thought.may_want:
            # a wrapper trains nothing by itself: what it starts or sources may
            return Advised(wanted=wanted)
        if not workload.is_training:
            return Advised(silent=True)
        live = self._live.state() if self._live is not None and not thought.quick else None
        asked = ANY_NODES if thought.quick else wanted_nodes(thought.text, thought.request)

        def worked_out() -> Told:
            searching = replace(self._adviser, search=not thought.quick, live=live, is_hurried=thought.is_hurried)
            return self._told(searching.advise(workload, asked), thought)

        told = self._told_before.get(workload, asked, thought, live, worked_out)
        return told.of_script(short_hash(thought.text))

    def _told(self, advice: Advice, thought: Thought) -> Told:
        from opsk_jobcheck.document import kept_text, record
        from opsk_jobcheck.told import Told

        said = _advised(advice, thought)
        return Told(advised=replace(said, kept=kept_text(advice)) if self._is_kept else said, record=record(advice))

    def _on_partition(self, request: SlurmRequest) -> SlurmRequest:
        """Return a request with the nodes that its partition gives, where it asks for no number and Slurm was asked."""
        live = self._live.state() if self._live is not None and request.is_left_to_partition else None
        return live.with_least_nodes(request, self._adviser.default_partition) if live is not None else request


def _advised(advice: Advice, thought: Thought) -> Advised:
    """Return what is said of one piece of advice, without its record."""
    from opsk_jobcheck.enforcing import memory_guesses, oom_probability, why_oom, would_fit
    from opsk_jobcheck.rendering import lines, per_task, short_lines

    is_array, plain = thought.request.is_array, thought.ascii_only
    told = lines(advice, thought.detail, ascii_only=plain) if not thought.quick else ()
    return Advised(
        opted_out=advice.workload.opted_out,
        verdict=str(advice.verdict),
        is_short=advice.is_short,
        lines=per_task(told, is_array=is_array, ascii_only=plain),
        short_lines=per_task(short_lines(advice, ascii_only=plain), is_array=is_array, ascii_only=plain),
        oom_probability=oom_probability(advice),
        guessed=memory_guesses(advice),
        why=why_oom(advice),
        would_fit=would_fit(advice),
    )
