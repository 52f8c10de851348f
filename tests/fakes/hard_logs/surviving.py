"""Lists what programs print when something goes wrong that they survive: caught exceptions, retries, second starts.

Each scene has the program that prints it, where its messages are made. `laying` lays scenes into good runs.
"""

from __future__ import annotations

# ruff: noqa: E501 -- lines are quoted as programs print them
_INNER = 'Traceback (most recent call last):\n  File "/home/ada/run/evaluate.py", line 141, in evaluate\n    score = metric(batch)\n  File "/home/ada/run/metric.py", line 30, in metric\n    return parse(text)\n'
_TOP = _INNER.replace("evaluate.py", "train.py").replace("in evaluate", "in <module>")
_OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB. GPU 0 has a total capacity of 39.38 GiB of which 1.83 GiB is free."

SCENES: tuple[str, ...] = (
    # wandb sdk/lib/retry.py, filestream.go
    "wandb: Network error (ConnectTimeout), entering retry loop.",
    "wandb: ERROR Error while calling W&B API: context deadline exceeded (<Response [500]>)",
    "wandb: 429 encountered (Filestream rate limit exceeded, retrying in 4.6 seconds.), retrying request",
    "wandb: WARNING A graphql request initiated by the public wandb API timed out (timeout=19 sec).",
    # huggingface_hub utils/_http.py, transformers modelcard.py
    "'(ReadTimeoutError(\"HTTPSConnectionPool(host='huggingface.co', port=443): Read timed out. (read timeout=10)\"), '(Request ID: 1b2c)')' thrown while requesting HEAD https://huggingface.co/gpt2/resolve/main/config.json\nRetrying in 1s [Retry 1/5].",
    '2026-01-05 10:00:00,654 - httpx - INFO - HTTP Request: HEAD https://huggingface.co/gpt2/resolve/main/added_tokens.json "HTTP/1.1 404 Not Found"',
    # python logging.exception and traceback.print_exc, in programs of their own
    "ERROR:root:evaluation failed, training goes on\n" + _INNER + "ValueError: no answer in the text",
    "Evaluation error, skipping this round:\n" + _INNER + "IndexError: list index out of range",
    "2026-01-05 10:00:00,000 - data - ERROR - sample 1234 is broken\n" + _INNER + "OSError: image file is truncated (12 bytes not processed)",
    "Could not upload the checkpoint, will retry at the next one\n" + _INNER + "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='hub.example.org', port=443): Max retries exceeded with url: /api",
    "Error loading image /data/img_0012.jpg: cannot identify image file '/data/img_0012.jpg'",
    "Skipping corrupted shard /data/shard-00012.tar: unexpected end of data",
    # python logging/__init__.py handleError
    '--- Logging error ---\nTraceback (most recent call last):\n  File "/usr/lib/python3.11/logging/__init__.py", line 1110, in emit\n    msg = self.format(record)\n  File "/usr/lib/python3.11/logging/__init__.py", line 377, in getMessage\n    msg = msg % self.args\nTypeError: not all arguments converted during string formatting\nCall stack:\n  File "/home/ada/run/train.py", line 110, in <module>\n    logger.info("loss", loss)\nMessage: \'loss\'\nArguments: (2.31,)',
    # python threading.py excepthook: a thread of a logger ended, the program goes on
    'Exception in thread Thread-12 (_upload):\nTraceback (most recent call last):\n  File "/usr/lib/python3.11/threading.py", line 1045, in _bootstrap_inner\n    self.run()\n  File "/opt/venv/lib/python3.11/site-packages/tensorboardX/event_file_writer.py", line 220, in run\n    self._record_writer.flush()\nBrokenPipeError: [Errno 32] Broken pipe',
    # fairseq trainer.py
    "2026-01-05 10:00:00 | WARNING | fairseq.trainer | OOM: Ran out of memory with exception: CUDA out of memory. Tried to allocate 2.25 GiB (GPU 0; 39.59 GiB total capacity; 37.11 GiB already allocated)\n2026-01-05 10:00:00 | WARNING | fairseq.trainer | attempting to recover from OOM in forward/backward pass",
    "2026-01-05 10:00:00 | INFO | fairseq.trainer | NOTE: gradient overflow detected, ignoring gradient, setting loss scale to: 32.0",
    # lightning tuner/batch_size_scaling.py, callbacks/early_stopping.py; accelerate utils/memory.py
    "Batch size 64 failed, trying batch size 32.",
    "Monitored metric val_loss did not improve in the last 3 records. Best score: 1.930.",
    "Decreasing batch size to: 8.",
    # deepspeed runtime/fp16/loss_scaler.py, apex amp/scaler.py, programs of their own
    "[2026-01-05 10:00:00,123] [INFO] [loss_scaler.py:190:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, but hysteresis is 2. Reducing hysteresis to 1",
    "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0",
    "WARNING: loss is nan at step 1205, skipping this batch",
    # optuna study/_optimize.py
    "[W 2026-01-05 10:00:00,000] Trial 3 failed with parameters: {{'lr': 0.1}} because of the following error: OutOfMemoryError('CUDA out of memory. Tried to allocate 2.25 GiB.').\n" + _INNER + _OOM + "\n[W 2026-01-05 10:00:00,001] Trial 3 failed with value None.\n[I 2026-01-05 10:04:00,001] Trial 4 finished with value: 0.91 and parameters: {{'lr': 0.01}}. Best is trial 4 with value: 0.91.",
    # ray tune/execution/tune_controller.py, tune/experimental/output.py
    "2026-01-05 10:00:00,123\tERROR tune_controller.py:1331 -- Trial task failed for trial train_fn_a1b2c_00003\n" + _INNER + _OOM + "\nTrial train_fn_a1b2c_00003 errored after 3 iterations at 2026-01-05 10:00:00. Total running time: 5min 3s\nTrial train_fn_a1b2c_00004 started with configuration:",
    # nccl transport/net_ib: a port that came back; graph/xml.cc, misc/ibvwrap.cc on nodes without parts
    "{node}:3112:3391 [1] transport/net_ib.cc:107 NCCL WARN NET/IB : mlx5_0:1 Got async event : port error\n{node}:3112:3391 [1] NCCL INFO NET/IB : mlx5_0:1 Got async event : port active",
    "{node}:3112:3390 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.0.0.5<41234> failed : Software caused connection abort\n{node}:3112:3390 [0] NCCL INFO Call to connect returned Connection refused, retrying",
    "{node}:3112:3390 [0] NCCL INFO Failed to open libibverbs.so[.1]\n{node}:3112:3390 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.5<0>",
    # pytorch torch/csrc/distributed/c10d/socket.cpp
    "[W105 10:00:00.1 socket.cpp:697] [c10d] The client socket has timed out after 1000ms while trying to connect to (gpu012, 29500), retrying.",
    # a profiler, a checkpoint on a second try, gromacs mdlib/lincs.cpp
    "WARN perfrun.system <> - Could not do anything with /sys/kernel/debug/kvm: Permission denied",
    "Saving failed ([Errno 28] No space left on device), retrying in 30 s (1 of 3)\nSaved checkpoint to /scratch/ckpt/1200",
    "Step 1000, time 2 (ps)  LINCS WARNING\nrelative constraint deviation after LINCS:\nrms 0.000012, max 0.000121 (between atoms 12 and 13)",
    # python multiprocessing, torch dataloader with a program's own retry
    "DataLoader worker (pid 3190) is killed by signal: Killed. Restarting the loader (1 of 3)",
)  # fmt: skip

RESTARTS: tuple[str, ...] = (
    "slurmstepd: error: *** JOB 4711 ON {node} CANCELLED AT 2026-01-05T10:00:00 DUE TO TIME LIMIT ***\nContinuing training from checkpoint, will skip to saved global_step",
    "slurmstepd: error: *** JOB 4711 ON {node} CANCELLED AT 2026-01-05T10:00:00 DUE TO PREEMPTION ***\nW0105 10:10:00.000000 3000 torch/distributed/run.py:766] Setting OMP_NUM_THREADS environment variable for each process to be 1 in default",
    'Traceback (most recent call last):\n  File "/opt/venv/bin/torchrun", line 8, in <module>\n    sys.exit(main())\nRuntimeError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: 0, code: -98, name: EADDRINUSE, message: address already in use\nW0105 10:10:00.000000 3000 torch/distributed/run.py:766] Setting OMP_NUM_THREADS environment variable for each process to be 1 in default',
    'nohup: ignoring input\nTraceback (most recent call last):\n  File "/home/ada/run/train.py", line 3, in <module>\n    import tokenizers\nModuleNotFoundError: No module named \'tokenizers\'\nnohup: ignoring input',
)  # fmt: skip
"""Ends of earlier runs in the log that the good one is appended to, and its beginning."""

OPENINGS: tuple[str, ...] = (
    # environment modules and Lmod, conda, batch scripts of their own
    "Loaded module: gcc/13.2.0\nLoaded dependency [cudnn/9.1]: cuda/12.4\nLoaded module: cudnn/9.1",
    "Restoring modules from user's default\nThe environment of the project is active\nwriting to /scratch/ada/run",
    "GPU Prolog Script v1.14\nThis is a GPU node.\nNode: {node}",
    "==========================================\nRunning on node {node}\nWorking directory: /home/ada/run\n==========================================",
)
"""How a log of one process begins, and begins again with the next run that is appended to it."""

ENDS_OF_RUNS: tuple[str, ...] = (
    _TOP + "TypeError: forward() takes 2 positional arguments but 3 were given",
    _TOP + "KeyError: 'labels'",
    _TOP + _OOM,
    _TOP + "FileNotFoundError: [Errno 2] No such file or directory: '/data/corpus/train.bin'",
    _TOP + "ModuleNotFoundError: No module named 'tokenizers'",
    _TOP + "KeyboardInterrupt",
    "usage: train.py [-h] [--lr LR]\ntrain.py: error: unrecognized arguments: --learning-rate 0.1",
)  # fmt: skip
"""How runs ended before the last one of the log."""

LAST_LINES: tuple[str, ...] = (
    # bash execute_cmd.c; gzip, tar and coreutils
    "/var/spool/slurmd/job4711/slurm_script: line 40: seff: command not found",
    "/var/spool/slurmd/job4711/slurm_script: line 31: finish: command not found",
    "/var/spool/slurmd/job4711/slurm_script: line 52: /home/ada/bin/notify: No such file or directory",
    "gzip: results/*.csv: No such file or directory",
    "rm: cannot remove '/tmp/ada/cache': No such file or directory",
    "cp: cannot stat 'checkpoints/best.pt': No such file or directory",
)
"""What a script says when it puts away what its program made, and that is the end of the log."""
