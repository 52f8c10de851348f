"""What launch scripts of BioNeMo say: Megatron's flags, and what its programs have fixed in Python."""

from __future__ import annotations

import pytest

from opsk.workload.completion import complete
from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.script import read_script
from tests.fakes.workloads import evidence

HEAD = "#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=8\n"
ESM2_650M = (
    "--num-layers 33 --hidden-size 1280 --num-attention-heads 20 --max-seq-length 1024 --micro-batch-size 2 "
    "--precision=bf16-mixed"
)


def read(program: str, flags: str = ESM2_650M) -> Workload:
    """Read a script that starts one program."""
    return read_script(f"{HEAD}srun python3 {program} {flags}\n", file="job.sh")


@pytest.mark.parametrize(
    ("program", "is_gated"),
    [
        ("/opt/bionemo2/esm2/train_esm2.py", False),
        ("sub-packages/bionemo-esm2/src/bionemo/esm2/scripts/train_esm2.py", False),
        ("-m bionemo.esm2.scripts.train_esm2", False),
        ("/workspace/bionemo2/geneformer/scripts/train_geneformer.py", False),
        ("/workspace/bionemo2/amplify/train_amplify.py", True),
        ("/workspace/bionemo2/evo2/run/train.py", None),
    ],
)
def test_a_program_decides_whether_its_mlp_is_gated(program: str, is_gated: bool | None) -> None:
    """BioNeMo's ``ESM2GenericConfig`` has ``F.gelu`` and leaves Megatron Core's ``gated_linear_unit`` off."""
    workload = read(program)
    assert (workload.framework, workload.model.gated_mlp) == ("bionemo", is_gated)


def test_esm2_has_the_parameters_that_its_name_says() -> None:
    """33 layers of 4 h² + 8 h² are 649 million without biases and norms; a third matrix in the MLP adds 216 million."""
    workload = read("/opt/bionemo2/esm2/train_esm2.py")
    completion = complete(workload)
    assert completion.model is not None
    model = completion.model
    assert (workload.model.vocab, model.vocab) == (None, 128)
    assert (model.gated_mlp, model.ffn, model.tied_embeddings, model.learned_positions) == (False, 5120, True, False)
    assert model.layers * 12 * model.hidden**2 == pytest.approx(650e6, rel=0.01)


def test_a_width_that_is_given_counts() -> None:
    assert read("/opt/bionemo2/train_esm2.py", f"{ESM2_650M} --ffn-hidden-size 4096").model.ffn == 4096


def test_what_is_fixed_cites_the_program() -> None:
    entry = evidence(read("/opt/bionemo2/train_esm2.py"), "model.gated_mlp")
    assert (entry.line, entry.text) == (3, "train_esm2.py has it so")
