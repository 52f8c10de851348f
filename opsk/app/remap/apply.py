"""Applies an option of a remap: asks for confirmation, writes the journal, and runs the steps."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from opsk.app.remap.inputs import RemapInputs
from opsk.config import load_site
from opsk.errors import OpskError
from opsk.planning.remap.values import Option, Terms
from opsk.remapping.cluster_state import ClusterState, Preconditions
from opsk.remapping.commands import find_caller_name, find_caller_rights, format_executor, is_allowed, run_command
from opsk.remapping.execution import Cluster, ExecutionContext, ExecutionResult, execute
from opsk.remapping.journal import FileJournal, Journal, default_folder
from opsk.remapping.preparation import RunningLauncher, find_launcher, prepare_remap
from opsk.slurm.client import SlurmClient
from opsk.slurm.commands.remap_commands import Who
from opsk.text import escape

Ask = Callable[[str], bool]

_log = logging.getLogger("opsk.remap")


def open_journal(folder: Path | None) -> FileJournal:
    """Return the journal of this user, or the named one."""
    return FileJournal(folder or default_folder(os.environ))


def attach_store(journal: FileJournal, cluster: str, warn: Callable[[str], None] | None = None) -> Journal:
    """Return a journal that also writes to the site's store, where it has one.

    Parameters
    ----------
    cluster
        Cluster of the job, as the store names it.
    warn
        Receives a warning, instead of the log, when the store cannot be written.
    """
    warn = warn or _warn
    url = load_site().store.url
    if not url:
        return journal
    try:
        # SQL is imported only where there is a store.
        from opsk.remapping.store_journal import StoreJournal
        from opsk.store.database.engine import open_store
        from opsk.store.writing import DirectWriter

        return StoreJournal(journal, DirectWriter(open_store(url)), cluster or "cluster", warn)
    except OpskError as error:
        warn(f"the store does not know of this remap: {error.message}")
        return journal


def _warn(text: str) -> None:
    _log.warning("%s", escape(text))


def build_cluster_state(inputs: RemapInputs) -> ClusterState:
    """Return the cluster state from which the plan was made."""
    return ClusterState(job=inputs.job, nodes=inputs.records)


def build_context(
    journal: Journal,
    cluster: Cluster | None,
    *,
    launcher: RunningLauncher | None = None,
    report: Callable[[str], None] | None = None,
) -> ExecutionContext:
    """Return the execution context for the caller of this command."""
    return ExecutionContext(
        journal=journal,
        cluster=cluster,
        run=run_command,
        report=report or (lambda line: None),
        owner=launcher.owner if launcher is not None else None,
        launch_files=launcher.files if launcher is not None else {},
        by=find_caller_name(),
    )


def apply_option(
    option: Option,
    inputs: RemapInputs,
    terms: Terms,
    *,
    failed: tuple[str, ...],
    journal: FileJournal,
    slurm: SlurmClient,
    ask: Ask | None,
    world: Preconditions | None = None,
    report: Callable[[str], None] | None = None,
    warn: Callable[[str], None] | None = None,
) -> ExecutionResult:
    """Execute an option as far as the caller's rights allow.

    Parameters
    ----------
    ask
        Asks the caller for confirmation; ``None`` skips it.
    world
        Preconditions of the plan, where it was made earlier.
    report, warn
        Receive one line per step, and warnings.
    """
    rights = find_caller_rights(inputs.job, run_command)
    launcher = find_launcher(inputs.job, inputs.cluster)
    planned = prepare_remap(
        option, terms, failed=failed, state=build_cluster_state(inputs), rights=rights, at_s=time.time(),
        launcher=launcher, world=world, cluster=inputs.cluster,
    )  # fmt: skip
    if ask is not None and not ask(escape(f"{option.title}: run {len(planned.steps)} commands now?")):
        return _build_declined(option, rights)
    with journal.lock(planned.key):
        store_journal = attach_store(journal, inputs.cluster, warn)
        store_journal.begin(planned)
        context = build_context(
            store_journal, slurm if inputs.job is not None else None, launcher=launcher, report=report
        )
        return execute(store_journal.read(planned.id), context, rights=rights)


def _build_declined(option: Option, rights: tuple[Who, ...]) -> ExecutionResult:
    left = tuple(
        (command.text, "by you" if is_allowed(command, rights) else format_executor(command))
        for command in option.commands
    )
    return ExecutionResult(kind=option.kind.value, title=option.title, rights=rights, left=left)
