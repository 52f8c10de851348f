"""Are whole outputs of jobs read right: environments, shell traces, appended jobs, and what comes after the end?"""

# ruff: noqa: E501 -- lines are laid out as programs print them
from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from opsk.postmortem.logs import LogFile, read_logs
from opsk.postmortem.reasoning import explain
from opsk.postmortem.values import JobFacts, Report

HEAD = "Traceback (most recent call last):\n"
NOISE = "".join(f"loading shard {i:03d} of 400 from /data/corpus, 81920 tokens\n" for i in range(200))


def explained(folder: Path, text: str) -> Report:
    path = folder / "slurm-4711.out"
    path.write_text(text)
    return explain(read_logs([LogFile(path=path)], processes=1))


def named(report: Report) -> str:
    return report.root.failure.value if report.root is not None else ""


MAIN = '  File "/home/u/run.py", line 90, in <module>\n    main()\n'
"""The first frame of what nothing in the program caught."""


def raised(kind: str, message: str = "", statement: str = "x = f(a)", label: str = "", *, caught: bool = False) -> str:
    text = (
        f'{HEAD}{"" if caught else MAIN}  File "/home/u/run.py", line 31, in step\n    {statement}\n'
        f"{kind}{': ' + message if message else ''}\n"
    )
    return "".join(f"{label}{line}\n" for line in text.splitlines())


def cancelled(job: int, why: str = "") -> str:
    return f"slurmstepd: error: *** JOB {job} ON gpu011 CANCELLED AT 2026-01-05T10:10:08{why} ***\n"


@pytest.mark.parametrize(
    "echoed",
    [
        "_CUDA_COMPAT_STATUS=System has unsupported display driver / cuda driver combination (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH) cuInit()=803",
        "+ echo 'CUDA out of memory. Tried to allocate 2.00 GiB'",
        "export HINT=unrecognized arguments",
    ],
)
def test_environments_and_traced_commands_are_no_messages(echoed: str, tmp_path: Path) -> None:
    assert named(explained(tmp_path, echoed + "\n")) == ""
    assert named(explained(tmp_path, echoed + "\n" + raised("NameError", "name 'snap' is not defined"))) == "software"


def test_hydra_s_last_line_stands_below_every_exception(tmp_path: Path) -> None:
    text = (
        "Error executing job with overrides: ['trainer.steps=10']\n"
        + raised("IndexError", "list index out of range")
        + "\nSet the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n"
    )
    assert named(explained(tmp_path, text)) == "software"


@pytest.mark.parametrize(
    "says", ["line 12: python: command not found", "line 9: cd: /scratch/u/x: No such file or directory"]
)
def test_a_script_goes_on_after_a_command_that_is_not_there(says: str, tmp_path: Path) -> None:
    line = f"/var/spool/slurmd/job4711/slurm_script: {says}\n"
    assert named(explained(tmp_path, line)) == "config"
    assert named(explained(tmp_path, line + NOISE)) == ""
    assert named(explained(tmp_path, line + NOISE + raised("KeyError", "'a'"))) == "software"


def test_what_a_rank_raises_after_its_own_watchdog_is_garbage(tmp_path: Path) -> None:
    """Rank 0 ran out of data; rank 1 waited for its broadcast until the time-out, and then read what never came."""
    stop = raised("StopIteration", statement="raise StopIteration", label="0: [rank0]: ")
    waits = (
        "1: [rank1]:[E105 10:20:10.386121158 ProcessGroupNCCL.cpp:694] [Rank 1] Watchdog caught collective operation timeout:"
        " WorkNCCL(SeqNum=805, OpType=BROADCAST, NumelIn=32768, NumelOut=32768, Timeout(ms)=600000) ran for 600030 milliseconds before timing out.\n"
    )
    garbage = raised(
        "RuntimeError", "Storage size calculation overflowed with sizes=[4, 472455748]", label="1: [rank1]: "
    )
    report = explained(tmp_path, stop + waits + garbage + "1: Fatal Python error: Aborted\n")
    assert named(report) == "software"
    assert report.root is not None
    assert "StopIteration" in report.root.what


def test_agents_that_lose_the_store_after_a_rank_failed_follow_from_it(tmp_path: Path) -> None:
    text = raised(
        "TypeError", "unsupported operand type(s) for //: 'int' and 'NoneType'", label="0: [default2]:[rank2]: "
    )
    lost = (
        "2: W0105 10:20:11.309000 238501 torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:1292] The node 'gpu012_238501_0'"
        " has failed to shutdown the rendezvous 'none' due to an error of type RendezvousConnectionError.\n"
        + raised("torch.distributed.elastic.rendezvous.api.RendezvousConnectionError",
                 "The connection to the C10d store has failed. See inner exception for details.", "raise", "2: ")
    )  # fmt: skip
    assert named(explained(tmp_path, text + lost)) == "software"


def test_a_task_that_exited_before_the_time_was_up_is_the_cause(tmp_path: Path) -> None:
    text = (
        raised("AssertionError", statement="assert warmup < decay", label="1: [rank1]: ")
        + "1: [rank1]:[W105 10:10:04.436547416 ProcessGroupNCCL.cpp:1566] Warning: destroy_process_group() was not called\n"
        "srun: error: gpu012: task 1: Exited with exit code 1\nsrun: Terminating StepId=4711.1\n"
        + cancelled(4711, " DUE TO TIME LIMIT")
    )
    assert named(explained(tmp_path, text)) == "software"


def test_of_jobs_appended_to_one_log_the_last_one_counts(tmp_path: Path) -> None:
    text = raised("KeyError", "'a'") + cancelled(4700) + NOISE + cancelled(4711, " DUE TO PREEMPTION")
    report = explained(tmp_path, text)
    assert named(report) == "preempted"
    assert [each.failure.value for each in report.alternatives] == []


def test_an_interrupt_of_deepspeed_s_launcher_is_a_cancellation(tmp_path: Path) -> None:
    assert (
        named(
            explained(
                tmp_path,
                NOISE
                + "[2026-01-05 08:42:11,420] [INFO] [launch.py:328:sigkill_handler] Main process received SIGINT, exiting\n",
            )
        )
        == "cancelled"
    )


def test_a_launcher_that_is_asked_to_end_with_nothing_failed_was_cancelled_perhaps(tmp_path: Path) -> None:
    ended = raised(
        "torch.distributed.elastic.multiprocessing.api.SignalException", "Process 3734582 got signal: 15", "raise"
    )
    report = explained(tmp_path, NOISE + ended)
    assert report.root is not None
    assert (named(report), report.root.confidence < 0.6) == ("cancelled", True)
    assert named(explained(tmp_path, raised("KeyError", "'a'", label="[rank0]: ") + ended)) == "software"


def test_a_program_that_the_shell_saw_killed_ran_out_of_memory_perhaps(tmp_path: Path) -> None:
    report = explained(tmp_path, NOISE + "run.sh: line 5: 19817 Killed                  python train.py\n")
    assert report.root is not None
    assert (named(report), report.root.confidence < 0.6) == ("host_memory", True)
    assert (
        named(explained(tmp_path, NOISE + "run.sh: line 5: 19817 Killed                  python gpu_monitor.py\n"))
        == ""
    )


def test_an_operator_that_refuses_its_input_is_the_program_s_fault(tmp_path: Path) -> None:
    for message in (
        "seq_idx is only supported for channel last layout",
        "max(): Expected reduction dim to be specified",
    ):
        assert named(explained(tmp_path, raised("RuntimeError", message))) == "software"
    assert (
        named(explained(tmp_path, raised("RuntimeError", "FlashAttention only supports Ampere GPUs or newer.")))
        == "config"
    )
    assert (
        named(explained(tmp_path, raised("RuntimeError", "world size is invalid", "raise RuntimeError(text)")))
        == "config"
    )


def test_a_model_that_does_not_know_an_argument_is_the_program_s_fault(tmp_path: Path) -> None:
    assert (
        named(
            explained(tmp_path, raised("TypeError", "SinkAttention.__init__() got an unexpected keyword argument 'h'"))
        )
        == "software"
    )
    assert (
        named(
            explained(
                tmp_path, raised("TypeError", "TrainingArguments.__init__() got an unexpected keyword argument 'h'")
            )
        )
        == "config"
    )


def test_megatron_goes_on_where_a_checkpoint_has_no_arguments(tmp_path: Path) -> None:
    assert named(explained(tmp_path, "could not find arguments in the checkpoint ...\n" + NOISE)) == ""


def bars(first: int, last: int) -> str:
    return "".join(f"\r {i}%|##        | {i}/100 [{i:02d}:00<4:03:17, 60.55s/it]" for i in range(first, last))


def test_a_bar_that_is_shown_again_at_the_end_is_no_further_step(tmp_path: Path) -> None:
    """What ended the program stands between the last step and the bar that is closed."""
    text = bars(1, 25) + "\n" + raised("TypeError", "iteration over a 0-d tensor", label="[rank0]: ")
    report = explained(tmp_path, text + "\r 24%|##        | 24/100 [25:31<4:14:06, 60.81s/it]\n")
    assert named(report) == "software"


def test_a_program_that_fails_after_its_training_was_complete_has_failed(tmp_path: Path) -> None:
    text = bars(1, 101) + "\n" + raised("ModuleNotFoundError", "No module named 'scores'")
    report = explained(tmp_path, text)
    assert (report.state, named(report)) == ("failed", "config")


def test_an_argument_that_was_refused_in_a_first_try_is_survived(tmp_path: Path) -> None:
    refused = "run.py: error: unrecognized arguments: --fast\n"
    ended = raised("torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 628.00 MiB.")
    assert named(explained(tmp_path, refused + 3 * NOISE + ended)) == "gpu_memory"
    labelled = "3: run.py: error: unrecognized arguments: --fast\n"
    assert named(explained(tmp_path, labelled + 3 * NOISE + raised("KeyError", "'a'", label="0: "))) == "config"


def test_words_alone_make_an_exception_of_settings_less_sure(tmp_path: Path) -> None:
    by_words = explained(
        tmp_path, raised("ValueError", "hidden size must be divisible by heads", "raise ValueError(text)")
    )
    by_type = explained(
        tmp_path, raised("draccus.utils.ValidationError", "no such field", "raise ValidationError(text)")
    )
    assert by_words.root is not None
    assert by_type.root is not None
    assert named(by_words) == named(by_type) == "config"
    assert by_words.root.confidence < 0.6 < by_type.root.confidence
    assert (
        named(
            explained(tmp_path, raised("ValueError", "Inputs must have the same dimensions.", "raise ValueError(text)"))
        )
        == "software"
    )


@pytest.mark.parametrize("signal", ["Terminated", "Killed"])
def test_newer_slurm_names_the_signal_of_scancel(signal: str, tmp_path: Path) -> None:
    """Slurm src/slurmd/slurmstepd/req.c: the daemon's own clock stands before the line."""
    line = f"[2026-01-05T10:10:08.573] error: {cancelled(4711, f' DUE to SIGNAL {signal}')[19:]}"
    assert named(explained(tmp_path, NOISE + line)) == "cancelled"
    failed = "srun: error: gpu012: task 1: Exited with exit code 1\nsrun: Terminating StepId=4711.0\n"
    step = line.replace("JOB 4711", "STEP 4711.0")
    assert named(explained(tmp_path, raised("KeyError", "'a'") + failed + step)) == "software"


@pytest.mark.parametrize(
    "says",
    ["line 9: cd: runs/x: No such file or directory", "line 4: /opt/venv/bin/activate: No such file or directory"],
)
def test_a_script_goes_on_sooner_after_a_command_that_only_prepares(says: str, tmp_path: Path) -> None:
    line, few = f"/var/spool/slurmd/job4711/slurm_script: {says}\n", "saved a shard\n"
    assert named(explained(tmp_path, line + 20 * few)) == ""
    assert named(explained(tmp_path, line + few)) == "config"
    assert named(explained(tmp_path, line.replace(says, "line 9: python: command not found") + 20 * few)) == "config"


def test_a_symbol_that_is_named_and_raised_by_nobody_ended_nothing(tmp_path: Path) -> None:
    says = "/opt/venv/lib/bitsandbytes/lib_cpu.so: undefined symbol: cadam32bit_grad_fp32"
    assert named(explained(tmp_path, f"{says}\n")) == ""
    assert named(explained(tmp_path, f"ImportError: {says}\n")) == "config"
    assert named(explained(tmp_path, f"python: symbol lookup error: {says}\n")) == "config"


def test_a_program_that_skips_what_does_not_fit_goes_on(tmp_path: Path) -> None:
    skipped = "[skip 311] CUDA out of memory. Tried to allocate 4.62 GiB. GPU 0 has a total capacity of 23.46 GiB\n"
    assert named(explained(tmp_path, skipped + NOISE)) == ""
    assert named(explained(tmp_path, skipped + raised("OSError", "[Errno 122] Disk quota exceeded"))) == "storage"


def test_a_transfer_that_broke_off_is_no_setting(tmp_path: Path) -> None:
    text = raised("http.client.IncompleteRead", "IncompleteRead(4835 bytes read, 5405 more expected)")
    assert named(explained(tmp_path, text)) == "software"


@pytest.mark.parametrize(
    "says",
    [
        "collect2: error: ld returned 1 exit status\nmake: *** [makefile:8: build/main] Error 1",
        "ninja: build stopped: subcommand failed.",
        "/usr/include/a.h:3:10: fatal error: b.h: No such file or directory\ncompilation terminated.",
        '12 errors detected in the compilation of "/home/u/ops/grid.cu".',
        "-- Configuring incomplete, errors occurred!",
    ],
)
def test_what_could_not_be_built_is_the_configuration_s(says: str, tmp_path: Path) -> None:
    assert named(explained(tmp_path, f"{says}\n")) == "config"


@pytest.mark.parametrize(
    "logged",
    [
        "(APIServer pid=31) [DEBUG] hosting - function_loader.py:71: [Errno 2] No such file or directory: '/opt/model.py'",
        "(APIServer pid=31) [WARNING] hosting - loader.py:71: HandlerFileNotFoundError: File '/opt/model.py' not found",
        "2026-01-05 10:10:08,543 ERROR services.py:1375 -- Couldn't read dashboard.log file. Error: [Errno 2] No such file or directory: '/tmp/ray/dashboard.log'",
    ],
)
def test_what_is_logged_and_not_raised_ends_nothing(logged: str, tmp_path: Path) -> None:
    assert named(explained(tmp_path, f"{logged}\n")) == ""


def test_a_warning_is_less_likely_than_what_was_raised(tmp_path: Path) -> None:
    warning = "(WARNING)[base.py:475]  loaded state dict contains a parameter group that doesn't match the size of optimizer's group\n"
    ended = raised("RuntimeError", "shape '[33, 64]' is invalid for input of size 40550400")
    assert named(explained(tmp_path, warning + ended)) == "software"
    assert named(explained(tmp_path, warning.replace("WARNING", "ERROR") + ended)) == "config"


@pytest.mark.parametrize(
    ("before", "label"),
    [("", "(APIServer pid=31) ERROR 06-16 14:16:20 [serving_chat.py:251] "), ("ERROR:    Exception in ASGI application\n", "")],
)  # fmt: skip
def test_a_server_goes_on_after_a_request_that_it_refused(before: str, label: str, tmp_path: Path) -> None:
    """vllm entrypoints/openai/serving_chat.py logs and answers; uvicorn's httptools_impl.py as well."""
    refused = before + raised("ValueError", "This model's maximum context length is 6144 tokens.", label=label)
    assert named(explained(tmp_path, refused)) == ""
    assert named(explained(tmp_path, refused + raised("KeyError", "'a'"))) == "software"


@pytest.mark.parametrize("signal", [1, 2, 3])
def test_torchrun_is_asked_to_end_by_other_signals_too(signal: int, tmp_path: Path) -> None:
    """pytorch torch/distributed/elastic/multiprocessing/api.py handles SIGHUP, SIGINT and SIGQUIT as it does SIGTERM."""
    text = raised(
        "torch.distributed.elastic.multiprocessing.api.SignalException", f"Process 37 got signal: {signal}", "raise"
    )
    assert named(explained(tmp_path, text)) == "cancelled"


def test_a_script_that_looks_at_its_environment_goes_on(tmp_path: Path) -> None:
    """``python -c`` failed, and hours later the program hung."""
    looked = f'{HEAD}  File "<string>", line 2, in <module>\nImportError: Failed to load PyTorch C extensions:\n'
    waits = "".join(
        f"[rank{rank}]:[E105 14:18:04.940104418 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=13326, OpType=ALLREDUCE, NumelIn=226844, NumelOut=226844, Timeout(ms)=600000) ran for 600096 milliseconds before timing out.\n"
        for rank in range(4)
    )
    assert named(explained(tmp_path, looked + waits)) == "collective_hang"
    assert named(explained(tmp_path, looked)) == "config"


def test_a_shell_s_script_is_no_node(tmp_path: Path) -> None:
    line = "run2_5.qsub: line 14: cd: /home/u/build/long: No such file or directory\n"
    assert named(explained(tmp_path, line + 20 * "saved a shard\n")) == ""
    report = explained(tmp_path, "run2_5.qsub: line 14: python: command not found\n")
    assert (named(report), report.root.where.node if report.root else None) == ("config", "")


def test_a_python_program_that_warns_runs_whatever_could_not_be_activated(tmp_path: Path) -> None:
    line = "/var/spool/slurmd/job4711/slurm_script: line 12: activate: No such file or directory\n"
    warned = (
        "/opt/venv/lib/python3.11/site-packages/torch/nn/functional.py:3734: UserWarning: upsample is deprecated.\n"
    )
    assert named(explained(tmp_path, line + warned)) == ""
    missing = raised("ModuleNotFoundError", "No module named 'torch'", "import torch")
    assert named(explained(tmp_path, line + warned + missing)) == "config"


@pytest.mark.parametrize(
    ("says", "failure"),
    [
        ("run.sh: 3: torchrun: not found", "config"),
        ("run.sh: 9: --epochs=3: not found", ""),
        ("Lmod has detected the following error: The following module(s) are unknown: x", "config"),
    ],
)
def test_other_shells_and_lmod_say_what_is_not_there(says: str, failure: str, tmp_path: Path) -> None:
    assert named(explained(tmp_path, f"{says}\n")) == failure
    assert named(explained(tmp_path, f"{says}\n" + 100 * "saved a shard of the corpus\n")) in ("", failure)


LONG = 3 * NOISE
"""More than a program that ends still writes."""


@pytest.mark.parametrize(
    ("kind", "message"), [("ValueError", "cannot reshape"), ("torch.OutOfMemoryError", "CUDA out of memory.")]
)
def test_a_log_that_goes_on_for_long_survived_what_was_raised(kind: str, message: str, tmp_path: Path) -> None:
    failed = raised(kind, message)
    assert named(explained(tmp_path, NOISE + failed + LONG)) == ""
    assert named(explained(tmp_path, NOISE + failed + NOISE.replace("of 400", "of 900"))) != ""
    reported = "srun: error: gpu012: task 1: Exited with exit code 1\n"
    assert named(explained(tmp_path, NOISE + failed + LONG + reported)) != ""


@pytest.mark.parametrize(
    "caught",
    [
        raised("torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB.", caught=True),
        raised("KeyError", "'text'", caught=True),
        "Error loading model: CUDA out of memory. Tried to allocate 1008.00 MiB. GPU 0 has a total capacity of 14.74 GiB\n",
        "cannot use the cache: org/m is not a local folder and is not a valid model identifier listed on the hub\n",
        "gzip: /work/model/extract.0000013.gz: No such file or directory\n",
        "Exception in thread Thread-4:\n" + raised("ValueError", "bad chunk", caught=True).replace("run.py", "threading.py"),
    ],
)  # fmt: skip
def test_a_program_that_caught_what_failed_and_works_on_has_not_failed(caught: str, tmp_path: Path) -> None:
    """Three lines of its own work are enough; one or two may be the handler's."""
    works = "".join(f"question {i}: the answer is {i * i}\n" for i in range(4))
    assert named(explained(tmp_path, works + caught + works)) == ""
    assert named(explained(tmp_path, works + caught)) != ""
    assert named(explained(tmp_path, works + caught + "Traceback of the model above\nJob finished at 12:00\n")) != ""


def test_lines_that_a_program_had_in_its_buffer_are_no_work_after_its_end(tmp_path: Path) -> None:
    works = "".join(f"question {i}: the answer is {i * i}\n" for i in range(40))
    assert named(explained(tmp_path, raised("KeyError", "'text'") + works)) == "software"
    hydra = "Error executing job with overrides: []\n" + raised("KeyError", "'text'", caught=True)
    assert named(explained(tmp_path, hydra + works)) == "software"
    failed = "2026-01-05 10:10:08 ERROR training failed: CUDA out of memory. Tried to allocate 1008.00 MiB\n"
    assert named(explained(tmp_path, failed + works)) == "gpu_memory"


def test_a_program_that_was_killed_after_it_trained_on_was_not_ended_by_an_earlier_run(tmp_path: Path) -> None:
    earlier = raised("RuntimeError", "CUDA out of memory. Tried to allocate 4.82 GiB (GPU 0; 31.73 GiB total capacity)")
    steps = "".join(
        f"iteration {i}/ 500 | loss: 2.1 | elapsed time per iteration (ms): 412.3\n" for i in range(100, 400)
    )
    assert named(explained(tmp_path, earlier + LONG + steps + "Killed\n")) == "host_memory"
    assert named(explained(tmp_path, steps + earlier + "Killed\n")) == "gpu_memory"


def test_a_later_line_of_the_script_is_no_reason_for_what_failed_or_ended_before(tmp_path: Path) -> None:
    later = "/var/spool/slurmd/job4711/slurm_script: line 31: ...: command not found\n"
    assert (
        named(explained(tmp_path, raised("TypeError", "object of type 'NoneType' has no len()") + later)) == "software"
    )
    assert (
        named(explained(tmp_path, "Validation: 100%|##########| 30952/30952 [10:51<00:00, 1.12s/it]\n" + later)) == ""
    )
    assert named(explained(tmp_path, later)) == "config"


def test_a_program_that_asks_its_user_in_a_batch_job_failed_by_that(tmp_path: Path) -> None:
    asked = raised("EOFError", "EOF when reading a line", "output = input('Save the results? (y/n)')")
    assert named(explained(tmp_path, asked)) == "software"


@pytest.mark.parametrize(
    "ended",
    [
        "run.sh: line 32: 4067342 Terminated              CUDA_VISIBLE_DEVICES=0 python train.py\n",
        "*** SIGTERM received at time=1755448771 on cpu 72 ***\nPC: @     0x7fb868051117  (unknown)  (unknown)\n",
    ],
)
def test_a_program_that_is_asked_to_end_was_cancelled_perhaps(ended: str, tmp_path: Path) -> None:
    report = explained(tmp_path, NOISE + ended)
    assert report.root is not None
    assert (named(report), report.root.confidence < 0.6) == ("cancelled", True)
    assert named(explained(tmp_path, NOISE + ended + NOISE)) == ""
    assert named(explained(tmp_path, NOISE + ended.replace("python train.py", "python -m vllm.entrypoints.api_server")
                           .replace("*** SIGTERM", "(TaskRunner pid=542044) *** SIGTERM"))) == ""  # fmt: skip


def test_after_numbers_that_are_none_a_log_goes_on_and_the_run_is_lost(tmp_path: Path) -> None:
    assert named(explained(tmp_path, "step 7: loss is NaN\n" + LONG)) == "numeric"


def test_a_search_for_settings_goes_on_after_a_trial_that_failed(tmp_path: Path) -> None:
    """optuna study/_optimize.py logs what a trial raised, and raises it anew unless it was asked to catch it."""
    at = "2026-01-05 10:00:00,100"
    says = f"[W {at}] Trial 3 failed with parameters: {{'lr': 0.1}} because of the following error: OutOfMemoryError('CUDA out of memory.').\n"
    failed = says + raised("torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB.")
    value = f"[W {at}] Trial 3 failed with value None.\n"
    going_on = f"[I {at}] Trial 4 finished with value: 0.31 and parameters: {{'lr': 0.01}}.\n"
    assert named(explained(tmp_path, failed + value + going_on)) == ""
    again = raised("torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB.")
    assert named(explained(tmp_path, failed + value + again)) == "gpu_memory"
    agent = "wandb: Agent Starting Run: 41tuilfr with config:\n"
    assert named(explained(tmp_path, agent + raised("KeyError", "'a'") + agent + "epoch 1\n")) == ""
    assert named(explained(tmp_path, agent + "epoch 1\n" + agent + raised("KeyError", "'a'"))) == "software"


def test_a_job_that_was_cancelled_is_no_word_of_the_next_one_in_its_log(tmp_path: Path) -> None:
    steps = "".join(f"step {step} | loss: 2.3100 | 1.23 s/step\n" for step in range(1000))
    assert named(explained(tmp_path, steps + cancelled(4711) + steps)) == ""
    assert named(explained(tmp_path, steps + cancelled(4711) + 7 * NOISE)) == ""
    assert named(explained(tmp_path, steps + cancelled(4711) + LONG)) == "cancelled"
    assert (
        named(explained(tmp_path, steps + cancelled(4711) + "step 1000 | loss: 2.3100 | 1.23 s/step\n")) == "cancelled"
    )


def test_a_worker_of_the_data_loader_that_ended_with_a_status_was_not_killed(tmp_path: Path) -> None:
    first = raised(
        "RuntimeError",
        "DataLoader worker (pid 31) exited unexpectedly with exit code 1. Details are lost due to multiprocessing.",
    )
    then = raised("RuntimeError", "DataLoader worker (pid(s) 31, 32) exited unexpectedly")
    assert named(explained(tmp_path, first + then)) == "software"
    assert named(explained(tmp_path, then)) == "host_memory"


def test_what_a_compiled_reader_of_data_refuses_is_the_program_s_fault(tmp_path: Path) -> None:
    text = HEAD + '  File "pyarrow/error.pxi", line 91, in pyarrow.lib.check_status\n'
    text += "pyarrow.lib.ArrowInvalid: ('Could not convert <POINT (-74 40)> with type Point: did not recognize Python value type', 'Conversion failed')\n"
    assert named(explained(tmp_path, text)) == "software"


def test_what_failed_long_before_another_failure_was_another_run(tmp_path: Path) -> None:
    missing = raised("ModuleNotFoundError", "No module named 'seaborn'")
    interrupted = raised("KeyboardInterrupt")
    assert named(explained(tmp_path, missing + 7 * NOISE + interrupted)) == "cancelled"
    assert named(explained(tmp_path, missing + NOISE + interrupted)) != "cancelled"
    labelled = raised("ModuleNotFoundError", "No module named 'seaborn'", label="[rank3]: ")
    assert named(explained(tmp_path, labelled + 7 * NOISE + raised("KeyError", "'a'", label="[rank0]: "))) == "config"


@pytest.mark.parametrize(
    "begins",
    [
        "nohup: ignoring input",
        "W0105 10:00:00.000000 31 torch/distributed/run.py:793] Setting OMP_NUM_THREADS environment variable for each process to be 1 in default",
        "2026-01-05 10:00:00,100	INFO worker.py:1841 -- Started a local Ray instance.",
    ],
)
def test_a_run_that_begins_has_nothing_to_do_with_what_the_one_before_ended_by(begins: str, tmp_path: Path) -> None:
    failed = raised("OSError", "[Errno 28] No space left on device")
    assert named(explained(tmp_path, f"{begins}\n{failed}")) == "storage"
    assert named(explained(tmp_path, f"{failed}{begins}\nsaved a shard\n")) == ""
    assert named(explained(tmp_path, f"{failed}{begins}\n{raised('KeyError', 'a')}")) != ""


@pytest.mark.parametrize(
    "message",
    [
        "Expected 2D array, got 1D array instead:",
        "Found input variables with inconsistent numbers of samples: [10, 9]",
        "operands could not be broadcast together with shapes (3,) (4,)",
        "shapes (3,4) and (5,) not aligned: 4 (dim 1) != 5 (dim 0)",
    ],
)
def test_what_numpy_and_scikit_learn_say_of_shapes_is_the_program_s_fault(message: str, tmp_path: Path) -> None:
    assert named(explained(tmp_path, raised("ValueError", message, "raise ValueError(text)"))) == "software"


def test_the_last_report_of_lsf_counts(tmp_path: Path) -> None:
    def report(job: int, end: str, why: str) -> str:
        return f"Sender: LSF System <lsfadmin@n-1>\nSubject: Job {job}: <train> in cluster <dcc> {end}\n\n{why}\n"

    owner = report(31, "Exited", "TERM_OWNER: job killed by owner.\nExited with exit code 143.")
    well = report(32, "Done", "Successfully completed.")
    assert named(explained(tmp_path, owner)) == "cancelled"
    assert named(explained(tmp_path, owner + well)) == ""
    assert named(explained(tmp_path, well + owner)) == "cancelled"


def test_an_optional_library_that_logs_why_it_is_not_there_ended_nothing(tmp_path: Path) -> None:
    """bitsandbytes cextension.py logs the traceback, prints advice, and the import succeeds."""
    logged = "Could not load bitsandbytes native library: 'NoneType' object has no attribute 'split'\n"
    advice = "CUDA Setup failed despite CUDA being available.\nDevice set to use cuda:0\n"
    text = logged + raised("AttributeError", "'NoneType' object has no attribute 'split'") + advice
    assert named(explained(tmp_path, text)) == ""


def test_a_socket_that_lost_its_peer_is_no_file_system(tmp_path: Path) -> None:
    thrown = "terminate called after throwing an instance of 'std::system_error'\n  what():  Transport endpoint is not connected\n"
    link = "terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: uncorrectable NVLink error detected during the execution\n"
    assert named(explained(tmp_path, thrown + link)) == "nvlink"
    assert (
        named(explained(tmp_path, "OSError: [Errno 107] Transport endpoint is not connected: '/mnt/fuse/a'\n"))
        == "storage"
    )


def test_workers_of_the_data_loader_that_were_asked_to_end_did_not_run_out_of_memory(tmp_path: Path) -> None:
    asked = raised("RuntimeError", "DataLoader worker (pid 31) is killed by signal: Terminated. ")
    then = raised("RuntimeError", "DataLoader worker (pid(s) 31, 32) exited unexpectedly")
    report = explained(tmp_path, asked + then)
    assert report.root is not None
    assert (named(report), report.root.confidence < 0.6) == ("cancelled", True)


@pytest.mark.parametrize(
    ("message", "failure"),
    [
        ("fp16.loss_scale must be a finite number (not inf/-inf/nan)", "config"),
        ("--no-check-for-nan-in-loss-and-grad should be set with --cuda-graph-impl=full_iteration", "config"),
        ("Loss is not finite: nan", "numeric"),
    ],
)
def test_a_setting_that_may_not_be_nan_is_no_number_that_went_wrong(message: str, failure: str, tmp_path: Path) -> None:
    assert named(explained(tmp_path, raised("ValueError", message, "raise ValueError(text)"))) == failure


def test_machines_of_lightgbm_that_wait_to_the_end_did_not_find_each_other(tmp_path: Path) -> None:
    waits = "".join(
        f"[LightGBM] [Warning] Connecting to rank 7 failed, waiting for {ms} milliseconds\n" for ms in (200, 260, 17218)
    )
    assert named(explained(tmp_path, waits)) == "rendezvous"
    assert named(explained(tmp_path, waits + "[LightGBM] [Info] Connected to rank 7\n")) == ""


def test_a_program_that_passes_over_a_full_disk_to_the_end_of_its_log_failed_by_it(tmp_path: Path) -> None:
    skipped = "".join(f"[skip {each}] [Errno 122] Disk quota exceeded\n" for each in range(200))
    assert named(explained(tmp_path, skipped)) == "storage"
    assert named(explained(tmp_path, skipped + NOISE + NOISE)) == ""
    assert named(explained(tmp_path, "[skip 7] [Errno 122] Disk quota exceeded\n")) == ""


def test_other_ranks_go_on_for_long_after_one_has_failed(tmp_path: Path) -> None:
    """Without labels, and without a launcher that ends them; NCCL's lines show that they are several."""
    others = "".join(
        f"gpu012:31{rank}:40{rank} [{rank}] NCCL INFO ncclCommInitRank comm 0x7f{rank} rank {rank} nranks 4 cudaDev {rank} nvmlDev {rank} busId {rank}000 commId 0x9 - Init COMPLETE\n"
        for rank in range(4)
    )
    assert named(explained(tmp_path, others + raised("KeyError", "'a'") + LONG)) == "software"
    assert named(explained(tmp_path, raised("KeyError", "'a'") + LONG)) == ""


@pytest.mark.parametrize(("state", "failure"), [("COMPLETED", ""), ("FAILED", "software")])
def test_what_slurm_says_of_the_end_stands_above_a_log_that_goes_on(state: str, failure: str, tmp_path: Path) -> None:
    path = tmp_path / "slurm-4711.out"
    path.write_text(raised("KeyError", "'a'") + LONG)
    evidence = replace(read_logs([LogFile(path=path)], processes=1), job=JobFacts(job_id="4711", state=state))
    assert named(explain(evidence)) == failure
