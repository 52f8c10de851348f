"""One line that each signature is to find, as the programs print it, and one that is near to it and is none."""

from __future__ import annotations

# ruff: noqa: E501 -- lines are quoted as programs print them
from tests.fakes.planted_failures.world import stamped

_AT = stamped("{t:isot}", 1_780_000_000.0)

EXAMPLES: dict[str, tuple[str, str]] = {
    "advice.launch_blocking": (
        "For debugging consider passing CUDA_LAUNCH_BLOCKING=1.",
        "export CUDA_LAUNCH_BLOCKING=0",
    ),
    "advice.might": ("This might be caused by a rank that raised an exception", "the cause is known"),
    "end.train_runtime": ("{'train_runtime': 123.4, 'train_loss': 2.1}", "{'loss': 2.1}"),
    "end.after_training": (
        "[after training is done] datetime: 2026-01-05 10:00:00",
        "[before training] datetime: 2026-01-05",
    ),
    "end.said": ("Training complete! Best accuracy: 0.91", "A callback failed after training finished."),
    "lightning.interrupted": (
        "call.py:54: UserWarning: Detected KeyboardInterrupt, attempting graceful shutdown...",
        'rank_zero_warn("Detected KeyboardInterrupt, attempting graceful shutdown...")',
    ),
    "torch.destroy_not_called": (
        "[rank0]:[W105 10:00:00.1 ProcessGroupNCCL.cpp:1250] Warning: WARNING: process group has NOT been destroyed before we destruct ProcessGroupNCCL.",
        "process group has been destroyed",
    ),
    "torch.watchdog_timeout": (
        "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600060 milliseconds before timing out.",
        "[Rank 3] Watchdog caught nothing: WorkNCCL(SeqNum=7, OpType=ALLREDUCE)",
    ),
    "torch.watchdog_exception": (
        "[PG 1 Rank 3] Exception (either an error or timeout) detected by watchdog at work: 1580, last enqueued NCCL work: 1582, last completed NCCL work: 1579.",
        "detected by watchdog at work: none",
    ),
    "torch.flight_recorder_state": (
        "failure detected by watchdog at work sequence id: 12 PG status: last enqueued work: 14, last completed work: 11",
        "work sequence id: 12",
    ),
    "torch.heartbeat_timeout": (
        "Heartbeat monitor timed out! Process will be terminated after dumping debug info.",
        "Heartbeat monitor started, it times out after 480 s",
    ),
    "torch.other_rank_dump": (
        "[Rank 1] Received a dump signal due to a collective timeout from this local rank and we will try our best to dump",
        "Received a signal from the launcher",
    ),
    "torch.abort_to_avoid_corruption": (
        "[Rank 3] To avoid data inconsistency, we are taking the entire process down.",
        "to avoid inconsistency of data, checkpoints are verified",
    ),
    "torch.collective_mismatch": (
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: CollectiveFingerPrint(OpType=BROADCAST), but Rank 1 is running collective: ALLREDUCE",
        "Detected mismatch between collectives on ranks.",
    ),
    "torch.monitored_barrier": (
        "RuntimeError: Rank 9 failed to pass monitoredBarrier in 1800000 ms",
        "using monitoredBarrier",
    ),
    "nccl.ib_completion_error": (
        "n1:1:2 [6] transport/net_ib.cc:2244 NCCL WARN NET/IB: Got completion from peer 10.0.0.5<53908> with status=12 opcode=129 len=1048576 vendor err 129 (Recv) hca mlx5_10",
        "Got completion from peer 10.0.0.5<53908>",
    ),
    "nccl.ib_flushed": (
        "n1:1:2 [6] transport/net_ib.cc:2244 NCCL WARN NET/IB: Got completion from peer 10.0.0.5<53908> with status=5 opcode=0 len=0 vendor err 249 (Recv)",
        "NET/IB: Got completion from peer 10.0.0.5<53908> of request 5",
    ),
    "nccl.ib_async_event": (
        "NCCL WARN NET/IB : mlx5_3:1 Got async event : port error",
        "NCCL INFO NET/IB : mlx5_3:1 Got async event : GID table change",
    ),
    "nccl.ib_no_device": (
        "NCCL WARN Call to ibv_create_qp failed with error Cannot allocate memory",
        "NCCL INFO Call to ibv_create_qp took 3 ms",
    ),
    "nccl.socket_closed": (
        "misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer node7<44123>",
        "NCCL INFO peer node7<44123>",
    ),
    "nccl.remote_error": (
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
        "remote process exited normally",
    ),
    "nccl.unhandled_system_error": (
        "NCCL error: unhandled system error, NCCL version 2.20.5",
        "NCCL INFO system error handling is on",
    ),
    "nccl.unhandled_cuda_error": (
        "NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled cuda error, NCCL version 2.20.5",
        "a handled cuda error",
    ),
    "nccl.internal_error": ("ncclInternalError: Internal check failed.", "internal check passed"),
    "nccl.invalid_usage": (
        "NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000",
        "no GPU is used twice",
    ),
    "nccl.shm_failed": (
        "NCCL WARN Error: failed to extend /dev/shm/nccl-abc to 9637892 bytes",
        "extended /dev/shm/nccl-abc",
    ),
    "nccl.aborted": ("[Rank 3] NCCL communicator was aborted on rank 3.", "NCCL communicator was created on rank 3."),
    "gloo.connection_closed": (
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.4]:38211",
        "connection to 10.0.0.4 closed",
    ),
    "cuda.ecc": (
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "ECC is enabled, 0 uncorrectable errors",
    ),
    "cuda.gpu_lost": (
        "pynvml.NVMLError_GpuIsLost: GPU is lost",
        "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
    ),
    "cuda.hardware_exception": ("RuntimeError: CUDA error: hardware stack error", "CUDA hardware found"),
    "cuda.fabric_not_ready": ("RuntimeError: CUDA error: system not yet initialized", "CUDA system initialized"),
    "cuda.unknown_error": (
        "RuntimeError: CUDA error: unspecified launch failure",
        "RuntimeError: unknown error of the scheduler",
    ),
    "cuda.illegal_access": (
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "an illegal operation was encountered",
    ),
    "cuda.device_assert": (
        "RuntimeError: CUDA error: device-side assert triggered",
        "Compile with TORCH_USE_CUDA_DSA to enable device-side assertions.",
    ),
    "cuda.index_assert": (
        "Indexing.cu:1290: indexSelectLargeIndex: block: [12,0,0] Assertion `srcIndex < srcSelectDimSize` failed.",
        "Assertion `x > 0` failed.",
    ),
    "cuda.nvlink_peer": (
        "RuntimeError: CUDA error: invalid access of peer GPU memory over NVLink or a hardware error",
        "peer access over NVLink is enabled",
    ),
    "cuda.driver_mismatch": ("the provided PTX was compiled with an unsupported toolchain.", "driver version 550.54"),
    "cuda.no_peer_access": (
        "RuntimeError: CUDA error: peer access is not supported between these two devices",
        "peer access is enabled between these two devices",
    ),
    "gpu.driver_replaced": (
        "Failed to initialize NVML: Driver/library version mismatch",
        "NVML library version: 550.54",
    ),
    "cuda.no_device": ("RuntimeError: No CUDA GPUs are available", "8 CUDA GPUs are available"),
    "cuda.no_kernel_image": (
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        "an image of the kernel is available",
    ),
    "cuda.cublas_failed": (
        "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`",
        "CUBLAS_STATUS_SUCCESS",
    ),
    "launcher.first_failure": (
        "failed (exitcode: -9) local_rank: 3 (pid: 4711) of binary: /usr/bin/python",
        "failed over to another server",
    ),
    "launcher.child_signal": (
        "  traceback : Signal 9 (SIGKILL) received by PID 4711",
        "Signal 10 (SIGUSR1) received by PID 4711",
    ),
    "launcher.sigterm": ("Sending process 4711 closing signal SIGTERM", "Sending process 4711 a request"),
    "deepspeed.killing": (
        "[2026-01-05 10:00:00,123] [INFO] [launch.py:319:sigkill_handler] Killing subprocess 4711",
        "a subprocess was started",
    ),
    "mpi.abort": (
        "mpirun noticed that process rank 3 with PID 0 on node n2 exited on signal 9 (Killed).",
        "mpirun started 8 processes",
    ),
    "process.segfault": (
        "Fatal Python error: Segmentation fault",
        "srun: error: n1: task 3: Segmentation fault (core dumped)",
    ),
    "process.fatal_python": ("double free or corruption (!prev)", "a double freeze"),
    "process.killed": (
        "/var/spool/slurmd/job1/slurm_script: line 12:  4711 Killed                  python train.py",
        "3 stale workers were Killed by hand",
    ),
    "python.exception": ("Traceback (most recent call last):", "Traceback of the last call"),
    "python.import": ("ModuleNotFoundError: No module named 'flash_attn'", "module flash_attn was found"),
    "python.no_terminal": ("EOFError: EOF when reading a line", "yes: standard output: EOF when reading"),
    "shell.not_found": (
        "bash: torchrun: command not found",
        "cat: /sys/fs/cgroup/memory.max: No such file or directory",
    ),
    "shell.denied": (
        "PermissionError: [Errno 13] Permission denied: '/data/x'",
        "rm: cannot remove '/tmp/x': Permission denied",
    ),
    "args.unrecognised": ("train.py: error: unrecognized arguments: --tp 8", "no error: all arguments are known"),
    "torch.cuda_oom": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79.10 GiB of which 1.62 GiB is free.",
        "except torch.OutOfMemoryError:",
    ),
    "cuda.alloc_failed": (
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "CUBLAS_STATUS_SUCCESS after allocation",
    ),
    "slurm.oom_kill": (
        "slurmstepd: error: Detected 1 oom_kill event in StepId=1234.0. Some of the step tasks have been OOM Killed.",
        "slurmstepd: no events were detected",
    ),
    "slurm.memory_exceeded": (
        "slurmstepd: error: Step 1234.0 exceeded memory limit (530120704 > 524288000), being killed",
        "memory limit is 524288000",
    ),
    "host.cannot_allocate": ("OSError: [Errno 12] Cannot allocate memory", "torch.OutOfMemoryError: CUDA"),
    "torch.dataloader_killed": (
        "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed.",
        "DataLoader worker (pid 4711) started",
    ),
    "torch.shm_bus_error": (
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
        "sufficient shared memory",
    ),
    "megatron.nan_loss": (
        "AssertionError: Rank 3: found NaN in local forward loss calculation. Device: 3, node: n1",
        "found no NaN, number of nan iterations: 0",
    ),
    "train.nan_loss": ("step 12 loss: nan", "step 12 loss: 2.1 nan iterations: 0"),
    "amp.scale_exhausted": (
        "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
        "loss scale: 65536",
    ),
    "torch.anomaly": (
        "RuntimeError: Function 'PowBackward0' returned nan values in its 0th output.",
        "Function returned values",
    ),
    "rendezvous.address_in_use": (
        "The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
        "an address that is in use by no one",
    ),
    "rendezvous.connection_refused": (
        "[W socket.cpp:601] The client socket has failed to connect to [n1]:29500 (errno: 111 - Connection refused).",
        "the connection was accepted",
    ),
    "rendezvous.store_timeout": (
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 63/64 clients joined.",
        "Timed out after the last step of 10",
    ),
    "rendezvous.closed": ("torch.distributed.elastic.rendezvous.api.RendezvousClosedError", "the rendezvous is open"),
    "rendezvous.store_lost": (
        "[W TCPStore.cpp:122] recvValue failed on SocketImpl(fd=67): failed to recv, got 0 bytes",
        "received 8 bytes",
    ),
    "rendezvous.name_unknown": ("gai error: -2 - Name or service not known", "the service is known by its name"),
    "nccl.bootstrap_failed": ("NCCL WARN Bootstrap : no socket interface found", "bootstrap.cc:12 NCCL INFO ready"),
    "slurm.time_limit": (
        f"slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT {_AT} DUE TO TIME LIMIT ***",
        "it may be cancelled DUE TO TIME LIMIT",
    ),
    "slurm.preempted": (
        f"slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT {_AT} DUE TO PREEMPTION ***",
        "jobs end DUE TO PREEMPTION here",
    ),
    "slurm.node_failure": (
        f"slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT {_AT} DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
        "it was DUE TO NODE FAILURE last week",
    ),
    "slurm.requeue": (
        f"slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT {_AT} DUE TO JOB REQUEUE ***",
        "DUE TO JOB REQUEUE",
    ),
    "slurm.task_failure": (
        f"slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT {_AT} DUE TO TASK FAILURE ***",
        "DUE TO TASK FAILURE",
    ),
    "slurm.cancelled": (
        f"slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT {_AT} ***",
        f"*** JOB 12 ON n1 CANCELLED AT {_AT} DUE TO TIME LIMIT ***",
    ),
    "slurm.unkillable": (
        "slurmstepd: error: *** JOB 12 STEPD TERMINATED ON n1 AT 2026-01-05T10:00:00 DUE TO JOB NOT ENDING WITH SIGNALS ***",
        "the job ended with signals",
    ),
    "slurm.task_killed": (
        "srun: error: n1: task 3: Segmentation fault (core dumped)",
        "srun: error: n1: task 3: Segmentation pending",
    ),
    "slurm.launch_failed": (
        "srun: error: Unable to create step for job 12: More processors requested than permitted",
        "user text: Unable to create step for job",
    ),
    "slurm.node_not_responding": (
        "srun: error: Timed out waiting for job step to complete",
        "a talk on Node failure on Mondays",
    ),
    "slurm.prolog_failed": ("slurmstepd: error: TaskProlog failed status=1", "our TaskProlog failed last year"),
    "slurm.step_aborted": (
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
        "srun: job step finished",
    ),
    "storage.full": ("OSError: [Errno 28] No space left on device: '/ckpt/x'", "there is space left on this device"),
    "storage.stale": ("OSError: [Errno 116] Stale file handle", "file handle 3"),
    "storage.io_error": ("OSError: [Errno 5] Input/output error", "THEIR input and output"),
    "storage.lustre": (
        "LustreError: 167-0: fs01-OST0003: This client was evicted by fs01-OST0003",
        "Lustre is mounted",
    ),
    "checkpoint.unfit": (
        "RuntimeError: Error(s) in loading state_dict for GPT:",
        "loading state_dict of GPT from step 1000",
    ),
    "storage.broken_file": (
        "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
        "PytorchStreamReader read 3 tensors",
    ),
    "slurm.not_authentic": (
        'srun: error: Munge encode failed: Failed to access "/run/munge/munge.socket.2": No such file or directory',
        "srun: error: Task launch failed on node n7",
    ),
    "rdma.completion_error": (
        "mlx5: gpu012: got completion with error:",
        "the loop got completion with error: none",
    ),
    "rendezvous.cannot_listen": (
        "[E socket.cpp:472] [c10d] The server socket has failed to listen on any local network address.",
        "[I socket.cpp:566] [c10d] The server socket has started to listen on [::]:29500.",
    ),
    "nccl.net_plugin_error": (
        "n1:1:2 [6] NCCL WARN NET/OFI Request 0x7f completed with error. RC: 107. Error: Transport endpoint is not connected",
        "n1:1:2 [6] NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)",
    ),
    "nccl.message_truncated": (
        "n1:1:2 [6] NCCL WARN NET/Socket : peer 10.0.0.4<1> message truncated : receiving 1024 bytes instead of 8",
        "the summary was truncated: 8 of 1024 messages",
    ),
    "ucx.transport_error": (
        "[1749636000.1] [n05:42 :0] ib_mlx5_log.c:171  UCX  ERROR Transport retry count exceeded on mlx5_0:1/IB (synd 0x15)",
        "[1749636000.1] [n05:42 :0] ucp_context.c:1 UCX  ERROR exceeded transports list, network device 'mlx5_9' is not available",
    ),
    "cuda.device_busy": (
        "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
        "the device is busy",
    ),
    "config.hydra": (
        "Could not override 'trainer.devces'.",
        "Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.",
    ),
    "hub.unreachable": (
        "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the cached files.",
        "wandb: offline mode is enabled",
    ),
    "host.limits": ("OSError: [Errno 24] Too many open files: '/data/shard_7'", "open files limit: 65536"),
    "container.start_failed": (
        "slurmstepd: error: pyxis:     [ERROR] No such file or directory: /images/x.sqsh",
        "pyxis: starting container ...",
    ),
    "mpi.cannot_start": ("srun: error: invalid MPI type 'pmix', --mpi=list for acceptable types", "MPI type: pmix"),
    "mpi.pmix_error": (
        "srun: error: mpi/pmix_v4: _errhandler: n3 [1]: pmixp_client_v2.c:212: Error handler invoked: status = -25",
        "srun: loaded plugin mpi/pmix_v4",
    ),
    "mpi.lost_daemon": ("  Remote daemon: [[26135,0],3] on node n04", "  HNP daemon   : [[26135,0],0] on node n01"),
    "launcher.rank_ended": ("ERROR:composer.cli.launcher:Rank 3 crashed with exit code -9.", "INFO: Rank 3 started"),
    "torch.dataloader_crashed": (
        "RuntimeError: DataLoader worker (pid 42) is killed by signal: Segmentation fault. ",
        "the request is killed by signal: 11",
    ),
    "slurm.task_out_of_memory": (
        "srun: error: n1: task 4: Out Of Memory",
        "Out Of Memory errors are explained in the manual",
    ),
    "torch.nan_check": (
        "NanCheck.cu:235: checkForNaN: block: [0,0,0], thread: [0,0,0] Assertion `!isnan(tailPtr[threadIdx.x])` failed.",
        "checkForNaN is on",
    ),
    "rendezvous.unique_id": (
        "torch.distributed.DistBackendError: [3] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: Socket Timeout",
        "[3] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: Connection reset by peer",
    ),
    "storage.write_failed": (
        "RuntimeError: [enforce fail at inline_container.cc:595] . unexpected pos 64 vs 0",
        "[enforce fail at inline_container.cc:197] . file not found: archive/data/6",
    ),
    "slurm.node_lost": ("srun: error: Node failure on n07", "Node failure on any node ends the job"),
    "slurm.launch_on_node_failed": (
        "srun: error: Task launch for StepId=4711.0 failed on node n03: Communication connection failure",
        "srun: error: Task launch for StepId=4711.0 was late",
    ),
    "batch.time_limit": ("TERM_RUNLIMIT: job killed after reaching LSF run time limit.", "time limit: 3600"),
    "kernel.nfs": ("nfs: server nas1 not responding, still trying", "nfs: server nas1 OK"),
    "kernel.lustre": (
        "LustreError: 167-0: scratch-OST0012-osc: This client was evicted by scratch-OST0012; in progress operations using this service will fail.",
        "Lustre: scratch-OST0012-osc: Connection restored to 10.0.0.5@o2ib (at 10.0.0.5@o2ib)",
    ),
    "kernel.gpfs": (
        "[E] Lost membership in cluster gpfs.site. Unmounting file systems.",
        "[N] Node 10.0.0.1 joined the cluster",
    ),
    "kernel.disk": ("blk_update_request: I/O error, dev nvme0n1, sector 2048 op 0x0:(READ)", "I/O errors are counted"),
    "kernel.filesystem": (
        "EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: comm ls: reading directory lblock 0",
        "EXT4-fs (sda1): mounted filesystem with ordered data mode",
    ),
    "kernel.ceph": ("ceph: mds0 hung", "ceph: mds0 recovery completed"),
    "launcher.root_rank": ("Root Cause (first observed failure):", "the root cause was not found"),
    "jax.barrier_timeout": (
        "XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: [Init]Wait_for_all_tasks_to_register::0.",
        "Barrier timed out. Id: [Shutdown]",
    ),
    "jax.heartbeats_stopped": (
        "XlaRuntimeError: UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats): /job:jax_worker/replica:0/task:3",
        "heartbeat timeout: 100 s",
    ),
    "nccl.nvls_failed": (
        "n1:1:2 [0] transport/nvls.cc:258 NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 1 'invalid argument'.",
        "n1:1:2 [0] NCCL INFO NVLS multicast support is available on dev 0",
    ),
    "nvlink.diagnosed": ("GPU 4's NvLink link 9 is currently down", "GPU 4's NvLink link 9 is currently up"),
    "nvlink.fabric_manager": (
        "[Jul 23 2024 07:53:55] [ERROR] [tid 841] detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id 00000000:86:00.0 physical id 3 port 33",
        "[Jul 23 2024 07:53:55] [INFO] [tid 841] detected NVSwitch type 3",
    ),
    "gpu.diagnosed": (
        "GPU 3 had uncorrectable memory errors and row remapping failed.",
        "GPU 3 had memory errors and row remappings are pending",
    ),
    "hip.memory_fault": (
        "Memory access fault by GPU node-5 (Agent handle: 0x55d0) on address 0x7f5b2a000000. Reason: Page not present or supervisor privilege.",
        "GPU node-5 has 64 GiB",
    ),
    "hip.gpu_hang": ("HW Exception by GPU node-9 (Agent handle: 0x6313) reason :GPU Hang", "GPU node-9 is idle"),
    "kernel.amdgpu": (
        "amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!",
        "[drm] amdgpu kernel modesetting enabled.",
    ),
    "build.failed": (
        "make: *** [makefile:8: build/main] Error 1",
        "make: *** [clean] Error 1 (ignored)",
    ),
    "build.toolchain": (
        "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.",
        "CUDA_HOME=/usr/local/cuda",
    ),
    "cuda.handle_not_created": (
        "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        "CUBLAS_STATUS_SUCCESS",
    ),
    "serving.no_kv_cache": (
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.",
        "INFO: GPU KV cache size: 98,304 tokens",
    ),
    "tensorflow.allocation_retried": (
        "Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.55GiB with freed_by_count=0. The caller indicates that this is not a failure, but may mean that there could be performance gains if more memory were available.",
        "the caller gave up",
    ),
    "ofi.completion_error": (
        "MPIDI_OFI_handle_cq_error(1067): OFI poll failed (ofi_events.c:1069:MPIDI_OFI_handle_cq_error:Input/output error - UNDELIVERABLE)",
        "NET/OFI Selected Provider is cxi",
    ),
    "tensorflow.no_cluster": (
        "2023-05-02 10:11:12.123456: E tensorflow/core/common_runtime/eager/context_distributed_manager.cc:699] Could not start gRPC server",
        "2023-05-02 10:11:12.123456: I tensorflow/core/common_runtime/eager/context_distributed_manager.cc:699] Could start the server",
    ),
    "gloo.full_mesh": (
        "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error",
        "[Gloo] Rank 0 is connected to 7 peer ranks. Expected number of connected peer ranks is : 7",
    ),
    "nccl.connect_gave_up": (
        "n1:1:2 [3] misc/socket.cc:544 NCCL WARN socketPollConnect: connect to 10.1.2.3<49911> returned Connection refused, exceeded error retry count after 35 attempts",
        "n1:1:2 [3] NCCL INFO socketPollConnect: connect to 10.1.2.3<49911> returned Connection timed out, retrying (3/34) after sleep for 300 msec",
    ),
    "ray.no_cluster": (
        "ConnectionError: Could not find any running Ray instance. Please specify the one to connect to by setting `--address` flag",
        "Connecting to existing Ray cluster at address: 10.0.0.5:6379...",
    ),
    "ray.node_dead": (
        "The node with node id: 1f2e and address: 10.0.0.5 and node name: 10.0.0.5 has been marked dead because the detector has missed too many heartbeats from it.",
        "The node with node id: 1f2e is alive",
    ),
    "ssh.unreachable": (
        "ssh: connect to host gpu003 port 22: Connection timed out",
        "ssh: connect to host gpu003 port 22",
    ),
    "ssh.denied": ("u1@gpu003: Permission denied (publickey,gssapi-with-mic).", "Host key verification succeeded"),
    "storage.errno": (
        "OSError: [Errno 37] No locks available: '/home/u1/.triton/cache/lock'",
        "OSError: [Errno 110] Connection timed out",
    ),
    "storage.object_store": (
        'botocore.exceptions.EndpointConnectionError: Could not connect to the endpoint URL: "https://s3.local/b"',
        "uploaded to https://s3.local/b",
    ),
    "shell.syntax": (
        "/work/job.sh: line 12: syntax error near unexpected token `done'",
        "job.sh: the token is near",
    ),
    "hub.unknown_model": (
        "OSError: meta-llama/Llama-9 is not a local folder and is not a valid model identifier listed on 'https://huggingface.co/models'",
        "loading meta-llama/Llama-3 from the hub",
    ),
    "slurm.bad_request": (
        "srun: fatal: SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU, and SLURM_MEM_PER_NODE are mutually exclusive.",
        "ValueError: --a and --b are mutually exclusive.",
    ),
    "deepspeed.asked_to_end": (
        "[2026-01-05 08:42:11,420] [INFO] [launch.py:328:sigkill_handler] Main process received SIGINT, exiting",
        "Main process received SIGTERM, exiting",
    ),
    "shell.child_ended": (
        "/work/job.sh: line 184: 2324239 Aborted                 (core dumped) litgpt pretrain",
        "/work/job.sh: line 184: echo Aborted",
    ),
    "train.nan_gradients": (
        " iteration     5426/  250000 | loss scale: 1.0 | grad norm: nan | number of skipped iterations:   0 |",
        "Epoch: [115]  grad_norm: 0.3922 (nan)  time: 0.4944",
    ),
    "nccl.mnnvl_failed": (
        "n1:1:2 [0] init.cc:900 NCCL WARN MNNVL (cliqueSize 8) is available but not working on this system. Check the IMEX channel configuration (/dev/nvidia-caps-imex-channels). Set NCCL_MNNVL_ENABLE=0 to ignore this issue.",
        "n1:1:2 [0] NCCL INFO MNNVL busId 0x1a000 fabric UUID 0.0 cliqueId 0x0 state 3 healthMask 0x0",
    ),
    "nccl.p2p_disabled": (
        "n1:1:2 [0] graph/paths.cc:396 NCCL WARN P2P is disabled between NVLINK connected GPUs 1 and 0. This should not be the case given their connectivity, and is probably due to a hardware issue.",
        "n1:1:2 [0] NCCL INFO P2P is disabled between connected GPUs 1 and 0. You can repress this message with NCCL_IGNORE_DISABLED_P2P=1.",
    ),
    "nccl.peering_failed": (
        "n1:1:2 [0] transport/p2p.cc:247 NCCL WARN failed to peer with device 3(=1b000): 217 peer access is not supported between these two devices",
        "n1:1:2 [0] NCCL INFO P2P with device 3 is used",
    ),
    "cuda.launch_refused": (
        "RuntimeError: CUDA error: too many resources requested for launch",
        "resources were requested for launch at 10:00",
    ),
    "cuda.capture_failed": (
        "RuntimeError: CUDA error: operation not permitted when stream is capturing",
        "Capturing CUDA graphs (decode, FULL): 100%",
    ),
    "cuda.mps_failed": (
        "RuntimeError: CUDA error: MPS client failed to connect to the MPS control daemon or the MPS server",
        "the MPS server is ready",
    ),
    "host.heap_exhausted": (
        "java.lang.OutOfMemoryError: Java heap space",
        "memory allocation of workers is even",
    ),
    "nccl.ranks_doubled": (
        "n1:1:2 [0] bootstrap.cc:231 NCCL WARN Bootstrap Root : rank 3 of 8 ranks has already checked in",
        "the guest has already checked in",
    ),
    "mpi.daemons_not_started": (
        "ORTE was unable to reliably start one or more daemons.",
        "all daemons were started",
    ),
    "mpi.bad_request": (
        "mpirun was unable to find the specified executable file, and therefore",
        "mpirun started the specified executable file",
    ),
    "mpi.init_failed": (
        "It looks like MPI_INIT failed for some reason; your parallel process is",
        "your parallel process is running",
    ),
    "mpi.network_failed": (
        "The InfiniBand retry count between two MPI processes has been",
        "[[1,1],3][btl_openib_component.c:3689:handle_wc] from n1 to: n2 error polling LP CQ with status WORK REQUEST FLUSHED ERROR status number 5 for wr_id 7f",
    ),
    "nccl.ib_devices_failed": (
        "n1:1:2 [0] transport/net_ib/common.cc:40 NCCL WARN communicator encountered a fatal error (detected in ncclIbTest)",
        "n1:1:2 [0] NCCL INFO communicator is ready",
    ),
    "nccl.timed_out": ("NCCL error: ncclTimeout", "state is ncclInProgress"),
    "nccl.proxy_failed": (
        "n1:1:2 [0] proxy.cc:1500 NCCL WARN [Service thread] Error encountered progressing operation=Connect, res=3, closing connection",
        "n1:1:2 [0] NCCL INFO [Service thread] Connection closed by localRank 0",
    ),
    "nccl.topology_failed": (
        "n1:1:2 [0] graph/topo.cc:1300 NCCL WARN Could not find any local path from gpu 3 to net.",
        "n1:1:2 [0] NCCL INFO Could not find any local path from gpu 3 to net: using another.",
    ),
    "torch.mismatched_shapes": (
        "RuntimeError: [3]: params[0] in this process with sizes [50257, 768] appears not to match sizes of the same param in process 0.",
        "a batch with sizes 50257 and 768",
    ),
    "torch.unused_parameters": (
        "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.",
        "reduction finished in the prior iteration",
    ),
    "storage.object_denied": (
        "botocore.exceptions.ClientError: An error occurred (AccessDenied) when calling the PutObject operation: Access Denied",
        "credentials were read from the environment",
    ),
    "storage.unmounted": (
        "mount.nfs: Connection timed out for nas1:/data: failed",
        "/data is a mount point of nas1",
    ),
    "torch.invalid_distribution": (
        "ValueError: Expected parameter loc (Tensor of shape (8, 4)) of distribution Normal(loc: torch.Size([8, 4])) to satisfy the constraint Real(), but found invalid values:",
        "all parameters are to satisfy the constraint Real()",
    ),
    "train.no_solution": ("numpy.linalg.LinAlgError: SVD did not converge", "SVD converged in 12 sweeps"),
    "ray.version_mismatch": (
        "RuntimeError: Version mismatch: The cluster was started with:",
        "The cluster was started with: ray start --head",
    ),
    "ray.too_few_gpus": (
        "ValueError: Total available GPUs 8 is less than total desired GPUs 16",
        "Total available GPUs: 16",
    ),
    "ray.raylet_lost": (
        "core_worker.cc:910: Shutting down the core worker because the local raylet failed. Check out the raylet.out log file.",
        "Shutting down the core worker because the program has ended",
    ),
    "ray.preempted": (
        "\tthe actor's node was preempted: taken back",
        "Task train failed due to node preemption on node 10.0.0.5. The task will be retried",
    ),
    "ray.environment_failed": (
        "ray.exceptions.RuntimeEnvSetupError: Failed to set up runtime environment.",
        "Runtime environment is set up",
    ),
    "ray.memory_monitor": (
        "(raylet) 1 worker(s) were killed due to the node running low on memory.",
        "0 workers are killed when the node is low on memory",
    ),
    "ray.object_store_full": (
        "ray.exceptions.ObjectStoreFullError: Failed to put object 00ff in object store because it is full.",
        "the object store is 12 % full",
    ),
    "ray.disk_full": (
        "ray.exceptions.OutOfDiskError: Local disk is full",
        "(raylet) file_system_monitor.cc:116: /tmp/ray/session_1 is over 95% full",
    ),
    "ray.worker_lost": (
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
        "The actor finished this task",
    ),
    "ray.worker_raised": (
        "The actor died because of an error raised in its creation task, ray::Worker.__init__()",
        "The actor was created by its creation task",
    ),
    "ray.actor_ended": (
        "The actor is dead because it was killed by `ray.kill`.",
        "`ray.kill` ends an actor",
    ),
    "rendezvous.barrier_waiting": (
        "INFO:torch.distributed.distributed_c10d:Waiting in store based barrier to initialize process group for rank: 3, key: store_based_barrier_key:1 (world_size=16, num_workers_joined=12, timeout=0:30:00)",
        "Added key: store_based_barrier_key:1 to store for rank: 3",
    ),
    "rendezvous.barrier_passed": (
        "Rank 3: Completed store-based barrier for key:store_based_barrier_key:1 with 16 nodes.",
        "a store-based barrier is used at the start",
    ),
    "horovod.no_common_network": (
        "Horovod was unable to connect to driver service on any of the following addresses: {'lo': [('127.0.0.1', 1)]}.",
        "Horovod connects to driver service",
    ),
    "ofi.match_resources": (
        "LE resources not recovered during flow control. FI_CXI_RX_MATCH_MODE=[hybrid|software] is required",
        "FI_CXI_RX_MATCH_MODE=hybrid",
    ),
    "nvshmem.not_initialised": (
        "transport.cpp:nvshmemi_transport_init:275: Unable to initialize any transports. returning error.",
        "nvshmem initialization took 3 s",
    ),
    "nvshmem.operation_failed": (
        "libfabric.cpp:nvshmemt_libfabric_slow_poll:210: Error in libfabric operation (5): Input/output error.",
        "libfabric operations: 5",
    ),
    "deepep.timeout": (
        "DeepEP timeout for dispatch receivers, rank 3, responsible_channel = 2, tokens remained: 17",
        "DeepEP initialized with NCCL version: 2.30.4 (loaded library)",
    ),
    "config.no_environment": ("KeyError: 'MASTER_ADDR'", "KeyError: 'master_addr'"),
    "config.launcher_mismatch": (
        "AssertionError: world size (24) is not divisible by total_model_size (16)",
        "world size (24) is divisible by 8",
    ),
    "hub.no_login": (
        "wandb.errors.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[your_api_key])",
        "wandb: Currently logged in as: u1",
    ),
    "shell.module_unknown": (
        'Lmod has detected the following error:  The following module(s) are unknown: "cuda/99.1"',
        "Lmod has detected the following changes: cuda/12.1 => cuda/12.4",
    ),
    "shell.cannot_execute": (
        "bash: ./train: cannot execute binary file: Exec format error",
        "the format of train is executable",
    ),
    "host.locked_memory": (
        "[1705312345.67] [n1:3112 :0] ib_md.c:309  UCX  ERROR ibv_reg_mr(address=0x7f) failed: Cannot allocate memory : Please set max locked memory (ulimit -l) to 'unlimited' (current: 64 kbytes)",
        "max locked memory       (kbytes, -l) unlimited",
    ),
    "kernel.stuck_in_files": (
        " rpc_wait_bit_killable+0x1e/0xb0 [sunrpc]",
        "rpc_wait_bit_killable is traced",
    ),
    "kernel.beegfs": (
        "beegfs: kworker/3:1(1234) [NodeConn (acquire stream)] >> Connect failed: storage01",
        "beegfs: File system mounted",
    ),
    "kernel.lnet": (
        "LNetError: 1234:0:(o2iblnd_cb.c:3335:kiblnd_check_txs_locked()) Timed out tx: active_txs, 3 seconds",
        "LNet: Added LNI 10.0.0.5@o2ib [8/256/0/180]",
    ),
    "kernel.amdgpu_page_fault": (
        "amdgpu 0000:c1:00.0: amdgpu: [gfxhub0] no-retry page fault (src_id:0 ring:24 vmid:3 pasid:32770, for process python pid 42)",
        "amdgpu 0000:c1:00.0: amdgpu: page faults are retried",
    ),
    "kernel.limit_of_files": ("VFS: file-max limit 1048576 reached", "VFS: Disk quotas dquot_6.6.0"),
    "cuda.init_failed": (
        "n1:1:2 [6] init.cc:263 NCCL WARN Cuda failure 'initialization error'",
        "n1:1:2 [6] NCCL INFO initialization is complete",
    ),
    "gloo.timeout": (
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete",
        "the recv operation is to complete within 1800000 ms",
    ),
    "jax.rendezvous_timeout": (
        "F0105 10:00:00.1 3112 rendezvous.cc:100] Termination timeout for `first call to collective operation 3` of 40 seconds exceeded. Exiting to ensure a consistent program state. Expected 8 threads to join the rendezvous, but only 7 of them arrived on time.",
        "all 8 threads joined the rendezvous",
    ),
    "serving.worker_timeout": (
        "TimeoutError: RPC call to execute_model timed out.",
        "RPC call to execute_model took 3 s",
    ),
    "slurm.script_missing": (
        "slurmstepd: error: execve(): /var/spool/slurmd/job00089/slurm_script: No such file or directory",
        "slurmstepd: error: execve(): /home/u/run.sh: No such file or directory",
    ),
    "slurm.controller_unreachable": (
        "srun: error: Unable to confirm allocation for job 4711: Unable to contact slurm controller (connect failure)",
        "Unable to contact slurm controller is what our users fear most",
    ),
    "slurm.query_unanswered": (
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        "slurm_load_jobs error: Invalid job id specified",
    ),
    "slurm.no_configuration": (
        "sbatch: fatal: Could not establish a configuration source",
        "sbatch: the configuration source is /etc/slurm/slurm.conf",
    ),
    "submitit.preempted": (
        "submitit WARNING (2026-01-05 10:00:00,100) - Caught signal SIGUSR2 on gpu011: this job is preempted.",
        "submitit INFO (2026-01-05 10:00:00,100) - Job has not timed out. Ran 1 minutes out of requested 20 minutes.",
    ),
    "submitit.timed_out": (
        "submitit WARNING (2026-01-05 10:00:00,100) - Caught signal SIGUSR2 on gpu011: this job is timed-out.",
        "submitit INFO (2026-01-05 10:00:00,100) - Job has not timed out. Ran 1 minutes out of requested 20 minutes.",
    ),
    "mpi.no_pmi": (
        "PMI2_Init failed to intialize.  Return code: 1",
        "PMI2_Init returned 0",
    ),
    "mpi.first_exit": (
        "  Process name: [prterun-gpu011-4711@1,3]",
        "  Process name: python3",
    ),
    "serving.worker_died": (
        "ERROR 01-05 10:00:00 [multiproc_executor.py:140] Worker proc VllmWorker-1 died unexpectedly, shutting down executor.",
        "INFO 01-05 10:00:00 [multiproc_executor.py:140] Worker proc VllmWorker-1 is ready",
    ),
    "python.raised": (
        "AssertionError: 250682 is not divisible by 8",
        "250682 is not divisible by 8",
    ),
    "horovod.stalled": (
        "[1,0]<stderr>:[2026-01-05 10:00:00.1: W horovod/common/stall_inspector.cc:105] One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds.",
        "the ranks are waiting for data",
    ),
    "horovod.shut_down": (
        "AbortedError: Horovod has been shut down. This was caused by an exception on one of the ranks or an attempt to allreduce a tensor after one of the ranks finished execution.",
        "Horovod has been shut down by its user",
    ),
    "launcher.command_ended": (
        "subprocess.CalledProcessError: Command '['python', 'train.py']' died with <Signals.SIGKILL: 9>.",
        "subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit status 1.",
    ),
    "cuda.not_allowed": (
        "RuntimeError: CUDA error: operation not supported",
        "NCCL WARN Cuda failure 801 'operation not supported'",
    ),
    "cuda.forked": (
        "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start method",
        "the start method is fork",
    ),
    "hip.out_of_resources": (
        ":0:rocdevice.cpp            :2984: 12345 us: [pid:3112 tid:0x7f] Callback: Queue 0x7f aborting with error : HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate the necessary resources. Available Free mem : 0 MB Code: 0x1008",
        ":3:rocdevice.cpp            :2984: 12345 us: [pid:3112 tid:0x7f] Available Free mem : 65000 MB",
    ),
    "torch.dataloader_ended": (
        "RuntimeError: DataLoader worker (pid 3112) exited unexpectedly with exit code 1. Details are lost due to multiprocessing. Rerunning with num_workers=0 may give better error trace.",
        "a worker exited unexpectedly with exit code 1",
    ),
    "process.bus_error": (
        "[gpu012:3112 :0:3390] Caught signal 7 (Bus error: nonexistent physical address)",
        "[gpu012:3112 :0:3390] Caught signal 15 (Terminated)",
    ),
    "batch.memory_limit": (
        "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.",
        "Max Memory :                                 1024 MB",
    ),
    "batch.cancelled": ("TERM_OWNER: job killed by owner.", "Job 4711 is owned by u"),
    "batch.ended": ("Exited with exit code 1.", "Exited with exit code 0."),
    "program.exit_status": ("Job finished with exit code 1", "Job finished with exit code 0"),
    "program.last_words_on_files": ("Missing Slurm script: /home/u/train.slurm", "12 files, none is missing"),
    "program.last_words_on_itself": ("SCF did not converge after 200 iterations", "relative error: 1.2e-05"),
    "batch.preempted": ("TERM_PREEMPT: job killed after preemption.", "the queue is preemptable"),
    "nccl.ib_absent": (
        "gpu012:31:31 [0] NCCL INFO NET/IB : No device found.",
        "NCCL INFO NET/IB : Using [0]mlx5_0:1/IB",
    ),
    "lightgbm.no_network": (
        "[LightGBM] [Fatal] Connecting to rank 1 failed",
        "[LightGBM] [Warning] Connecting to rank 1 failed, waiting for 200 milliseconds",
    ),
    "lightgbm.fatal": (
        "[LightGBM] [Fatal] Cannot open data file train.txt",
        "[LightGBM] [Warning] Stopped training because there are no more leaves that meet the split requirements",
    ),
    "program.of_language": (
        "ERROR: LoadError: MethodError: no method matching load(::Int64)",
        "[ Info: LoadError is exported",
    ),
    "end.run_synced": (
        "wandb: Waiting for W&B process to finish... (success).",
        "wandb: Waiting for W&B process to finish... (failed 1). Press Control-C to abort syncing.",
    ),
    "end.tests_passed": (
        "=================== 11 passed, 1 xfailed, 3 warnings in 3.21s ===================",
        "=================== 1 failed, 11 passed in 3.21s ===================",
    ),
    "end.unit_tests_passed": (
        "Ran 12 tests in 0.412s\n\nOK (skipped=2)",
        "Ran 12 tests in 0.412s\n\nFAILED (errors=1)",
    ),
    "packages.installed": ("Successfully installed numpy-2.1.0", "Not Successfully installed numpy"),
    "end.of_program": (
        " Normal termination of Gaussian 16 at Mon Feb  1 10:40:44 2021.",
        " Error termination request processed by link 9999.",
    ),
    "end.last_words": (
        "ECM analysis workflow completed successfully in 236.33 seconds",
        "Checkpoint 12 was saved to out/12.pt",
    ),
    "end.workflow_done": ("10 of 10 steps (100%) done", "2 of 10 steps (20%) done"),
    "openmp.stopped": (
        "OMP: Error #15: Initializing libiomp5md.dll, but found libomp already initialized.",
        "OMP: Hint: Try decreasing the value of OMP_NUM_THREADS.",
    ),
    "program.of_simulation": (
        "ERROR on proc 0: Cannot open input script in.melt: No such file or directory (src/lammps.cpp:529)",
        "Last step: 1000",
    ),
    "sweep.next_trial": (
        "[I 2026-01-05 10:00:00,100] Trial 4 finished with value: 0.31 and parameters: {'lr': 0.1}.",
        "[W 2026-01-05 10:00:00,100] Trial 3 failed with value None.",
    ),
    "run.begins": ("nohup: ignoring input", "nohup: failed to run command"),
    "cuda.unknown_gpu": (
        "NVIDIA B200 with CUDA capability sm_100 is not compatible with the current PyTorch installation.",
        "CUDA is not available with the current PyTorch installation.",
    ),
    "program.of_chemistry": (
        " Error termination via Lnk1e in /apps/g16/l502.exe at Mon Jan  5 10:00:00 2026.",
        " Normal termination of Gaussian 16 at Mon Jan  5 10:00:00 2026.",
    ),
    "program.last_error": ("\nError: the matrix is singular", "\nErrors: 0"),
    "program.said_failed": (
        "RNA pipeline failed: clustering is required for the plot.",
        "12 jobs, 0 failed",
    ),
    "program.asks": ("Proceed ([y]/n)?", "Proceed ([y]/n)? y"),
    "perl.compile": (
        "Can't locate Bio/SeqIO.pm in @INC (you may need to install the Bio::SeqIO module) (@INC entries checked: /usr/share/perl5) at run.pl line 3.",
        "Loaded Bio/SeqIO.pm from @INC",
    ),
    "perl.died": (
        "cannot open reads.fa: No such file or directory at /opt/tools/split.pl line 120.",
        "Use of uninitialized value $n in addition (+) at /opt/tools/split.pl line 120.",
    ),
    "args.unknown_to_parser": (
        "tool: unrecognized option '--steps'",
        "tool: reads option --steps from the file",
    ),
    "program.usage": ("\nUsage: ./nbody BODIES STEPS", "\nUsage of memory: 12 GiB"),
    "shell.cannot_run": (
        "/usr/bin/env: 'python': No such file or directory",
        "env: the variables of this job",
    ),
    "packages.unresolved": (
        "ERROR: No matching distribution found for torch==9.9",
        "Requirement already satisfied: torch==2.9",
    ),
    "packages.not_here": (
        "Error in library(dplyr) : there is no package called 'dplyr'",
        "there is a package of that name",
    ),
    "compile.refused": (
        "src/solver.c:10:5: error: 'x' undeclared (first use in this function)",
        "relaxation: error: 0.002",
    ),
    "license.refused": ("License checkout failed.", "License checkout succeeded."),
    "program.of_physics": (
        "-------------- FATAL CALLED ---------------",
        "relaxation reached the required accuracy - stopping structural energy minimisation",
    ),
    "program.crashed": (
        "solver: mesh.cpp:12: int main(): Assertion `cells > 0' failed.",
        "sigFpe : Enabling floating point exception trapping (FOAM_SIGFPE).",
    ),
    "workflow.failed": (
        "ERROR ~ Error executing process > 'ALIGN (3)'",
        "[5c/0a12ff] NOTE: Process `ALIGN (3)` terminated with an error exit status (1) -- Execution is retried (1)",
    ),
    "workflow.refused": (
        "MissingInputException in rule align in file /home/ada/Snakefile, line 3:",
        "Building DAG of jobs...",
    ),
    "workflow.task_killed": (
        "  Process `ALIGN (3)` terminated with an error exit status (137)",
        "  Process `ALIGN (3)` ended with status 0",
    ),
    "program.of_sequencing": (
        "[E::bgzf_read] Read block operation failed with error 4 after 0 of 4 bytes",
        "[W::bam_hdr_read] EOF marker is absent. The input is probably truncated",
    ),
    "site.prolog_failed": (
        "prolog: DCGM diagnostics failed on gpu014, draining it",
        "prolog: all 8 GPUs passed",
    ),
    "mpi.ended_by": ("=   KILLED BY SIGNAL: 9 (Killed)", "=   RANK 1 PID 778427 RUNNING AT n012"),
    "mpi.bad_buffer": ("\tBad address(1)", "Bad addresses were left out"),
    "shell.not_found_localised": (
        "/var/spool/slurmd/job71/slurm_script: Zeile 12: solver: Kommando nicht gefunden.",
        "Zeile 12: das Kommando wurde gefunden",
    ),
    "workflow.interrupted": (
        "[SIGINT handler] DEBUG nextflow.Session - Session aborted -- Cause: SIGINT",
        "DEBUG nextflow.Session - Session await > all processes finished",
    ),
    "program.last_refusal": ("\nERROR: ../bin/solver not found or not executable", "\nERROR: the sum of weights is 0"),
    "program.system_error": ("Error: listen EACCES: permission denied /run/user/71/editor.sock", "EACCES is 13"),
    "mpi.called_abort": (
        "application called MPI_Abort(MPI_COMM_WORLD, 1) - process 3",
        "the application called MPI_Finalize",
    ),
    "batch.output_below": ("The output (if any) follows:", "The output (if any) is above this job summary."),
    "batch.report": (
        "Subject: Job 8253410: <train> in cluster <dcc> Exited",
        "Job 8253410 was submitted from host <n-1> by user <u> in cluster <dcc>",
    ),
    "torch.dataloader_terminated": (
        "RuntimeError: DataLoader worker (pid 3112) is killed by signal: Terminated.",
        "a worker is killed by signal: Terminated.",
    ),
    "lightgbm.connecting": (
        "[LightGBM] [Warning] Connecting to rank 7 failed, waiting for 17218 milliseconds",
        "[LightGBM] [Warning] Connecting to rank 7 failed, waiting for 200 milliseconds",
    ),
    "lightgbm.connected": ("[LightGBM] [Info] Connected to rank 7", "[LightGBM] [Info] Trying to bind port 12400..."),
    "slurm.connection_lost": (
        "srun: error: slurm_receive_msgs: [[gpu012]:6818] failed: Socket timed out on send/recv operation",
        "srun: debug: slurm_receive_msgs: [[gpu012]:6818] answered",
    ),
    "slurm.step_setup_failed": (
        "slurmstepd: error: container_p_join: open failed for /var/spool/slurm/1/.ns: No such file or directory",
        "slurmstepd: error: _cgroup_procs_check: failed on path (null)/cgroup.procs: No such file or directory",
    ),
    "slurm.interconnect_failed": (
        "srun: error: Task launch for StepId=1.0: Error configuring interconnect",
        "slurmctld: switch/hpe_slingshot: hpe_slingshot loaded",
    ),
    "slurm.allocation_timed_out": (
        "salloc: Job 12 has exceeded its time limit and its allocation has been revoked.",
        "salloc: Job allocation 12 has been revoked.",
    ),
    "slurm.pmix_timeout": (
        "slurmstepd: error:  mpi/pmix_v3: pmixp_coll_tree_reset_if_to: gpu012 [1]: pmixp_coll_tree.c:1317: 0x2b: collective timeout seq=0",
        "ProcessGroupNCCL: collective timeout seq=0",
    ),
    "batch.limit": (
        "=>> PBS: job killed: ncpus 35.2 exceeded limit 16 (sum)",
        "=>> PBS: ncpus 35.2 of 64",
    ),
    "batch.node_lost": (
        "=>> PBS: job killed: node 3 (gpu012) requested job terminate, 'EOF' (code 1099) - received SISTER_EOF attempting to communicate with sister MOM's",
        "TERM_EXTERNAL_SIGNAL: job killed by a signal external to LSF.",
    ),
    "pbs.deleted": (
        "Job deleted at request of ada@login1",
        "Job deleted at request of root@sched1",
    ),
    "condor.held": (
        "\tError from slot1@n7: Docker job has gone over memory limit of 2048 Mb",
        "\t67  -  MemoryUsage of job (MB)",
    ),
    "condor.transfer_failed": (
        "\tTransfer output files failure at execution point slot1@n7 while sending files to access point ap1",
        "\tTransferring output files to slot1@n7",
    ),
    "condor.evicted": (
        "004 (123.000.000) 01/05 10:00:00 Job was evicted.",
        "005 (123.000.000) 01/05 10:00:00 Job terminated.",
    ),
    "condor.removed": (
        "\tvia condor_rm (by user ada)",
        "condor_rm 123",
    ),
    "kubernetes.oom": (
        "      Reason:       OOMKilled",
        "it is not OOMKilled",
    ),
    "kubernetes.disk_full": (
        "Pod ephemeral local storage usage exceeds the total limit of containers 10Gi.",
        'EmptyDir volume "cache" is mounted',
    ),
    "kubernetes.preempted": (
        "Warning  Preempted  10s  default-scheduler  Preempted by pod 6f2c on node n7",
        "the job may be Preempted by others",
    ),
    "kubernetes.deadline": (
        "Job was active longer than specified deadline",
        "DEADLINE_EXCEEDED: Deadline Exceeded",
    ),
    "kubernetes.volume_failed": (
        'MountVolume.SetUp failed for volume "data" : mount failed: exit status 32',
        'MountVolume.SetUp succeeded for volume "data"',
    ),
    "kubernetes.devices_gone": (
        "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. Requested: 8, Available: 7, which is unexpected",
        "UnexpectedAdmissionError",
    ),
    "kubernetes.not_started": (
        "Warning  Failed  10s  kubelet  Error: ImagePullBackOff",
        "12/16 nodes are available: the rest is drained",
    ),
    "kubernetes.node_gone": (
        "Warning  NodeNotReady  10s  node-controller  Node is not ready",
        "Node is not ready for upgrades",
    ),
    "ucx.no_device": (
        "[1767607200.1] [n7:1234 :0] ucp_context.c:1100 UCX  ERROR network device 'mlx5_9:1' is not available, please use one or more of: 'mlx5_0:1'(IB)",
        "the option is not available, please use one or more of:' others",
    ),
    "ucx.cuda_ipc_failed": (
        "[1767607200.1] [n7:1234 :0] cuda_ipc_md.c:100 UCX  ERROR cuIpcOpenMemHandle(&key->d_ptr) failed: invalid resource handle",
        "UCX  DEBUG cuIpcOpenMemHandle(key) took 3 us",
    ),
    "cuda.pinned_memory_failed": (
        "AssertionError: Unable to allocate pinned memory of 34359738368 bytes",
        "allocated 34359738368 bytes of pinned host memory",
    ),
    "tensorflow.allocation_failed": (
        "W tensorflow/core/framework/op_kernel.cc:1733] RESOURCE_EXHAUSTED: failed to allocate memory",
        "Ran out of memory trying to allocate 2.00GiB. The caller indicates that this is not a failure",
    ),
    "cuda.fabric_handle_failed": (
        "cuMemImportFromShareableHandle failed: CUDA_ERROR_NOT_PERMITTED",
        "cuMemExportToShareableHandle(&handle, h, CU_MEM_HANDLE_TYPE_FABRIC, 0)",
    ),
    "tpu.in_use": (
        "ABORTED: The TPU is already in use by process with pid 12345.",
        "the TPU is not in use",
    ),
    "tpu.halted": (
        "INTERNAL: Core halted unexpectedly: Accelerator device halted prematurely, perhaps due to an on-device check-failure.",
        "the accelerator device was halted by its user",
    ),
    "habana.device_failed": (
        "RuntimeError: synStatus=26 [Generic failure] Device acquire failed.",
        "synStatus=0 [Success]",
    ),
    "ascend.device_failed": (
        "RuntimeError: ACL stream synchronize failed, error code:507018",
        "stream synchronize failed, error code:507000",
    ),
    "ascend.notify_timeout": (
        "EI0002: The wait execution of the Notify register times out.",
        "EI0002 is listed in the manual",
    ),
    "neuron.device_failed": (
        "RuntimeError: NRT init failed: nrt_init status=1",
        "NEURON_RT: version 2.20",
    ),
    "oneapi.device_lost": (
        "Native API returns: 20 (UR_RESULT_ERROR_DEVICE_LOST)",
        "UR_RESULT_SUCCESS",
    ),
    "hip.queue_failed": (
        "Queue 0x7f aborting with error : HSA_STATUS_ERROR_HARDWARE_EXCEPTION: code: 0x1013",
        "HSA_STATUS_SUCCESS",
    ),
    "kernel.oops": (
        "BUG: unable to handle page fault for address: ffff8881",
        "BUG: scheduling while atomic",
    ),
    "mpi.proxy_lost": (
        "[mpiexec@n1] control_cb (pm/pmiserv/pmiserv_cb.c:208): assert (!closed) failed",
        "assert (n > 0) failed",
    ),
    "jax.task_refused": (
        "INVALID_ARGUMENT: Unexpected task registered with task_name=/job:jax_worker/replica:0/task:9",
        "task registered with task_name=/job:jax_worker/replica:0/task:9",
    ),
    "tensorflow.task_unhealthy": (
        "UnavailableError: Collective ops is aborted by: /job:worker/replica:0/task:1 health check timed out.",
        "Collective ops is aborted by: the user",
    ),
    "tensorflow.termination_notice": (
        "INFO:tensorflow:Member worker_0 has received termination notice.",
        "the member has received termination notice.",
    ),
    "container.reported": (
        "slurmstepd: error: pyxis: failed to import docker image",
        "slurmstepd: error: pyxis: printing enroot log file:",
    ),
    "nccl.network_warned": (
        "n7:1:2 [3] transport/net_ib/p2p.cc:854 NCCL WARN NET/IB: Got CQE with error (devIndex=0, wr_id=3, qp_num=77)",
        "n7:1:2 [3] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB",
    ),
    "ucx.network_call_failed": (
        "[1767607200.1] [n7:1234 :0]  rc_iface.c:943  UCX  ERROR error modifying QP to RTR: Connection timed out",
        "[1767607200.1] [n7:1234 :0]  ib_md.c:560  UCX  ERROR ibv_dereg_mr() failed: Invalid argument",
    ),
    "mpi.device_failed": (
        "Error 9 occurred in attempting to make network progress (psm2_mq_ipeek).",
        "psm2_mq_ipeek took 3 us",
    ),
    "mpi.called_wrongly": (
        "The function MPI_FINALIZE was invoked before MPI was initialized in a",
        "This usually reflects an error in the adapter",
    ),
    "mpi.segment_refused": (
        "It appears as if there is not enough space for /tmp/x (the shared-memory backing",
        "shared-memory backing files are in /tmp",
    ),
}
