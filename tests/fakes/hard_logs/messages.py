"""Lists messages as programs print them when they fail, by class of failure, and those that look like failures.

Each is what one rank prints, in its own program's form; ``{node}`` and ``{peer}`` are hosts. Where the messages are made
is stated in the signatures and in docs/reference/signatures.md.
"""

from __future__ import annotations

# ruff: noqa: E501 -- lines are quoted as programs print them
from tests.fakes.hard_logs.families import FAMILIES
from tests.fakes.hard_logs.innocent import INNOCENT
from tests.fakes.hard_logs.library_families import LIBRARY_FAMILIES

_TORCH = 'Traceback (most recent call last):\n  File "/work/train.py", line 212, in <module>\n    main()\n  File "/work/train.py", line 180, in main\n    loss = step(model, batch)\n'
_START = 'Traceback (most recent call last):\n  File "/work/train.py", line 41, in <module>\n    setup()\n  File "/opt/venv/lib/python3.11/site-packages/torch/distributed/c10d_logger.py", line 81, in wrapper\n    return func(*args, **kwargs)\n'

_ONE_BY_ONE: dict[str, tuple[str, ...]] = {
    "gpu_memory": (
        _TORCH
        + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 1 has a total capacity of 79.10 GiB of which 1.02 GiB is free. Process 3112 has 78.06 GiB memory in use. Of the allocated memory 71.90 GiB is allocated by PyTorch, and 4.75 GiB is reserved by PyTorch but unallocated.",
        _TORCH
        + "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 896.00 MiB. GPU 0 has a total capacity of 63.98 GiB of which 512.00 MiB is free.",
        _TORCH + "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        _TORCH + "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        _TORCH + "RuntimeError: CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`",
        _TORCH + "RuntimeError: cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`",
        _TORCH
        + "RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.",
        _TORCH
        + "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.",
        _TORCH
        + "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Attempting to reserve 9.50G at the bottom of memory. That was not possible. There are 7.31G free, 0B reserved, and 7.31G reservable.",
        _TORCH
        + "ValueError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 20.10G of 15.48G hbm. Exceeded hbm capacity by 4.62G.",
        _TORCH
        + "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[4096,50304] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc",
        _START
        + "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.",
        _START
        + "ValueError: Free memory on device (12.31/79.10 GiB) on startup is less than desired GPU memory utilization (0.9, 71.19 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
        _START
        + "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is needed, which is larger than the available KV cache memory (9.12 GiB). Based on the available memory, the estimated maximum model length is 74688.",
        '(EngineCore_DP0 pid=3112) ERROR 01-05 10:50:34 [core.py:842] EngineCore failed to start.\n(EngineCore_DP0 pid=3112) ERROR 01-05 10:50:34 [core.py:842] Traceback (most recent call last):\n(EngineCore_DP0 pid=3112) ERROR 01-05 10:50:34 [core.py:842]   File "/opt/vllm/v1/engine/core.py", line 833, in run_engine_core\n(EngineCore_DP0 pid=3112) ERROR 01-05 10:50:35 [core.py:842]     engine_core = EngineCoreProc(*args, **kwargs)\n(EngineCore_DP0 pid=3112) ERROR 01-05 10:50:35 [core.py:842] ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.\n'
        + _START
        + "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {{}}",
        _START + "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        _TORCH
        + "MemoryError: std::bad_alloc: out_of_memory: CUDA error at: /opt/rmm/mr/device/cuda_memory_resource.hpp:62: cudaErrorMemoryAllocation out of memory",
        "terminate called after throwing an instance of 'thrust::THRUST_200500_800_NS::system::system_error'\n  what():  parallel_for failed: cudaErrorMemoryAllocation: out of memory",
        "{node}:3112:3390 [1] include/alloc.h:248 NCCL WARN Cuda failure 2 'out of memory'\n{node}:3112:3390 [1] NCCL INFO transport.cc:183 -> 1\n"
        + _TORCH
        + "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.26.2",
        "╭───────────────────── Traceback (most recent call last) ──────────────────────╮\n│ /work/train.py:212 in <module>                                                │\n│ ❱ 212 │   main()                                                              │\n╰──────────────────────────────────────────────────────────────────────────────╯\nOutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 39.59 GiB total capacity; 36.90 GiB already allocated; 19.75 MiB free; 37.01 GiB reserved in total by PyTorch)",
        _TORCH
        + "RuntimeError: /io/include/tensorview/tensor.h 168\ncuda failed with error 2 out of memory. use CUDA_LAUNCH_BLOCKING=1 to get correct traceback.",
        _TORCH + "RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    ),
    "host_memory": (
        "slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0. Some of the step tasks have been OOM Killed.",
        _TORCH
        + "RuntimeError: [enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 137438953472 bytes. Error code 12 (Cannot allocate memory)",
        _TORCH + "RuntimeError: DataLoader worker (pid 40123) is killed by signal: Killed.",
        _TORCH
        + "RuntimeError: DataLoader worker (pid 40123) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit.",
        _TORCH + "OSError: [Errno 12] Cannot allocate memory",
        _TORCH
        + "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 96.0 GiB for an array with shape (12884901888,) and data type float64",
        _TORCH + "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
        "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc",
        _TORCH
        + "RuntimeError: CUDA error: CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED\nOSError: [Errno 12] Cannot allocate memory: '/dev/shm/buffer'",
        "srun: error: {node}: task 1: Out Of Memory",
    ),
    "gpu_hardware": (
        _TORCH + "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        _TORCH
        + "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered\nSearch for `cudaErrorECCUncorrectable' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more information.",
        "Unable to determine the device handle for GPU0000:9B:00.0: GPU is lost.  Reboot the system to recover this GPU",
        _TORCH + "RuntimeError: CUDA error: hardware stack error",
        "{node}:3112:3390 [1] enqueue.cc:1459 NCCL WARN Cuda failure 214 'uncorrectable ECC error encountered'",
        _TORCH
        + "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: CUDA error: : CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered",
        _TORCH + "RuntimeError: HIP error: uncorrectable ECC error encountered",
        "GPU 3: Uncorrectable ECC errors: GPU 3 has uncorrectable memory errors and row remappings have failed. Run a field diagnostic on the GPU.",
    ),
    "nvlink": (
        _START + "RuntimeError: CUDA error: system not yet initialized",
        _TORCH + "torch.AcceleratorError: CUDA error: uncorrectable NVLink error detected during the execution",
        _TORCH + "RuntimeError: CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error",
        "{node}:3112:3390 [1] NCCL WARN Cuda failure 220 'uncorrectable NVLink error detected during the execution'",
        "{node}:3112:3390 [1] transport/nvls.cc:258 NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory of size 1073741824 : CUDA error 802 'system not yet initialized'.\nThis is usually caused by a system or configuration error in the Fabric Manager or NVSwitches.\nDo not force-enable NVLS (NCCL_NVLS_ENABLE=1) if you wish to avoid this error in the future.",
        "{node}:3112:3390 [2] transport/nvls.cc:254 NCCL WARN Cuda failure 1 'invalid argument'",
        "[2026-01-05 10:10:41] {node}:3112:3390 [1] transport/nvls.cc:223 NCCL WARN Cuda failure 999 'unknown error'",
        "Error: NVLink Down: GPU 4's NvLink link 9 is currently down Run a field diagnostic on the GPU.",
        "Error: GPU 2: Detected 12 CRC NvLink errors on GPU 2's NVLink which exceeds threshold of 1 Monitor the NVLink.",
        _TORCH
        + "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: CUDA_ERROR_NVLINK_UNCORRECTABLE: uncorrectable NVLink error detected during the execution",
        "nvidia-fabricmanager[2101]: detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id 00000000:C4:00.0 physical id 2 port 33",
        "Error: Only 16 NvLinks are up out of the expected 18",
    ),
    "fabric": (
        "{node}:3112:3390 [1] transport/net_ib.cc:2244 NCCL WARN NET/IB: Got completion from peer 10.0.0.5<53908> with status=12 opcode=129 len=1048576 vendor err 129 (Recv) hca mlx5_3",
        "{node}:3112:3390 [1] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.0.5<53908> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) reqSize=0 vendor_err=129 req_type=Send localGid fe80::1 remoteGids fe80::2 hca mlx5_3",
        "{node}:3112:3391 [1] misc/ibvwrap.cc:94 NCCL WARN Call to ibv_modify_qp failed with error Connection timed out errno 110",
        "{node}:3112:3391 [1] transport/net_ib.cc:107 NCCL WARN NET/IB : mlx5_0:1 Got async event : port error",
        "[{node}:3112 :0:3390] ib_mlx5_log.c:171  Transport retry count exceeded on mlx5_2:1/IB (synd 0x15 vend 0x81 hw_synd 0/0)",
        "[1705312345.678901] [{node}:3112 :0]    ib_mlx5_log.c:177  UCX  ERROR Transport retry count exceeded on mlx5_2:1/IB (synd 0x15 vend 0x81 hw_synd 0/0)",
        "{node}:3112:3391 [1] nccl_net_ofi_rdma.c:1134 NCCL WARN NET/OFI Request completed with error. RC: 113. Error: 4120 (unable to communicate with endpoint). Completed length: 0",
        "libfabric:3112:1712345678::cxi:cq:cxip_cq_req_error():68<warn> {node}: Request with error: UNDELIVERABLE",
        "PE 1: MPICH ERROR [Rank 1] [job id 4711.0] - Abort(206185743) (rank 1 in comm 0): Fatal error in PMPI_Allreduce: Other MPI error, error stack:\nMPIDI_OFI_handle_cq_error(1067): OFI poll failed (ofi_events.c:1069:MPIDI_OFI_handle_cq_error:Input/output error - UNDELIVERABLE)",
    ),
    "storage": (
        _START + "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
        _START + "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge",
        _TORCH + "OSError: [Errno 28] No space left on device: '/lustre/ckpt/step_1000.pt'",
        _TORCH + "OSError: [Errno 122] Disk quota exceeded: '/home/u1/.cache/huggingface'",
        _TORCH + "OSError: [Errno 116] Stale file handle: '/nfs/data/shard-00012.tar'",
        _TORCH + "OSError: [Errno 5] Input/output error: '/scratch/data/shard-00012.bin'",
        _TORCH
        + 'safetensors_rust.SafetensorError: Error while serializing: IoError(Os {{ code: 28, kind: StorageFull, message: "No space left on device" }})',
        _TORCH
        + "safetensors_rust.SafetensorError: Error while serializing: I/O error: Disk quota exceeded (os error 122)",
        _TORCH + "OSError: [Errno 108] Cannot send after transport endpoint shutdown: '/lustre/data/index.bin'",
        _TORCH + "OSError: [Errno 107] Transport endpoint is not connected: '/mnt/s3fuse/data'",
        _TORCH + "RuntimeError: [enforce fail at inline_container.cc:603] . unexpected pos 704 vs 592",
        _TORCH + "RuntimeError: PytorchStreamWriter failed writing file data/72: file write failed",
        _TORCH
        + "BlockingIOError: [Errno 11] Unable to open file (unable to lock file, errno = 11, error message = 'Resource temporarily unavailable')",
        _TORCH + "OSError: [Errno 37] No locks available: '/home/u1/.triton/cache/lock'",
        _TORCH + "OSError: [Errno 117] Structure needs cleaning: '/local/tmp/a'",
        _TORCH + "OSError: [Errno 70] Communication error on send: '/beegfs/data/x'",
        _TORCH + "OSError: [Errno 110] Connection timed out: '/lustre/data/x.bin'",
        _TORCH + "sqlite3.OperationalError: database or disk is full",
        _TORCH + "sqlite3.OperationalError: disk I/O error",
        _TORCH
        + 'botocore.exceptions.EndpointConnectionError: Could not connect to the endpoint URL: "https://s3.local/bucket/ckpt"',
        _TORCH
        + "botocore.exceptions.ClientError: An error occurred (SlowDown) when calling the PutObject operation (reached max retries: 4): Please reduce your request rate.",
        _TORCH
        + "google.api_core.exceptions.ServiceUnavailable: 503 GET https://storage.googleapis.com/storage/v1/b/x: backend error",
        _TORCH + "OSError: [Errno 27] File too large: '/home/u1/ckpt.pt'",
        _TORCH + "OSError: [Errno 30] Read-only file system: '/scratch/out/log.txt'",
        _TORCH
        + "OSError: Can't write data (file write failed: time = Tue Jan  6 10:11:12 2026\n, filename = 'a.h5', file descriptor = 7, errno = 28, error message = 'No space left on device', buf = 0x7f, total write size = 4096)",
        _TORCH
        + 'XlaRuntimeError: INTERNAL: Error writing "gs://x": write failed [OS error 28: ENOSPC No space left on device]',
        "fatal: write error: No space left on device",
        _TORCH + "OSError: [Errno 112] Host is down: '/cifs/data/a.bin'",
        _TORCH
        + 'torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([1])\nTraceback (most recent call last): (RANK 1)\n  File "/work/ckpt.py", line 33, in save\n    f.write(b)\nOSError: [Errno 28] No space left on device',
    ),
    "rendezvous": (
        _START
        + "torch.distributed.DistNetworkError: The client socket has failed to connect to any network address of ({peer}, 29500). The client socket has timed out after 60000ms while trying to connect to ({peer}, 29500).",
        _START
        + "torch.distributed.DistStoreError: Timed out after 1801 seconds waiting for clients. 1/2 clients joined.",
        _START
        + "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
        "[W105 10:00:00.123456789 socket.cpp:759] [c10d] The client socket has failed to connect to [{peer}]:29500 (errno: 110 - Connection timed out).\n"
        + _START
        + "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed. See inner exception for details.",
        "[E105 10:00:00.123456789 socket.cpp:1019] [c10d] The client socket has failed to connect to any network address of ({peer}, 29500).\n"
        + _START
        + "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed. See inner exception for details.",
        _START
        + "RuntimeError: Timed out initializing process group in store based barrier on rank: 1, for key: store_based_barrier_key:1 (world_size=8, worker_count=7, timeout=0:30:00)",
        _START
        + "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error",
        _START
        + "RuntimeError: [enforce fail at ../third_party/gloo/gloo/transport/tcp/device.cc:83] ifa != nullptr. Unable to find address for: ib0",
        _START
        + "RuntimeError: [enforce fail at ../third_party/gloo/gloo/transport/tcp/device.cc:208] ifa != nullptr. Unable to find interface for: [0.0.17.10]",
        "{node}:3112:3390 [1] misc/socket.cc:544 NCCL WARN socketPollConnect: connect to 10.1.2.3<49911> returned Connection refused, exceeded error retry count after 35 attempts",
        "{node}:3112:3390 [1] os/linux.cc:200 NCCL WARN ncclOsSocketPollConnect: connect to 10.1.2.3<37857> returned No route to host, exceeded error retry count after 35 attempts",
        "{node}:3112:3390 [1] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.1.2.3<36719> failed : No route to host",
        "{node}:3112:3112 [1] bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found",
        _START
        + "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: [Init]Wait_for_all_tasks_to_register::0. This usually happens because a task triggered the barrier too early or too slowly.",
        "2026-01-05 10:00:00.000001: F external/xla/xla/pjrt/distributed/client.h:80] Terminating process because the JAX distributed service detected fatal errors. DEADLINE_EXCEEDED: Deadline Exceeded. RPC: /tensorflow.CoordinationService/RegisterTask",
        _START
        + "jaxlib.xla_extension.XlaRuntimeError: UNAVAILABLE: failed to connect to all addresses; last error: UNKNOWN: ipv4:10.1.2.3:12345: Failed to connect to remote host: Connection refused",
        _START
        + "ray.exceptions.RpcError: Unable to connect to GCS at 10.1.2.3:6379. Check that (1) Ray GCS with matching version started successfully at the specified address.",
        _START
        + "ConnectionError: Could not find any running Ray instance. Please specify the one to connect to by setting `--address` flag or `RAY_ADDRESS` environment variable.",
        _START + "OSError: [Errno 99] Cannot assign requested address",
        _START + "OSError: [Errno 113] No route to host",
        "ssh: connect to host {peer} port 22: Connection timed out",
        "ssh: Could not resolve hostname {peer}: Name or service not known",
        _START
        + "torch.distributed.DistNetworkError: The client socket cannot be initialized to connect to [{peer}]:29500 (errno: 97 - Address family not supported by protocol).",
        _START
        + "torch.distributed.DistNetworkError: failed to recv, got 0 bytes\nRuntimeError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by store->get('0'), but store->get('0') got error: wait timeout after 600000ms, keys: /default_pg/0//cuda//0",
        _START + "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
        _START
        + "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:268, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.21.5\nncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.\nLast error:\nsocketStartConnect: Connect to 10.1.2.3<36719> failed : Software caused connection abort",
    ),
    "numeric": (
        " iteration     5429/  250000 | consumed samples:        43432 | loss scale: 1.0 | grad norm: nan | number of skipped iterations:   0 | number of nan iterations:   0 |",
        _TORCH
        + "RuntimeError: Rank {rank}: found NaN in local forward loss calculation. Device: {local}, node: {node}",
        "Loss is nan, stopping training",
        _TORCH
        + "FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding. Try lowering the learning rate, using gradient clipping or increasing the batch size.",
        _TORCH + "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
        _TORCH + "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0",
        _TORCH
        + "RuntimeError: The total norm of order 2.0 for gradients from `parameters` is non-finite, so it cannot be clipped.",
        _TORCH + "RuntimeError: Function 'MulBackward0' returned nan values in its 0th output.",
        "Monitored metric train_loss = nan is not finite. Previous best value was 2.312. Signaling Trainer to stop.",
        "Batch 1210: Invalid loss, terminating training",
        _TORCH + "FloatingPointError: invalid value (nan) encountered in jit(train_step)",
        _TORCH + "ValueError: loss became NaN at step 1211: training diverged",
        _TORCH + "AssertionError: loss is not finite: tensor(nan, device='cuda:1')",
        "{{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 2e-05, 'epoch': 0.41}}\n"
        + _TORCH
        + "RuntimeError: NaN gradients: aborting",
    ),
    "config": (
        "train.py: error: unrecognized arguments: --use-flash-attn-v9",
        _START + "ModuleNotFoundError: No module named 'apex'",
        _START + "ImportError: /opt/venv/lib/flash_attn_2_cuda.so: undefined symbol: _ZN3c104cuda9SetDeviceEi",
        _START + "FileNotFoundError: [Errno 2] No such file or directory: '/data/index.json'",
        _START + "AssertionError: Torch not compiled with CUDA enabled",
        _START
        + "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver",
        _START + "RuntimeError: CUDA error: peer access is not supported between these two devices",
        _START + "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        _START + "RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.",
        _START
        + "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 803: system has unsupported display driver / cuda driver combination",
        _START
        + "OSError: meta-llama/Llama-9 is not a local folder and is not a valid model identifier listed on 'https://huggingface.co/models'",
        _START
        + "huggingface_hub.errors.GatedRepoError: 401 Client Error. Cannot access gated repo for url https://huggingface.co/x/resolve/main/config.json.",
        _START + "AssertionError: number of attention heads (30) must be divisible by tensor model parallel size (8)",
        _START + "ValueError: world size (12) is not divisible by total_model_size (8)",
        _START + "hydra.errors.ConfigCompositionException: Could not override 'model.sizes'.",
        _START + "yaml.scanner.ScannerError: mapping values are not allowed here",
        _START
        + "json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes: line 3 column 1 (char 21)",
        _START + "pydantic_core._pydantic_core.ValidationError: 1 validation error for DeepSpeedConfig",
        _START
        + "RuntimeError: Error(s) in loading state_dict for GPT:\n\tsize mismatch for embed.weight: copying a param with shape torch.Size([50257, 768]) from checkpoint, the shape in current model is torch.Size([50304, 768]).",
        "srun: error: Unable to create step for job 4711: More processors requested than permitted",
        "srun: fatal: SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU, and SLURM_MEM_PER_NODE are mutually exclusive.",
        "slurmstepd: error: pyxis: child 3112 failed with error code: 1\nslurmstepd: error: pyxis: failed to import docker image\nslurmstepd: error: pyxis: printing enroot log file:\nslurmstepd: error: pyxis:     [ERROR] URL https://registry-1.docker.io/v2/x returned error code: 401 Unauthorized",
        "FATAL:   could not open image /images/pytorch.sif: failed to retrieve path for /images/pytorch.sif: lstat /images/pytorch.sif: no such file or directory",
        'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
        "slurmstepd: error: execve(): train.sh: Permission denied",
        "bash: line 3: torchrun: command not found",
        _START + "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.",
        _START
        + "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable MASTER_ADDR expected, but not set",
        "[E105 10:00:00.1 ] {node}:3112:3112 [0] init.cc:813 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 4b000",
        _START + "ValueError: The model's max seq len (131072) must be at most 32768",
        "sbatch: error: Batch script contains DOS line breaks (\\r\\n)",
        "srun: error: CPU binding outside of job step allocation, allocated CPUs are: 0x01F000000001F0000000.\nsrun: error: Task launch for StepId=4711.0 failed on node {node}: Unable to satisfy cpu bind request",
        "Host key verification failed.",
        "u1@{peer}: Permission denied (publickey,gssapi-keyex,gssapi-with-mic).",
        "There are not enough slots available in the system to satisfy the 16 slots that were requested by the application:",
        "/work/job.sh: line 12: syntax error near unexpected token `done'",
    ),
    "software": (
        _TORCH + "KeyError: 'input_ids'",
        _TORCH + "RuntimeError: CUDA error: an illegal memory access was encountered",
        _TORCH + "RuntimeError: CUDA error: device-side assert triggered",
        _TORCH
        + "RuntimeError: The size of tensor a (4096) must match the size of tensor b (2048) at non-singleton dimension 1",
        _TORCH + "IndexError: list index out of range",
        _TORCH + "AttributeError: 'NoneType' object has no attribute 'shape'",
        "╭───────────────────── Traceback (most recent call last) ──────────────────────╮\n│ /work/train.py:212 in <module>                                                │\n╰──────────────────────────────────────────────────────────────────────────────╯\nKeyError: 'labels'",
        'Traceback (most recent call last):\nFile "/work/train.py", line 212, in <module>\nmain(args)\nFile "/work/train.py", line 12, in main\nx = table[key]\nKeyError: 7',
        'Traceback (most recent call last):\n  File "/work/train.py", line 44, in <module>\n            Traceback (most recent call last):\n ^^^  File "/work/train.py", line 44, in <module>\n^^^^^^^^^^^^^^^^^^^^\n  File "/work/a.py", line 6, in f\n    x = y.z  File "/work/train.py", line 44, in <module>\n^ ^ ^^^\nAttributeError: \'Config\' object has no attribute \'z\'',
        _TORCH + "ZeroDivisionError: division by zero",
        _START + "RuntimeError: CUDA error: invalid argument",
        _START + "RuntimeError: CUDA error: invalid configuration argument",
        _TORCH + "RuntimeError: CUDA error: the launch timed out and was terminated",
        _TORCH + "torch._dynamo.exc.InternalTorchDynamoError: AssertionError: in graph",
        _TORCH
        + "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 147456, Hardware limit: 101376. Reducing block sizes or `num_stages` may help.",
        'Fatal Python error: Segmentation fault\n\nThread 0x00007f01 (most recent call first):\n  File "/work/loader.py", line 8 in read',
        "Memory access fault by GPU node-5 (Agent handle: 0x55d0) on address 0x7f5b2a000000. Reason: Page not present or supervisor privilege.",
        ":0:rocdevice.cpp            :2993: 1210 us: [pid:3112 tid:0x7f] Callback: Queue 0x7f aborting with error : HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION: The agent attempted to access memory beyond the largest legal address. code: 0x29",
        "ERROR 01-05 22:19:40 [core.py:367] Traceback (most recent call last):\nERROR 01-05 22:19:40 [core.py:367]   File \"/opt/vllm/executor.py\", line 114, in _init_executor\nERROR 01-05 22:19:41 [core.py:367]     self._init_workers()\nERROR 01-05 22:19:41 [core.py:367] TypeError: unsupported operand type(s) for +: 'int' and 'str'\n"
        + _TORCH
        + "Exception: WorkerProc initialization failed due to an exception in a background process. See stack trace for root cause.",
        _TORCH + "UnboundLocalError: cannot access local variable 'loss' where it is not associated with a value",
        _TORCH + "RuntimeError: Trying to backward through the graph a second time",
        _TORCH + "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
        _TORCH
        + "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=12, OpType=ALLREDUCE), but Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=12, OpType=BROADCAST).",
        "../aten/src/ATen/native/cuda/Indexing.cu:1289: indexSelectLargeIndex: block: [17,0,0], thread: [0,0,0] Assertion `srcIndex < srcSelectDimSize` failed.",
        _TORCH
        + "KeyError: 'shard'\n\nDuring handling of the above exception, another exception occurred:\n\n"
        + _TORCH
        + "ValueError: batch 7 has no shard",
        "ray.exceptions.RayTaskError(KeyError): ray::Worker.fit() (pid=3112, ip=10.0.0.5)\n  File \"/work/worker.py\", line 7, in fit\n    return table[key]\nKeyError: 'shard'",
        _TORCH
        + "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that your module has parameters that were not used in producing loss.",
    ),
    "node": (
        "srun: error: Node failure on {node}\nsrun: error: Nodes {node} are still not ready",
        "slurmstepd: error: *** JOB 4711 ON {peer} CANCELLED AT 2026-01-05T11:00:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
        "srun: error: Task launch for StepId=4711.0 failed on node {node}: Communication connection failure",
        "srun: error: task 0 launch failed: Slurmd could not set up environment for batch job\nslurmstepd: error: TaskProlog failed status=1",
        "(raylet) The node with node id: 1f2e and address: 10.0.0.5 and node name: 10.0.0.5 has been marked dead because the detector has missed too many heartbeats from it.",
        "ORTE has lost communication with a remote daemon.\n\n  HNP daemon   : [[1,0],0] on node {peer}\n  Remote daemon: [[1,0],1] on node {node}",
    ),
    "time_limit": (
        "slurmstepd: error: *** STEP 4711.0 ON {peer} CANCELLED AT 2026-01-05T11:00:00 DUE TO TIME LIMIT ***",
    ),
    "preempted": ("slurmstepd: error: *** JOB 4711 ON {peer} CANCELLED AT 2026-01-05T11:00:00 DUE TO PREEMPTION ***",),
    "cancelled": ("slurmstepd: error: *** JOB 4711 ON {peer} CANCELLED AT 2026-01-05T11:00:00 ***",),
}
MESSAGES: dict[str, tuple[str, ...]] = {
    failure: own
    + tuple(each for family in (*FAMILIES, *LIBRARY_FAMILIES) if family.failure == failure for each in family.messages)
    for failure, own in _ONE_BY_ONE.items()
}
"""What the rank that fails prints."""

_WARNINGS = (
    "[rank0]:[W105 10:00:00.1 ProcessGroupNCCL.cpp:1250] Warning: WARNING: process group has NOT been destroyed before we destruct ProcessGroupNCCL. On normal program exit, the application should call destroy_process_group",
    "WARNING:torch.distributed.run: Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid your system being overloaded",
    "2026-01-05 10:00:00.000001: W tensorflow/core/common_runtime/bfc_allocator.cc:271] Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.55GiB with freed_by_count=0. The caller indicates that this is not a failure, but may mean that there could be performance gains if more memory were available.",
    "2026-01-05 10:00:00.000001: E external/local_xla/xla/stream_executor/cuda/cuda_dnn.cc:9261] Unable to register cuDNN factory: Attempting to register factory for plugin cuDNN when one has already been registered",
    "UserWarning: The given NumPy array is not writable, and PyTorch does not support non-writable tensors.",
    "{node}:3112:3112 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.",
    "{node}:3112:3390 [0] NCCL INFO Call to connect returned Connection refused, retrying",
    "[W105 10:00:00.1 socket.cpp:436] [c10d] The server socket cannot be initialized on [::]:29500 (errno: 97 - Address family not supported by protocol).",
    "[W105 10:00:00.1 socket.cpp:663] [c10d] The client socket has failed to connect to [{peer}]:29500 (errno: 22 - Invalid argument).",
    "FutureWarning: `torch.cuda.amp.GradScaler(args...)` is deprecated.",
    "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, but hysteresis is 2. Reducing hysteresis to 1",
    "wandb: WARNING Retry attempt failed: HTTPSConnectionPool(host='api.wandb.ai', port=443): Max retries exceeded, retrying in 2 s",
    "Could not load dynamic library 'libcudart.so.11.0'; dlerror: libcudart.so.11.0: cannot open shared object file: No such file or directory",
    "WARNING: Could not find any nv files on this host!",
    "Warning: Permanently added '{peer}' (ED25519) to the list of known hosts.",
    "slurmstepd: error: couldn't chdir to `/work': No such file or directory: going to /tmp instead",
    "[WARNING] cpu_adam cuda is missing or is incompatible with installed torch, only cpu ops can be compiled!",
    "libibverbs: Warning: couldn't load driver 'libvmw_pvrdma-rdmav34.so': libvmw_pvrdma-rdmav34.so: cannot open shared object file: No such file or directory",
    "Exception ignored in: <function WandbLogger.__del__ at 0x7f>\nTraceback (most recent call last):\n  File \"/opt/w.py\", line 3, in __del__\nAttributeError: 'NoneType' object has no attribute 'finish'",
    "grep: /proc/driver/nvidia/version: No such file or directory",
)
WARNINGS = _WARNINGS + tuple(
    each.replace("{", "{{").replace("}", "}}")
    for program, messages in INNOCENT.items()
    if program not in ("text of data", "metrics and names")
    for each in messages
    if " iteration " not in each
)
"""What good runs print as well; no line of a step, for failures at the start have none."""
