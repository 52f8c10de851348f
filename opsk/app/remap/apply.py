"""Applies an option of a remap: asks, writes the journal, and runs its steps."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from opsk.app.remap.inputs import Gathered
from opsk.config import load_site
from opsk.errors import OpskError
from opsk.planning.remap.terms import Terms
from opsk.planning.remap.values import Option
from opsk.remapping.actions import Look
from opsk.remapping.execution import Applied, Cluster, ExecutionContext, execute
from opsk.remapping.journal import FileJournal, Journal, default_folder
from opsk.remapping.preparation import Launcher, begin, launcher_of
from opsk.remapping.running import caller_name, caller_rights, for_whom, is_mine, run_command
from opsk.remapping.world import World
from opsk.slurm.client import SlurmClient
from opsk.slurm.commands.remap_commands import Who
from opsk.text import escape

Ask = Callable[[str], bool]

_log = logging.getLogger("opsk.remap")


def journal_at(folder: Path | None) -> FileJournal:
    """Return the journal of this user, or the one that is named."""
    return FileJournal(folder or default_folder(os.environ))


def told_store(journal: FileJournal, cluster: str, warn: Callable[[str], None] | None = None) -> Journal:
    """Return a journal that tells the store of this site as well, where it has one.

    Parameters
    ----------
    cluster
        Whose job is remapped, as the store calls it.
    warn
        Is told, instead of the log, when the store does not hear of it.
    """
    warn = warn or _warn
    url = load_site().store.url
    if not url:
        return journal
    try:
        # SQL is loaded where there is a store only.
        from opsk.remapping.store_journal import StoreJournal
        from opsk.store.database.engine import open_store
        from opsk.store.writing import DirectWriter

        return StoreJournal(journal, DirectWriter(open_store(url)), cluster or "cluster", warn)
    except OpskError as error:
        warn(f"the store does not know of this remap: {error.message}")
        return journal


def _warn(text: str) -> None:
    _log.warning("%s", escape(text))


def look_of(found: Gathered) -> Look:
    """Return the world as it was when the plan was made."""
    return Look(job=found.job, nodes=found.records)


def build_context(
    journal: Journal,
    cluster: Cluster | None,
    *,
    launcher: Launcher | None = None,
    tell: Callable[[str], None] | None = None,
) -> ExecutionContext:
    """Return what carrying out needs, for the caller of this command."""
    return ExecutionContext(
        journal=journal,
        cluster=cluster,
        run=run_command,
        tell=tell or (lambda line: None),
        owner=launcher.owner if launcher is not None else None,
        launch_files=launcher.files if launcher is not None else {},
        by=caller_name(),
    )


def apply_option(
    option: Option,
    found: Gathered,
    terms: Terms,
    *,
    failed: tuple[str, ...],
    journal: FileJournal,
    slurm: SlurmClient,
    ask: Ask | None,
    world: World | None = None,
    tell: Callable[[str], None] | None = None,
    warn: Callable[[str], None] | None = None,
) -> Applied:
    """Carry an option out as far as the caller may.

    Parameters
    ----------
    ask
        Asks the caller, and says whether to go on; ``None`` goes on.
    world
        What the plan was made from, where that is another moment than now.
    tell, warn
        Get one line a step, and what went wrong beside it.
    """
    rights = caller_rights(found.job, run_command)
    launcher = launcher_of(found.job, found.cluster)
    planned = begin(
        option, terms, failed=failed, look=look_of(found), rights=rights, at_s=time.time(), launcher=launcher,
        world=world, cluster=found.cluster,
    )  # fmt: skip
    if ask is not None and not ask(escape(f"{option.title}: run {len(planned.steps)} commands now?")):
        return _declined(option, rights)
    with journal.held(planned.key):
        kept = told_store(journal, found.cluster, warn)
        kept.begin(planned)
        context = build_context(kept, slurm if found.job is not None else None, launcher=launcher, tell=tell)
        return execute(kept.read(planned.id), context, rights=rights)


def _declined(option: Option, rights: tuple[Who, ...]) -> Applied:
    left = tuple((each.text, "by you" if is_mine(each, rights) else for_whom(each)) for each in option.commands)
    return Applied(kind=option.kind.value, title=option.title, rights=rights, left=left)
