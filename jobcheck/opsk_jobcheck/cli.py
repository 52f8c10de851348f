"""Implements ``opsk check``, which prints the advice of ``sbatch`` without submitting."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import click

from opsk.config import SiteConfig, load_site
from opsk.errors import ExitStatus, InputError, OpskError
from opsk.slurm.adapter import slurm_client
from opsk.text import escape, format_json
from opsk.units import MIB
from opsk.workload.advice_record import Verdict
from opsk.workload.defaults import Assumption
from opsk.workload.workload import Problem, Workload
from opsk_jobcheck.advice.advice import Advice
from opsk_jobcheck.advice.adviser import Adviser, build_site_adviser
from opsk_jobcheck.advice.rendering.document import document
from opsk_jobcheck.advice.rendering.terminal import Detail, is_ascii_only, lines, mark_array_task, parse_detail
from opsk_jobcheck.cluster_state.node_constraints import parse_node_constraints
from opsk_jobcheck.named_files import NamedFiles, read_regular
from opsk_jobcheck.scripts.plain_submission import is_complete
from opsk_jobcheck.scripts.sbatch.directives import read_directive_options
from opsk_jobcheck.scripts.sbatch.resources import build_typed_request
from opsk_jobcheck.scripts.script import read_script
from opsk_jobcheck.submission.request import SlurmRequest
from opsk_jobcheck.workers.watcher import add_live_state

MAX_SCRIPT_BYTES = 4 * MIB
"""Slurm's own default limit (``MaxScriptSize`` of slurm.conf, 4 MiB): nothing larger can be submitted."""
MAX_NAMED_FILES = 24
"""Files that are read at the most; of a module, several paths are tried."""
MAX_TRIED_PATHS = 72

NOTHING_TO_SAY = "nothing to say on this job: sbatch would print no advice (--detail long lists why)"

MARKS = {"✗": "red", "NO:": "red", "✓": "green", "ok:": "green", "!": "yellow", "?": "yellow"}


@click.command()
@click.argument("script", type=click.Path(path_type=Path, readable=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--cluster", metavar="NAME|FILE", help="Catalogue name of the cluster, or a cluster TOML.")
@click.option("--fabric", type=click.Path(path_type=Path), help="ibnetdiscover dump of the compute fabric.")
@click.option("--nodes", "-N", type=click.IntRange(min=1), help="Number of nodes, instead of the script's.")
@click.option("--sbatch", "options", metavar="OPTIONS", default="", help="More options for sbatch.")
@click.option(
    "--detail",
    type=click.Choice([entry.value for entry in Detail]),
    help="Everything (long) or two lines (short); the default is OPSK_ADVICE, else six lines.",
)
@click.option("--live", is_flag=True, help="Ask Slurm which nodes are free and which jobs share their links.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def check(
    script: Path,
    arguments: tuple[str, ...],
    cluster: str | None,
    fabric: Path | None,
    nodes: int | None,
    options: str,
    detail: str | None,
    *,
    live: bool,
    as_json: bool,
) -> int:
    """Read an sbatch SCRIPT and print the advice that sbatch would print.

    The script is read, never run. ARGUMENTS become $1, $2, ... of the script; put "--" before them where they are
    flags. Without ARGUMENTS, values that depend on them are unknown.
    As for sbatch, options beat its environment variables (SBATCH_PARTITION, ...), and both beat the script.
    Exit status: 0 fits, tight or unknown; 1 will run out of memory; 2 the script cannot be read.
    """
    site = load_site()
    adviser = build_site_adviser(site, cluster=cluster, fabric=(fabric,) if fabric else (), with_fabric_links=live)
    request = build_typed_request(_split_options(options), os.environ, nodes=nodes, arguments=arguments or None)
    if live:
        adviser = _add_live(adviser, site)
    if adviser.live is not None:
        request = adviser.live.fill_default_time(request, adviser.default_partition)
    workload, is_readable = read_with_files(script, request)
    advice = adviser.advise(workload, parse_node_constraints(_read_text(script), request))
    if not arguments and workload.is_training and advice.verdict is Verdict.UNKNOWN:
        advice = _advise_plain(script, request, adviser) or advice
    if as_json:
        click.echo(format_json(document(advice)))
    elif is_readable:
        detail_level = Detail(detail) if detail else parse_detail(os.environ)
        is_array = request.is_array or "array" in read_directive_options(
            _read_text(script).decode("utf-8", errors="replace")
        )
        for line in _render(advice, detail_level, is_array=is_array, ascii_only=_shows_ascii_only()):
            colour = next((colour for mark, colour in MARKS.items() if f" {mark} " in f" {line}"), None)
            click.secho(line, fg=colour, color=_has_colour())
    if not is_readable:
        problem = workload.problems[0]
        click.echo(f"opsk: {problem.file}: {problem.what}{'; ' if problem.hint else ''}{problem.hint}", err=True)
        return int(ExitStatus.USAGE)
    is_bad = advice.verdict is Verdict.OOM and not workload.opted_out
    return int(ExitStatus.BAD_NEWS if is_bad else ExitStatus.ANSWER)


def _advise_plain(script: Path, request: SlurmRequest, adviser: Adviser) -> Advice | None:
    """Return the advice on a script that is submitted as it is; ``None`` where that gives no verdict either.

    ``sbatch`` without arguments passes none, and the variables of the user's shell.
    """
    text = _read_text(script)
    if not is_complete(text.decode("utf-8", errors="replace")):
        return None
    plain = replace(request, arguments=(), environment=dict(os.environ))
    workload, _ = read_with_files(script, plain)
    advice = adviser.advise(workload, parse_node_constraints(text, plain))
    if advice.verdict is Verdict.UNKNOWN:
        return None
    why = "submitted as it is, the script takes the values that it has itself"
    return replace(advice, assumed=(Assumption(field="arguments", value="not given", why=why), *advice.assumed))


def _split_options(options: str) -> list[str]:
    """Return options split as a shell would.

    Raises
    ------
    InputError
        When a quote is not closed.
    """
    try:
        return shlex.split(options)
    except ValueError as error:
        raise InputError(f"--sbatch: {error}", hint="write it as one word: --sbatch '--nodes=4 --gpus=32'") from error


def _render(advice: Advice, detail: Detail, *, is_array: bool, ascii_only: bool) -> tuple[str, ...]:
    """Return the lines for the user: the advice, or why there is none."""
    if advice.workload.opted_out:
        return ("the script says #OPSK off: sbatch would print no advice",)
    if not advice.workload.is_training and advice.serving is None:
        return ("no training job that opsk knows: sbatch would print no advice",)
    rows = lines(advice, detail, ascii_only=ascii_only)
    if not rows:
        return (NOTHING_TO_SAY,)
    return mark_array_task(rows, is_array=is_array, ascii_only=ascii_only)


def _has_colour() -> bool:
    """Return whether stdout is a terminal that shows colours, and whose user allows them."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")


def _shows_ascii_only() -> bool:
    """Return whether characters other than ASCII would be lost on stdout."""
    encoding = (sys.stdout.encoding or "utf-8").lower().replace("-", "")
    return encoding != "utf8" or is_ascii_only(os.environ)


def _add_live(adviser: Adviser, site: SiteConfig) -> Adviser:
    """Return the adviser with the live state; unchanged, with a message on stderr, where Slurm does not answer."""
    try:
        return add_live_state(site, adviser, slurm_client())
    except OpskError as error:
        click.echo(f"opsk: the nodes that are free now are not known: {escape(error.message)}", err=True)
        return adviser


def _read_text(script: Path) -> bytes:
    """Return the script again; empty where it cannot be read, which was reported before."""
    try:
        return read_regular(script, limit_bytes=MAX_SCRIPT_BYTES)
    except InputError:
        return b""


def read_with_files(script: Path, request: SlurmRequest) -> tuple[Workload, bool]:
    """Read a script, and again with the text of the files that it names, as the user who runs this command.

    Returns the workload, and whether the script could be read at all; if not, its one problem says why.
    """
    name = escape(str(script))
    try:
        text = read_regular(script, limit_bytes=MAX_SCRIPT_BYTES)
    except InputError as error:
        problem = Problem(what=error.message.removeprefix(f"{name}: "), file=name, hint=error.hint)
        return Workload(framework=None, is_training=False, problems=(problem,)), False
    workload = read_script(text, file=name, request=request)
    if b"\0" in text:
        return workload, False
    files: dict[str, str] = {}
    requested: set[str] = set()
    folders = NamedFiles(script=script)
    while len(files) < MAX_NAMED_FILES and (
        missing := [path for path in workload.missing_files if path not in requested][
            : MAX_TRIED_PATHS - len(requested)
        ]
    ):
        requested |= set(missing)
        texts = {path: content for path in missing if (content := folders.read(path)) is not None}
        files |= texts  # a second script names a configuration file, which names another
        unread = requested - files.keys()
        workload = read_script(text, file=name, request=request, files=files, unread=unread)
    return workload, True
