"""States how many GPUs train where an inference engine has GPUs of its own beside a training.

TRL before 0.16 starts vLLM on the GPU after the last one that trains (``vllm_device`` of
``trl/trainer/grpo_config.py``), as ms-swift before 3.5 did; later ones, and other scripts, start a server in the
background.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from opsk.workload import roles
from opsk_jobcheck.scripts.bash.values import Invocation, Scalar
from opsk_jobcheck.scripts.launchers.programs import find_program, list_base_names
from opsk_jobcheck.scripts.launchers.ranks import DISAGREE, VISIBLE
from opsk_jobcheck.scripts.launchers.ranks import OPTION as RANKS
from opsk_jobcheck.scripts.settings.findings import Findings

_SERVERS = re.compile(
    r"(vllm|sglang|swift) (serve|deploy|rollout)|trl vllm-serve(-\w+)?|lmdeploy serve|trtllm-serve .*|ollama serve"
)
"""Two words that start a server: documentation of vLLM, SGLang, TRL, ms-swift, LMDeploy, TensorRT-LLM and Ollama."""
_MODULES = re.compile(
    r"vllm\.entrypoints\.(openai\.)?api_server|sglang\.launch_server|(.*/)?sglang/launch_server\.py"
    r"|trl\.scripts\.vllm_serve\w*|(.*/)?vllm_serve\w*\.py|(.*/)?start_vllm\w*\.py"
)
_APART = (roles.WeightPlace.PERHAPS, roles.WeightPlace.OTHER_GPUS)
MAX_NAME = 512


def set_engine_apart(commands: Sequence[Invocation], command: Invocation, findings: Findings) -> bool:
    """State the GPUs that train where an engine has the others; return whether one has.

    The launcher's ranks are then fewer than the GPUs, and none of them is idle. Where their number is not known, the
    replicas are not either.

    Parameters
    ----------
    commands
        All commands of the script.
    command
        The one that trains.
    """
    gpus, ranks = findings.get("plan.gpus") or 0, _count_ranks(findings)
    server = next((entry for entry in commands if entry is not command and is_server(entry)), None)
    is_apart = findings.options.get(roles.ENGINE_PLACE) in _APART
    if gpus < 2 or not (is_apart or server or _has_other_gpus(commands, command)):
        return False
    if 0 < ranks < gpus:
        findings.options[roles.ENGINE_GPUS] = str(gpus - ranks)
        _limit_to_ranks(findings, ranks)
        return True
    if server is None:
        return False
    findings.mark_unknown("plan.dp", "an engine that the script starts takes some of the GPUs", server.line)
    findings.options.pop(RANKS, None)
    return True


def is_server(invocation: Invocation) -> bool:
    """Return whether a command starts an engine's server."""
    if any(
        _SERVERS.fullmatch(f"{first} {second}") for first, second in pairwise(list_base_names(invocation)[:MAX_NAME])
    ):
        return True
    program = find_program(invocation)
    return program is not None and len(program.name) <= MAX_NAME and _MODULES.fullmatch(program.name) is not None


def _has_other_gpus(commands: Sequence[Invocation], command: Invocation) -> bool:
    """Return whether ``CUDA_VISIBLE_DEVICES`` gives another command GPUs that the one that trains does not see."""
    own = _list_visible(command)
    return bool(own) and any(other and not own & other for other in map(_list_visible, commands))


def _list_visible(invocation: Invocation) -> frozenset[str]:
    """Return the GPUs that a command's own ``CUDA_VISIBLE_DEVICES`` lists; none where it is not given or not known."""
    variable = invocation.facts.get("assigned", {}).get(VISIBLE)
    known = variable.text.known if isinstance(variable, Scalar) else None
    return frozenset(part.strip() for part in (known or "").split(",") if part.strip())


def _count_ranks(findings: Findings) -> int:
    """Return how many ranks the launcher starts, 0 where that is not known."""
    stated = findings.options.get(RANKS, "")
    if stated.isdigit():
        return int(stated)
    sizes = [findings.get(f"plan.{name}") for name in ("dp", "tp", "pp")]
    return sizes[0] * sizes[1] * sizes[2] * (findings.get("plan.cp") or 1) if all(sizes) else 0


def _limit_to_ranks(findings: Findings, ranks: int) -> None:
    """State that so many GPUs train: on fewer nodes where whole ones serve, else on a part of each node."""
    nodes, per_node = findings.get("plan.nodes"), findings.get("plan.gpus_per_node")
    file, line = findings.find_source("plan.dp", "plan.tp")
    text = f"{ranks} ranks train: the other GPUs are the engine's"
    findings.state("plan.gpus", ranks, line, text, file=file or findings.file)
    if per_node and ranks % per_node == 0:
        findings.state("plan.nodes", ranks // per_node, line, text, file=file or findings.file)
    elif nodes and ranks % nodes == 0:
        findings.state("plan.gpus_per_node", ranks // nodes, line, text, file=file or findings.file)
    else:
        for name in ("plan.nodes", "plan.gpus_per_node"):
            findings.values.pop(name, None)
    findings.options.pop(RANKS, None)
    if findings.options.get(roles.ENGINE_PLACE):
        findings.options[roles.ENGINE_PLACE] = roles.WeightPlace.OTHER_GPUS.value
    findings.problems[:] = [problem for problem in findings.problems if DISAGREE not in problem.what]
