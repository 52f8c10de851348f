"""Computes the values that follow by arithmetic from a script's settings, once nodes and GPUs are known."""

from __future__ import annotations

import re

from opsk.workload.workload import Problem
from opsk_jobcheck.scripts.bash.values import Text, literal, unknown
from opsk_jobcheck.scripts.sbatch.directives import read_directive_options
from opsk_jobcheck.scripts.sbatch.resources import Resources
from opsk_jobcheck.scripts.settings.deepspeed_config import derive_global_batch
from opsk_jobcheck.scripts.settings.findings import Findings
from opsk_jobcheck.submission.request import SlurmRequest

_BY_OPTION = {
    "gpus": ("SLURM_GPUS", "gpus"),
    "gpus-per-node": ("SLURM_GPUS_PER_NODE", "gpus_per_node"),
    "gpus-per-task": ("SLURM_GPUS_PER_TASK", "gpus_per_task"),
    "ntasks-per-gpu": ("SLURM_NTASKS_PER_GPU", "ntasks_per_gpu"),
}
"""The variables that hold the value of an option, and the attribute of its number, by option."""
_RUNTIME = ("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_PROCID", "SLURM_NODEID")
_RUNTIME_MORE = ("SLURM_LOCALID", "SLURM_SUBMIT_DIR", "SLURM_JOB_NAME", "SLURMD_NODENAME", "SLURM_JOB_PARTITION")
_OF_ARRAYS = tuple(f"SLURM_ARRAY_{name}" for name in ("TASK_ID", "JOB_ID", "TASK_COUNT", "TASK_MIN", "TASK_MAX"))
_NUMBERS = {
    "SLURM_NNODES": "nodes",
    "SLURM_JOB_NUM_NODES": "nodes",
    "SLURM_NTASKS": "ntasks",
    "SLURM_NPROCS": "ntasks",
    "SLURM_NTASKS_PER_NODE": "ntasks_per_node",
    "SLURM_CPUS_PER_TASK": "cpus_per_task",
    "SLURM_GPUS_ON_NODE": "gpus_per_node",
}
"""Variables that are always set, by what they hold."""
_WHEN_IT_RUNS = {
    name: unknown(f"{name} is known only when the job runs", 0, filled=True)
    for name in (*_RUNTIME, *_RUNTIME_MORE, *_OF_ARRAYS)
}
_NOT_FIXED = {
    name: unknown(f"{name} is set by Slurm, and the script does not fix it", 0, filled=True) for name in _NUMBERS
}
_BUT_FOR_ARRAYS = {name: text for name, text in _WHEN_IT_RUNS.items() if name not in _OF_ARRAYS}


def build_slurm_variables(text: str, resources: Resources, request: SlurmRequest | None) -> dict[str, Text]:
    """Return the variables that Slurm sets.

    Parameters
    ----------
    text
        The script, for options that count by their name.
    resources
        What the job will get.
    request
        The request that Slurm received; it overrides the script.
    """
    given = dict(_NOT_FIXED)
    for name, what in _NUMBERS.items():
        if (number := getattr(resources, what)) is not None:
            given[name] = literal(str(number), 0)
    options = read_directive_options(text)
    given |= _build_option_variables(options, resources, request)
    if request is None or not request.is_merged:
        given |= _parse_export(options.get("export", ""))
    is_array = "array" in options or (request is not None and request.is_array)
    return given | (_WHEN_IT_RUNS if is_array else _BUT_FOR_ARRAYS)


def _parse_export(export: str) -> dict[str, Text]:
    """Return the variables that ``--export`` gives a value; a merged request has its own."""
    pairs = (part.strip().partition("=") for part in export.split(",") if "=" in part)
    return {name: literal(value, 0) for name, _, value in pairs if name.isidentifier()}


def _build_option_variables(
    options: dict[str, str], resources: Resources, request: SlurmRequest | None
) -> dict[str, Text]:
    """Return the variables that are there because of an option of the script."""
    given: dict[str, Text] = {}
    for option, (name, attribute) in _BY_OPTION.items():
        number = getattr(resources, attribute)
        if option not in options or number is None:
            continue
        requested = getattr(request, attribute, None)
        if requested is None and request is not None and request.is_merged and hasattr(request, attribute):
            continue  # the line is not in force
        given[name] = literal(options[option].strip() if requested is None else str(number), 0)
    return given


_COUNT = re.compile(r"[0-9]{1,9}")


def derive_values(findings: Findings) -> None:
    """State what follows by arithmetic once nodes and GPUs are known."""
    _derive_virtual_stages(findings)
    gpus, tp, pp = findings.get("plan.gpus"), findings.get("plan.tp"), findings.get("plan.pp")
    cp = findings.get("plan.cp")
    if None in (gpus, tp, pp) or "plan.cp" in findings.unknown:
        return
    per_replica = tp * pp * (cp or 1)
    file, line = findings.find_source("plan.tp", "plan.pp")
    if gpus % per_replica:
        findings.problems.append(
            Problem(
                what=f"{gpus} GPUs are not a multiple of TP {tp} × PP {pp} × CP {cp or 1} = {per_replica}",
                file=file,
                line=line,
                hint="change the node count, TP or PP so that the product divides the GPUs",
            )
        )
        return
    dp = gpus // per_replica
    if (stated := findings.get("plan.dp")) not in (None, dp):
        _report_contradiction(findings, stated, dp, gpus=stated * per_replica)
        return
    if stated is None:
        findings.state("plan.dp", dp, line, f"gpus {gpus} / (tp {tp} × pp {pp} × cp {cp or 1})", file=file)
    derive_global_batch(findings, dp)


def _report_contradiction(findings: Findings, stated: int, dp: int, *, gpus: int) -> None:
    """Report that the data parallelism that is stated is not the one that the GPUs leave."""
    evidence = findings.evidence["plan.dp"]
    what = f"DP {stated} is stated ({evidence.text[:60]}), and the GPUs of the job leave DP {dp}"
    hint = f"ask Slurm for {gpus} GPUs, or make DP {dp}"
    findings.problems.append(Problem(what=what, file=evidence.file, line=evidence.line, hint=hint))


def _derive_virtual_stages(findings: Findings) -> None:
    """State VPP from the number of layers in one chunk."""
    per_chunk = findings.options.get("pipeline.layers_per_chunk", "")
    layers, pp = findings.get("model.layers"), findings.get("plan.pp")
    if not _COUNT.fullmatch(per_chunk) or not int(per_chunk) or not layers or not pp:
        return
    if layers % (pp * int(per_chunk)) == 0:
        file, line = findings.find_source("model.layers")
        findings.state(
            "plan.vpp", layers // pp // int(per_chunk), line, f"{layers} / pp {pp} / {per_chunk} layers", file=file
        )
