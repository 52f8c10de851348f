"""How many ranks a launcher starts, from its own flags alone."""

from __future__ import annotations

import pytest

from opsk_jobcheck.scripts.bash.values import literal, unknown
from opsk_jobcheck.scripts.launchers.ranks import OPTION, read_ranks
from opsk_jobcheck.scripts.settings.arguments import parse_arguments
from opsk_jobcheck.scripts.settings.findings import Findings


@pytest.mark.parametrize(
    ("command", "nodes", "ranks"),
    [
        ("torchrun --nnodes 4 --nproc_per_node 8 train.py", 4, "32"),
        ("torchrun --nnodes=2 --nproc-per-node=4 train.py", 4, "8"),
        ("accelerate launch --num_processes 16 --num_machines 2 train.py", 2, "16"),
        ("deepspeed --num_gpus 8 train.py", 1, "8"),
        ("torchrun --nproc_per_node 8 train.py", 4, None),
        ("torchrun --nnodes 1:4 --nproc_per_node 8 train.py", 4, None),
        ("torchrun --nnodes 1:4 --nproc_per_node 8 train.py", 1, None),
        ("torchrun --nnodes 4 --nproc_per_node gpu train.py", 4, None),
        ("srun python train.py", 4, None),
    ],
)
def test_ranks_are_those_of_the_flags(command: str, nodes: int, ranks: str | None) -> None:
    findings = Findings("job.sh")
    findings.values["plan.nodes"] = nodes
    read_ranks(parse_arguments([literal(word, 1) for word in command.split()]), findings)
    assert findings.options.get(OPTION) == ranks


def test_what_is_known_only_later_states_nothing() -> None:
    findings = Findings("job.sh")
    words = [literal("--nnodes", 1), unknown("N is known only when the job runs", 1), literal("--nproc_per_node=8", 1)]
    read_ranks(parse_arguments(words), findings)
    assert OPTION not in findings.options
