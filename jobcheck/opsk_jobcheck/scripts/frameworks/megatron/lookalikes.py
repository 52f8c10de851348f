"""Tells programs of other frameworks whose flags are spelt as Megatron-LM's from programs of Megatron-LM.

Evidence, the strongest first: the name of the program, a folder or a variable of Megatron's in the script, what the
Python file that is started imports, wraps and takes, and last flags that no other program has.
"""

from __future__ import annotations

import re

from opsk.frameworks.settings.megatron_flags import CONSTANTS, NUMBERS, OPTIONS, UNMODELLED, VALUES, WORDS
from opsk_jobcheck.scripts.bash.values import Run, Scalar
from opsk_jobcheck.scripts.frameworks.megatron.megatron import DEEPSPEED, LM
from opsk_jobcheck.scripts.frameworks.python.source import PythonSource
from opsk_jobcheck.scripts.launchers.programs import MAX_PATH_CHARS, find_program
from opsk_jobcheck.scripts.settings.reader import Match

MIN_OWN_FLAGS = 2
"""Flags of Megatron-LM alone that a command of a program without a telling name needs."""
MIN_DEFINED = 2
"""Flags of the command that a program defines itself, where Megatron-LM would define them."""
_PROGRAM = re.compile(r"pretrain_\w+\.py|train_rl\.py|finetune_(gpt|llama|qwen)\w*\.py")
_FAMILY = re.compile(r"megatron", re.IGNORECASE)
_WRAPPERS = (
    *("FullyShardedDataParallel", "FSDP", "fully_shard", "DistributedDataParallel", "DDP", "Accelerator"),
    *("Trainer", "Seq2SeqTrainer", "SFTTrainer", "LightningModule", "backward"),
)
_USUAL = frozenset(
    {
        *("--num-layers", "--hidden-size", "--ffn-hidden-size", "--num-attention-heads", "--num-key-value-heads"),
        *("--seq-length", "--max-seq-length", "--vocab-size", "--padded-vocab-size", "--num-experts", "--topk"),
        *(
            "--micro-batch-size",
            "--batch-size",
            "--global-batch-size",
            "--fp16",
            "--bf16",
            "--precision",
            "--optimizer",
        ),
        *("--use-flash-attn", "--sequence-parallel", "--cpu-offload", "--enable-cuda-graph", "--keep-ema"),
        *("--context-parallel-size", "--model-parallel-size", "--pipe-parallel-size"),
    }
)
"""Flags of Megatron-LM that other programs have as well."""
_OWN_FLAGS = (
    frozenset(
        {
            *NUMBERS,
            *CONSTANTS,
            *WORDS,
            *VALUES,
            *OPTIONS,
            *UNMODELLED,
            *(
                "--train-iters",
                "--train-samples",
                "--lr-decay-style",
                "--lr-decay-iters",
                "--lr-decay-samples",
                "--split",
            ),
            *(
                "--lr-warmup-fraction",
                "--rampup-batch-size",
                "--merge-file",
                "--vocab-file",
                "--eval-iters",
                "--ckpt-format",
            ),
            *("--no-load-optim", "--no-load-rng", "--no-save-optim", "--init-method-std", "--distributed-backend"),
            *("--use-mcore-models", "--attention-softmax-in-fp32", "--no-masked-softmax-fusion", "--DDP-impl"),
            *("--exit-duration-in-mins", "--log-throughput", "--tokenizer-model", "--no-gradient-accumulation-fusion"),
            *("--distributed-timeout-minutes", "--use-checkpoint-args", "--no-async-tensor-model-parallel-allreduce"),
            *(
                "--no-create-attention-mask-in-dataloader",
                "--normalization",
                "--rotary-base",
                "--group-query-attention",
            ),
        }
    )
    - _USUAL
)
"""Flags that Megatron-LM and its forks alone have."""


def may_be_lookalike(match: Match, run: Run) -> bool:
    """Return whether neither the name of a program nor the script says that it is one of Megatron-LM."""
    program = find_program(match.invocation)
    if match.framework not in (LM, DEEPSPEED) or program is None or _PROGRAM.fullmatch(program.file):
        return False
    return not _names_family(run)


def is_lookalike(match: Match, source: PythonSource | None) -> bool:
    """Return whether such a command's program is none of Megatron-LM, by its Python file, else by its flags.

    Parameters
    ----------
    source
        What the file states; ``None`` where it is not at hand.
    """
    if source is not None:
        if any(_FAMILY.search(name) for name in source.imports):
            return False
        given = {flag.removeprefix("--").replace("-", "_") for flag in match.arguments.flags}
        if len(given & source.defaults.keys()) >= MIN_DEFINED or any(source.find_calls(*_WRAPPERS)):
            return True
    return len(_OWN_FLAGS & match.arguments.flags.keys()) < MIN_OWN_FLAGS


def _names_family(run: Run) -> bool:
    """Return whether a word or a variable of a script names Megatron."""
    for name, variable in run.variables.items():
        value = variable.text.shown if isinstance(variable, Scalar) else ""
        if _FAMILY.search(name) or _FAMILY.search(value[:MAX_PATH_CHARS]):
            return True
    words = (word for entry in run.invocations for word in (*entry.shown_words, entry.directory.shown))
    return any(_FAMILY.search(word[:MAX_PATH_CHARS]) for word in words)
