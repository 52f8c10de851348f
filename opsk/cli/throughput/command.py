"""Implements ``opsk throughput``: reads the progress and speed of a training job from its logs."""

from __future__ import annotations

from pathlib import Path

import click

from opsk.cli.document import echo_json
from opsk.cli.throughput.document import build_throughput_document
from opsk.cli.throughput.follow import follow as follow_logs
from opsk.cli.throughput.text import print_throughput
from opsk.errors import ExitStatus, InputError
from opsk.telemetry.progress.runs import Log, merge_logs, read_log
from opsk.text import escape


@click.command()
@click.argument("logs", nargs=-1, required=True, metavar="LOG...")
@click.option(
    "--skip-warmup/--no-skip-warmup",
    default=True,
    show_default=True,
    help="Leave the warm-up of each start out of the medians: its first record, and slow ones right after it.",
)
@click.option(
    "--sequence",
    type=click.FloatRange(min=1),
    metavar="TOKENS",
    help="Tokens of a sample, where the log does not say: gives tokens/s of frameworks that count samples.",
)
@click.option(
    "--gpus",
    type=click.FloatRange(min=1),
    metavar="N",
    help="GPUs of the job, where the log does not say: gives rates of one GPU from those of the job, and back.",
)
@click.option(
    "--follow",
    is_flag=True,
    help="Go on as the logs grow, a line a step, until interrupted; with --json one JSON object a line.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def throughput(
    logs: tuple[str, ...],
    *,
    skip_warmup: bool,
    sequence: float | None,
    gpus: float | None,
    follow: bool,
    as_json: bool,
) -> int:
    """Say how far and how fast a training job is, by the progress lines in its logs.

    Megatron-LM and its forks, NeMo, torchtitan, DeepSpeed, HuggingFace's Trainer and what is built on it, Composer,
    nanotron, OLMo, torchtune, LitGPT, progress bars, and others (docs/reference/progress-lines.md). Several logs are
    those of the ranks of one run, or of its starts one after another. They may be compressed; - is standard input.

    Medians are of the steady state: without the first record of each start. What is computed, not printed, is said.

    With --follow steps are printed as they come (as JSON those too that the log has already); a log may be rotated,
    truncated, or come into being later. It takes less than 1 % of a core. Ctrl-C ends it and sums up.

    Exit status: 0 an answer, no progress lines too; 1 the last loss is no number; 2 no log can be read.
    """
    if follow:
        return follow_logs([Path(name) for name in logs], as_json=as_json, sequence_tokens=sequence, gpus=gpus)
    read: list[Log] = []
    unread: list[tuple[str, InputError]] = []
    for name in logs:
        try:
            read.append(read_log(Path(name), sequence_tokens=sequence, gpus=gpus))
        except InputError as error:
            unread.append((name, error))
    if not read:
        raise InputError("; ".join(why.message for _, why in unread), hint=unread[0][1].hint)
    run = merge_logs([*read, *(Log(file=name, problem=why.message) for name, why in unread)])
    document = build_throughput_document(run, skip_warm_up=skip_warmup)
    if as_json:
        for _, why in unread:
            click.echo(f"opsk: {escape(why.message)}", err=True)
        echo_json(document)
    else:
        print_throughput(document, run)
    return ExitStatus.BAD_NEWS if document["loss"]["finite"] is False else ExitStatus.ANSWER
