"""Is what a program survived no failure, and what it printed while it ended no sign of going on?

Each text is composed after a kind of real log: what its program prints, in the order in which it reaches a file.
"""

from __future__ import annotations

# ruff: noqa: E501 -- lines are quoted as programs print them
from pathlib import Path

import pytest

from opsk.postmortem.logs import LogFile, read_logs
from opsk.postmortem.reasoning import explain

TOP = 'Traceback (most recent call last):\n  File "/home/u/train.py", line 88, in <module>\n    main()\n  File "/home/u/train.py", line 41, in main\n'
INNER = 'Traceback (most recent call last):\n  File "/home/u/train.py", line 41, in evaluate\n    score(batch)\n'
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB. GPU 0 has a total capacity of 39.38 GiB of which 1.83 GiB is free.\n"
IN_USE = "RuntimeError: The server socket has failed to listen on any local network address. port: 4321, useIpv6: 0, code: -98, name: EADDRINUSE, message: address already in use\n"
LIMIT = "slurmstepd: error: *** JOB 4711 ON gpu012 CANCELLED AT 2026-01-05T10:00:00 DUE TO TIME LIMIT ***\n"


def steps(first: int, last: int) -> str:
    return "".join(f"step {step} | loss: 2.3100 | 1.23 s/step\n" for step in range(first, last))


def bars(first: int, last: int) -> str:
    return (
        "".join(
            f"\r  {step // 10}%|█▌        | {step}/1000 [00:{step % 60:02d}<12:00,  3.02it/s]"
            for step in range(first, last)
        )
        + "\n"
    )


def stamped(first_minute: int, last_minute: int) -> str:
    return "".join(
        f"2026-01-05 10:{minute:02d}:07,{number:03d} - eval - INFO - sample {minute}{number} scored, answer of {number} tokens\n"
        for minute in range(first_minute, last_minute)
        for number in range(10)
    )


SURVIVED = {
    "the running job's own log after a second start of it, which found the port taken": (
        stamped(0, 4) + TOP + IN_USE + stamped(6, 12)
    ),
    "a first start that found the port taken, and the second": TOP + IN_USE + steps(0, 40),
    "a warning of a cache that is not there, then a download": (
        "2026-01-05 10:00:00,001 - trainer - WARNING - Cache incomplete or missing: meta-llama/Meta-Llama-3-8B is not a local folder and is not a valid model identifier listed on 'https://huggingface.co/models'\n"
        + stamped(0, 3)
    ),
    "a profiler that may not look at the kernel": (
        "2730 [140460559726336] WARN perfrun.system <> - Could not do anything with /sys/kernel/debug/kvm: boost::filesystem::status: Permission denied: \"/sys/kernel/debug/kvm\"\n"
        + "11078 [140460693043072] INFO perfrun.launcher <> - plugin finished\n" * 20
    ),
    "one command of a script was killed, and the next ones ran": (
        steps(0, 5) + "tools/test.sh: line 18: 3531848 Killed                  python test.py --quant=1\n"
        + "|Tasks|Version|Filter|n-shot|Metric|Value|\n" * 600
    ),
    "a batch that did not fit, below a progress bar": bars(0, 30) + TOP + OOM + bars(30, 200),
    "an evaluation that a program's logger reports with its traceback": (
        stamped(0, 2) + "2026-01-05 10:02:00,000 - eval - ERROR - sample 12 failed\n" + INNER + "ValueError: no answer in the text\n" + stamped(2, 9)
    ),
    "a warning that CUDA cannot begin, after which a program uses the processor": (
        "/opt/venv/lib/python3.12/site-packages/torch/cuda/__init__.py:141: UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11040).\n"
        "  return torch._C._cuda_getDeviceCount() > 0\ncpu\n"
    ),
    "a requeued job that went on from its checkpoint": (
        steps(0, 40) + LIMIT + "Continuing training from checkpoint, will skip to saved global_step\n" + steps(30, 60)
    ),
    "a first start that failed, and a run that said it completed": (
        TOP + "TypeError: train() got an unexpected keyword argument 'lr'\n" + "epoch 1 of 3\nepoch 2 of 3\nepoch 3 of 3\nTraining complete! Best accuracy: 0.91\n"
    ),
}  # fmt: skip
ENDED = {
    "steps that Python wrote from its buffer when the program ended": (
        "Loading data\n" + TOP + "ValueError: shapes (3,4) and (5,) not aligned\n" + steps(0, 60), "software",
    ),
    "steps from the buffer in the middle of a traceback": (
        "Epochs:   1%|          | 1/126 [01:14<2:34:16, 74.05s/it]\nTraceback (most recent call last):\n"
        "Step: 99 (0) | Loss: 1.26963 | Grad: 17.41235 | Lr: 1.110e-06\nStep: 199 (0) | Loss: 0.61775 | Grad: 4.85328 | Lr: 2.221e-06\n"
        '  File "/home/u/train.py", line 111, in <module>\n    x = x.to(device)\nKeyboardInterrupt\n', "cancelled",
    ),
    "an interrupt while the driver waited for Ray, whose tasks print on": (
        steps(0, 9) + TOP + '  File "/opt/venv/lib/python3.11/site-packages/ray/_private/worker.py", line 2755, in get\n'
        "    values, debugger_breakpoint = worker.get_objects(object_refs, timeout=timeout)\nKeyboardInterrupt\n"
        + "(train pid=3147459)   0%|          | 12/10000 [00:16<3:37:33,  1.31s/it]\n" + steps(9, 30), "cancelled",
    ),
    "an interrupt that Lightning ends training for": (
        steps(0, 30) + "/opt/venv/lib/python3.11/site-packages/pytorch_lightning/trainer/call.py:54: UserWarning: Detected KeyboardInterrupt, attempting graceful shutdown...\n"
        '  rank_zero_warn("Detected KeyboardInterrupt, attempting graceful shutdown...")\n', "cancelled",
    ),
    "an interrupt whose traceback lost its head": (
        steps(0, 30) + '  File "/home/u/train.py", line 222, in <module>\n    for batch in loader:\n  File "/home/u/data.py", line 12, in __getitem__\n    img = self.augment(img)\nKeyboardInterrupt\n', "cancelled",
    ),
    "a stage that failed after training": (
        steps(0, 40) + "Training complete! Best accuracy: 0.91\n" + TOP + "FileNotFoundError: [Errno 2] No such file or directory: 'final.pt'\n", "config",
    ),
    "a loss of another name": (
        "".join(f"[INFO] ep=15 step={step}/193 LR=4.9e-04 L=nan mfm=nan(w=1.00)\n" for step in range(100, 140)), "numeric",
    ),
    "a setting of which an exception says the range": (
        TOP + "sklearn.utils._param_validation.InvalidParameterError: The 'max_features' parameter of RandomForestClassifier must be an int in the range [1, inf), a float in the range (0.0, 1.0] or None. Got 'auto' instead.\n", "config",
    ),
    "a time limit, and what the program wrote until it was killed": (steps(0, 40) + LIMIT + steps(40, 44), "time_limit"),
    "the last command of a script was killed": (
        steps(0, 5) + "tools/test.sh: line 18: 3531848 Killed                  python test.py --quant=1\n", "host_memory",
    ),
}  # fmt: skip


def find_class(text: str, folder: Path) -> str:
    log = folder / "slurm-4711.out"
    log.write_text(text)
    root = explain(read_logs([LogFile(path=log)], processes=1)).root
    return root.failure.value if root is not None else ""


@pytest.mark.parametrize("kind", SURVIVED)
def test_what_was_survived_is_no_failure(kind: str, tmp_path: Path) -> None:
    assert find_class(SURVIVED[kind], tmp_path) == ""


@pytest.mark.parametrize("kind", ENDED)
def test_what_ended_a_program_is_its_failure_whatever_follows(kind: str, tmp_path: Path) -> None:
    text, failure = ENDED[kind]
    assert find_class(text, tmp_path) == failure
