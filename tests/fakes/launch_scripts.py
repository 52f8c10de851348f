"""Launch scripts for tests of advice, and the change of one by a suggestion's flags, as its user would make it."""

from __future__ import annotations

import re

HEAD = "#!/bin/bash\n#SBATCH --nodes={nodes}\n#SBATCH --gpus-per-node=8\n"
LLAMA_70B = (
    "--num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64 --group-query-attention "
    "--num-query-groups 8 --seq-length 8192 --swiglu --position-embedding-type rope --vocab-size 128256 "
    "--untie-embeddings-and-output-weights --use-flash-attn --bf16"
)


def megatron_script(flags: str, *, nodes: int = 8, program: str = "pretrain_gpt.py") -> str:
    """Return a script that trains Llama-3 70B with more flags, on the last line."""
    return f"{HEAD.format(nodes=nodes)}srun python {program} {LLAMA_70B} {flags}\n"


def with_flags(script: str, flags: tuple[str, ...]) -> str:
    """Return the script with the words of a suggestion: appended, or taken out where they stand in brackets."""
    for flag in flags:
        if gone := re.fullmatch(r"\(without (\S+)\)", flag):
            script = re.sub(rf"{re.escape(gone[1])}(?![\w-])( [^-\s]\S*)?", "", script)
        else:
            script = f"{script.rstrip()} {flag}\n"
    return script
