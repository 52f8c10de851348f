"""The commands ``opsk check`` and ``opsk advisor``."""

from __future__ import annotations

import stat
from pathlib import Path

import click

from opsk.cli.document import echo_json, harmless
from opsk.config import load_site
from opsk.errors import ExitStatus, InputError
from opsk.workload.advice_record import Verdict
from opsk.workload.workload import Workload
from opsk_jobcheck.document import document
from opsk_jobcheck.readers.script import read_script
from opsk_jobcheck.rendering import lines
from opsk_jobcheck.request import SlurmRequest
from opsk_jobcheck.site import site_adviser

MAX_SCRIPT_BYTES = 4 << 20
"""Slurm's own default limit (``MaxScriptSize`` of slurm.conf, 4 MiB): nothing larger can be submitted."""
MAX_NAMED_FILE_BYTES = 256 << 10
MAX_NAMED_FILES = 8

MARKS = {"✗": "red", "✓": "green", "!": "yellow", "?": "yellow"}


@click.command()
@click.argument("script", type=click.Path(path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--cluster", metavar="NAME|FILE", help="Catalogue name of the cluster, or a cluster TOML.")
@click.option("--fabric", type=click.Path(path_type=Path), help="ibnetdiscover dump of the compute fabric.")
@click.option("--nodes", "-N", type=click.IntRange(min=1), help="Number of nodes, instead of the script's.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def check(
    script: Path,
    arguments: tuple[str, ...],
    cluster: str | None,
    fabric: Path | None,
    nodes: int | None,
    *,
    as_json: bool,
) -> int:
    """Read an sbatch SCRIPT and print the advice that sbatch would print.

    The script is read, never run. ARGUMENTS are what the script would get as $1, $2, ...
    Exit status: 0 fits, tight or unknown; 1 will run out of memory; 2 the script cannot be read.
    """
    adviser = site_adviser(load_site(), cluster=cluster, fabric=(fabric,) if fabric else ())
    request = SlurmRequest(nodes=nodes, arguments=arguments)
    advice = adviser.advise(read_with_files(script, request))
    if as_json:
        echo_json(document(advice))
    else:
        for line in lines(advice):
            colour = next((colour for mark, colour in MARKS.items() if f" {mark} " in f" {line}"), None)
            click.secho(line, fg=colour)
    return int(ExitStatus.BAD_NEWS if advice.verdict is Verdict.OOM else ExitStatus.ANSWER)


@click.command()
@click.option("--config", type=click.Path(path_type=Path), help="Site configuration instead of /etc/opsk/opsk.toml.")
def advisor(config: Path | None) -> None:
    """Run the advisor that answers the submit hooks, until it is told to stop."""
    from opsk_jobcheck.service import serve

    serve(load_site(config))


def read_with_files(script: Path, request: SlurmRequest) -> Workload:
    """Read a script, and once more with the text of the files that it names, as the user who runs this command."""
    text = read_regular(script, limit_bytes=MAX_SCRIPT_BYTES)
    workload = read_script(text, file=str(script), request=request)
    files: dict[str, str] = {}
    for name in workload.wanted_files[:MAX_NAMED_FILES]:
        path = Path(name) if name.startswith("/") else script.resolve().parent / name
        try:
            files[name] = read_regular(path, limit_bytes=MAX_NAMED_FILE_BYTES).decode("utf-8", errors="replace")
        except InputError:
            continue
    return read_script(text, file=str(script), request=request, files=files) if files else workload


def read_regular(path: Path, *, limit_bytes: int) -> bytes:
    """Return the bytes of a regular file.

    Raises
    ------
    InputError
        For anything that is no regular file, is too large, or may not be read.
    """
    try:
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode):
            raise InputError(f"{harmless(str(path))}: not a regular file", hint="name the script that sbatch gets")
        if facts.st_size > limit_bytes:
            raise InputError(
                f"{harmless(str(path))}: {facts.st_size} bytes, more than the {limit_bytes} that Slurm takes",
                hint="sbatch would refuse it too; see MaxScriptSize in slurm.conf",
            )
        return path.read_bytes()
    except OSError as error:
        raise InputError(
            f"{harmless(str(path))}: {error.strerror}", hint="check the name and the permissions"
        ) from error
