"""Lists messages of the libraries that trainings and servers are built of, each family with the files that make them.

They are written after the libraries' sources, with values of our own. `_raised` puts the traceback of a statement that
raises before each, `_refused` one of an operator in C++.
"""

from __future__ import annotations

# ruff: noqa: E501 -- lines are quoted as programs print them
from tests.fakes.hard_logs.families import Family


def _raised(*lines: str, at_start: bool = False) -> tuple[str, ...]:
    """Return each line behind a traceback that ends in a library's own raise."""
    return tuple(_head(at_start) + "    raise error\n" + line for line in lines)


def _refused(*lines: str, at_start: bool = False) -> tuple[str, ...]:
    """Return each line behind a traceback that ends in a call of C++."""
    return tuple(_head(at_start) + "    return _C.call(*args)\n" + line for line in lines)


def _head(at_start: bool) -> str:
    """Return frames of a program and of a library that it calls: in its set-up, or in a step."""
    own = "setup()" if at_start else "loss = step(model, batch)"
    return f'Traceback (most recent call last):\n  File "/home/ada/run/train.py", line 41, in <module>\n    {own}\n  File "/opt/venv/lib/python3.11/site-packages/library/api.py", line 81, in call\n'


_NCCL = "{node}:3112:3390 [1] "

LIBRARY_FAMILIES: tuple[Family, ...] = (
    Family(
        failure="rendezvous",
        source="pytorch torch/csrc/distributed/c10d/socket.cpp, TCPStore.cpp, FileStore.cpp; torch/distributed/elastic/rendezvous, elastic/utils/distributed.py",
        messages=(
            *_raised(
                "torch.distributed.DistNetworkError: The client socket has failed to connect to any network address of ({peer}, 29500). The client socket has failed to connect to {peer}:29500 (errno: 113 - No route to host).",
                "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
                "torch.distributed.DistNetworkError: The server socket has failed to listen on provided socket. socket: 5, code: -22, name: EINVAL, message: invalid argument",
                "RuntimeError: TCP client failed to connect/validate to host {peer}:29500 - timed out (try=12, timeout=600000ms): connect() failed",
                "RuntimeError: Timeout waiting for key: default_pg/0/1 after 1800000 ms",
                "torch.distributed.elastic.rendezvous.api.RendezvousError: The file creation for C10d store has failed. See inner exception for details.",
                "TimeoutError: timed out waiting for all 8 members to join",
                "LookupError: Timeout while waiting for keys in EtcdStore",
                "TimeoutError: Timed out waiting for etcd server to be ready!",
                "RuntimeError: Etcd server process exited with the code: 1",
                "etcd.EtcdException: No more machines in the cluster",
                at_start=True,
            ),
        ),
    ),
    Family(
        failure="rendezvous",
        source="pytorch torch/distributed/distributed_c10d.py _store_based_barrier, before 2.1 and since",
        messages=(
            "setup() began\nINFO:torch.distributed.distributed_c10d:Waiting in store based barrier to initialize process group for rank: 3, key: store_based_barrier_key:1 (world_size=16, worker_count=12, timeout=0:30:00)",
            "setup() began\n[2026-01-05 10:00:00,123] torch.distributed.distributed_c10d: [INFO] Waiting in store based barrier to initialize process group for rank: 3, key: store_based_barrier_key:1 (world_size=16, num_workers_joined=12, timeout=0:30:00)",
        ),
    ),
    Family(
        failure="rendezvous",
        source="ray _private/services.py, scripts/symmetric_run.py, worker.py; horovod runner/common/util/network.py, runner/driver; vllm v1/engine; sglang srt/managers",
        messages=(
            *_raised(
                "ConnectionError: Failed to connect to Ray cluster at 10.0.0.5:6379",
                "RuntimeError: Unable to connect to Redis at 10.0.0.5:6379: timed out",
                "TimeoutError: Timed out after 30 seconds while waiting for node to startup. Did not find socket name plasma_store in the list of object store socket names.",
                "click.exceptions.ClickException: Timed out waiting for head node to start.",
                "horovod.runner.common.util.network.NoValidAddressesFound: Horovod was unable to connect to driver service on any of the following addresses: {{'lo': [('127.0.0.1', 1)]}}.",
                "Exception: Unable to find a set of common task-to-task communication interfaces: [(1, [('eth0', 1)])]",
                "TimeoutError: Timed out waiting for engine core processes to start. This is often caused by slow weight loading for large models. Waited 600s (configured by VLLM_ENGINE_READY_TIMEOUT_S).",
                "RuntimeError: DP Coordinator process failed to report ZMQ addresses within timeout=30 seconds during startup.",
                "TimeoutError: Mooncake bootstrap server did not start in time",
                "RuntimeError: Failed to receive worker ports from node 0 within timeout",
                at_start=True,
            ),
        ),
    ),
    Family(
        failure="config",
        source="pytorch torch/distributed/rendezvous.py, elastic/rendezvous, ProcessGroupNCCL.cpp, symmetric memory",
        messages=(
            *_raised(
                "ValueError: TCPStore world size cannot be 0",
                "ValueError: Error initializing torch.distributed using tcp:// rendezvous: rank parameter missing",
                "ValueError: The hostname of the rendezvous endpoint ':29500' must be a dot-separated list of labels, an IPv4 address, or an IPv6 address.",
                "RuntimeError: No rendezvous handler for foo://",
                "ValueError: The rendezvous backend 'c10' is not registered. Did you forget to call `register`?",
                "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
                "RuntimeError: Attempted to use NVSHMEM without NVSHMEM support.",
                at_start=True,
            ),
            *_refused(
                "RuntimeError: use_libuv was requested but PyTorch was built without libuv support, run with USE_LIBUV=0 to disable it.",
                at_start=True,
            ),
        ),
    ),
    Family(
        failure="rendezvous",
        source="nccl src/misc/socket.cc and src/bootstrap.cc of 2.16 to 2.23",
        messages=(
            _NCCL + "misc/socket.cc:516 NCCL WARN socketPollConnect: exceeded retries (20000)",
            _NCCL + "misc/socket.cc:467 NCCL WARN socketStartConnect: exceeded retries (20000)",
            _NCCL + "bootstrap.cc:130 NCCL WARN Bootstrap Root : mismatch in rank count from procs 16 : 8",
        ),
    ),
    Family(
        failure="config",
        source="nccl src/misc/shmutils.cc, src/os/linux.cc",
        messages=(
            _NCCL
            + "misc/shmutils.cc:112 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-Q2fR3l (size 9637888)",
            _NCCL
            + "misc/shmutils.cc:112 NCCL WARN Error while attaching to shared memory segment /dev/shm/nccl-Q2fR3l (size 9637888)",
        ),
    ),
    Family(
        failure="config",
        source="ray python/ray/exceptions.py, train/_internal, train/v2; vllm v1/executor/ray_utils.py, v1/engine/utils.py",
        messages=(
            *_raised(
                "ray.exceptions.RuntimeEnvSetupError: Failed to set up runtime environment.\nFailed to download runtime_env file package gcs://x.zip",
                "ray.exceptions.ActorUnschedulableError: The actor is not schedulable: The node specified via NodeAffinitySchedulingStrategy doesn't exist any more or is infeasible, and soft=False was specified.",
                "ray.exceptions.AuthenticationError: Authentication failed: the token is missing. Ensure that the token for the cluster is available in a local file",
                "TimeoutError: Placement group creation timed out. Make sure your cluster either has enough resources or use an autoscaling cluster.",
                "ray.train.v2._internal.exceptions.InsufficientClusterResourcesError: Insufficient cluster resources to launch training workers.",
                "ValueError: Cannot provide a placement group requiring 16 GPUs (placement_group_specs=[]) within 1800 seconds.",
                "ValueError: The number of required GPUs exceeds the total number of available GPUs in the placement group. Required number of devices: 16. Total number of devices: 8.",
                "ValueError: Not enough resources to allocate 8 DP ranks on DP master node 10.0.0.5, possible to fit 4 DP ranks.",
                at_start=True,
            ),
        ),
    ),
    Family(
        failure="config",
        source="pytorch torch/_inductor, utils/cpp_extension.py, serialization.py; triton runtime/build.py; bitsandbytes cextension.py; xformers ops/fmha; lightning accelerators/cuda.py; vllm config",
        messages=(
            *_raised(
                "torch._inductor.exc.InductorError: CalledProcessError: Command '['/usr/bin/gcc', '/tmp/x/main.c', '-O3']' returned non-zero exit status 1.",
                "subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.",
                "torch._inductor.exc.GPUTooOldForTriton: Found Tesla P100 which is too old to be supported by the triton GPU compiler, which is used as the backend.",
                "RuntimeError: Parent directory /lustre/out/ckpt does not exist.",
                "RuntimeError: received 0 items of ancdata",
                "RuntimeError: CUDA Setup failed despite GPU being available. Please run the following command to get more information:",
                "RuntimeError: No compatible CUDA binary found at /opt/venv/lib/libbitsandbytes_cuda124.so",
                "NotImplementedError: No operator found for `memory_efficient_attention_forward` with inputs:",
                "ValueError: You requested to find 8 devices but this machine only has 4 GPUs.",
                "ValueError: KV connector X is incompatible with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True unless enable_cumem_allocator is also enabled.",
                at_start=True,
            ),
        ),
    ),
    Family(
        failure="config",
        source="libfabric prov/cxi/src/cxip_msg_hpc.c, cxip_evtq.c; nvshmem src/host/transport, src/host/init",
        messages=(
            "libfabric:3112:1712345678::cxi:ep_data:cxip_recv_pte_cb():1<critical> LE resources not recovered during flow control. FI_CXI_RX_MATCH_MODE=[hybrid|software] is required",
            "libfabric:3112:1712345678::cxi:ep_data:cxip_evtq_event_handler():1<critical> H/W Event Queue overflow detected.",
            "/nvshmem/src/host/transport/transport.cpp:nvshmemi_transport_init:275: Unable to initialize any transports. returning error.",
            "/nvshmem/src/host/init/init.cu:972: non-zero status: 7 building transport map failed",
            "/nvshmem/src/host/transport/transport.cpp:400: non-zero status: 7 connect EPS failed \n/nvshmem/src/host/init/init.cu:1007: non-zero status: 7 nvshmem setup connections failed ",
            "/nvshmem/include/host/nvshmemx_api.h:63: non-zero status: 7: Connection timed out, exiting... aborting due to error in nvshmemi_init_thread ",
        ),
    ),
    Family(
        failure="gpu_memory",
        source="sglang srt/mem_cache/allocation.py, kv_cache_configurator.py, distributed/bootstrap.py; vllm v1/core/kv_cache_planning.py, v1/worker/utils.py",
        messages=(
            *_raised(
                "RuntimeError: Prefill out of memory. Try to lower your batch size.\nTry to allocate 8192 tokens.",
                "RuntimeError: Decode out of memory. Try to lower your batch size.\nTry to allocate 64 tokens.",
                "RuntimeError: alloc_req_slots runs out of memory. Please set a smaller number for `--max-running-requests`. num_reqs=8,",
            ),
            *_raised(
                "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.8. Raise --mem-fraction-static above 0.86",
                "RuntimeError: Not enough GPU memory for hybrid (mamba/linear-attention) state cache. Computed max_mamba_cache_size=0",
                "RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. pre_model_load_memory=60.1, local_gpu_memory=78.2",
                "ValueError: Cannot auto-fit max_model_len: not enough GPU memory available to serve even a single token. Try increasing `gpu_memory_utilization`.",
                "ValueError: Externally held weights on device cuda:0 (60.1/79.1 GiB) exceed the desired GPU memory utilization (0.7, 55.4 GiB).",
                at_start=True,
            ),
        ),
    ),
    Family(
        failure="gpu_memory",
        source="TransformerEngine common/util/logging.h NVTE_CHECK_*; bitsandbytes csrc",
        messages=(
            *_refused(
                "RuntimeError: /TransformerEngine/transformer_engine/common/util/cuda_runtime.cpp:33 in function f: CUDA Error: out of memory",
                "RuntimeError: /TransformerEngine/transformer_engine/common/gemm/cublaslt_gemm.cu:318 in function cublas_gemm: cuBLAS Error: the library was not initialized",
            ),
            "Error out of memory at line 380 in file /src/csrc/pythonInterface.c",
        ),
    ),
    Family(
        failure="host_memory",
        source="ray python/ray/exceptions.py ObjectStoreFullError, _private/memory_monitor.py; sglang srt/mem_cache/pool_host; vllm v1/worker/cpu_worker.py; datasets utils/py_utils.py",
        messages=(
            *_raised(
                "ray.exceptions.ObjectStoreFullError: Failed to put object 00ff in object store because it is full. Object size is 8589934592 bytes.",
                "ray._private.memory_monitor.RayOutOfMemoryError: More than 95% of the memory on node {node} is used (480.1 / 503.0 GB).",
                "RuntimeError: One of the subprocesses has abruptly died during map operation.To debug the error, disable multiprocessing.",
                "ValueError: Not enough host memory available. Requesting 80.00 GB but only have 12.00 GB free. Please reduce the size of the hierarchical cache.",
                "ValueError: Available memory on node 0 (12.1/503.0 GiB) on kv cache allocation is less than requested memory for kv (40.0 GiB). Reduce CPU memory used by other processes.",
            ),
        ),
    ),
    Family(
        failure="storage",
        source="ray python/ray/exceptions.py OutOfDiskError; datasets builder.py",
        messages=(
            *_raised(
                "ray.exceptions.OutOfDiskError: Local disk is full\nThe object cannot be created because the local object store is full and the local disk's utilization is over capacity (95% by default).",
                "OSError: Not enough disk space. Needed: 12.00 GiB (download: 8.00 GiB, generated: 4.00 GiB)",
            ),
        ),
    ),
    Family(
        failure="node",
        source="ray python/ray/exceptions.py, src/ray/core_worker, raylet/agent_manager.cc; vllm v1/engine/utils.py",
        messages=(
            *_raised(
                "ray.exceptions.LocalRayletDiedError: The task's local raylet died. Check raylet.out for more information.",
                "ray.exceptions.NodeDiedError: Task failed because the node it was running on is dead or unavailable. Node IP: 10.0.0.5, node ID: ff. This can happen if the node was preempted, had a hardware failure, or its raylet crashed unexpectedly.",
                "ray.exceptions.ObjectLostError: Failed to retrieve object 00ff. \n\nAll copies of 00ff have been lost due to node failure. Check cluster logs (`/tmp/ray/session_latest/logs`) for more information about the failure.",
                "ray.exceptions.GetTimeoutError: There was timeout in getting the actor handle, probably because the GCS server is dead or under high load .",
            ),
            "[2026-01-05 11:00:00,123 E 3112 3112] core_worker.cc:910: Shutting down the core worker because the local raylet failed. Check out the raylet.out log file. Status: EOF",
        ),
    ),
    Family(
        failure="preempted",
        source="ray src/ray/gcs/gcs_server/gcs_actor_manager.cc, core_worker/task_manager.cc",
        messages=(
            *_raised(
                "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n\tclass_name: Worker\n\tthe actor's node was preempted: taken back",
            ),
        ),
    ),
    Family(
        failure="fabric",
        source="aws-ofi-nccl NCCL_OFI_WARN; ucx src/uct/ib; libfabric prov/efa; nvshmem src/modules/transport",
        messages=(
            _NCCL + "NCCL WARN NET/OFI Unable to insert remote address into address vector for device 3. RC: -22",
            _NCCL
            + "NCCL WARN NET/OFI Couldn't open a fabric provider using ofiutils helper. RC: -61, ERROR: No data available",
            _NCCL + "NCCL WARN NET/OFI Unable to retrieve completion queue entries. RC: -5, ERROR: Input/output error",
            "[1705312345.678901] [{node}:3112 :0]    ib_iface.c:1 UCX  ERROR mlx5_2: ibv_modify_qp(UMR QP 0x1a) failed to modify to RTR: Connection timed out",
            "libfabric:3112:1712345678::efa:cq:efa_rdm_rxe_handle_error():590<warn> err: 5, message: Invalid address My EFA addr: fi_addr_efa://[fe80::1]:0:1 My host id: i-0a Peer EFA addr: fi_addr_efa://[fe80::2]:0:2 Peer host id: i-0b (7)",
            "libfabric:3112:1712345678::efa:cq:efa_rdm_txe_handle_error():650<warn> EFA provider internal txe failure err: 13, message: Unresponsive receiver (13)",
            "/nvshmem/src/modules/transport/libfabric/libfabric.cpp:nvshmemt_libfabric_slow_poll:210: Error in libfabric operation (5): Input/output error.",
        ),
    ),
    Family(
        failure="collective_hang",
        source="DeepEP csrc/kernels, csrc/legacy/buffer.hpp; vllm v1/worker/gpu/async_utils.py, distributed/utils.py; ray experimental/channel",
        messages=(
            "DeepEP timeout for dispatch receivers, rank 3, responsible_channel = 2, tokens remained: 17\n"
            + _refused("torch.AcceleratorError: CUDA error: unspecified launch failure")[0],
            "DeepEP dispatch NVL receiver timeout, channel: 3, RDMA: 0, nvl: 2, src NVL: 1, head: 2, tail: 2",
            *_raised(
                "RuntimeError: DeepEP error: CPU recv timeout",
                "RuntimeError: DeepEP error: timeout (dispatch CPU)",
                "RuntimeError: Fault detected in EP all2all communication: one or more ranks timed out during dispatch/combine. Mask: 3",
                "RuntimeError: Barrier timed out after 300 seconds",
                "ray.exceptions.RayChannelTimeoutError: System error: Timed out waiting for object available to read. ObjectID: 00ff",
            ),
        ),
    ),
    Family(
        failure="software",
        source="messages whose words are those of another class: pytorch amp/grad_scaler.py, fsdp/sharded_grad_scaler.py, distributed_c10d.py; sglang unified_radix_cache.py; vllm ec_transfer; attrs; TransformerEngine; flash-attn",
        messages=(
            *_raised(
                "AssertionError: No inf checks were recorded for this optimizer.",
                "AssertionError: write_back duplicate-reclaim victims diverged across TP ranks",
                "TypeError: layer: sparse checkpoint patches require a floating dtype because NaN is the unchanged-value sentinel",
                "ValueError: float('nan') is not supported",
                "TypeError: Invalid value for hash.  Must be True, False, or None.",
                "ValueError: EC source size mismatch for mm_hash=8",
                "AssertionError: Expected backend_options argument to be of type ProcessGroupNCCL.Options",
                "AssertionError: No PyNCCL communicator found",
                "TimeoutError: Timed out waiting for checkpoint prefetching",
                "RuntimeError: Registering memory failed with cudaError: 8. It's possible that this is an asynchronous error raised from a previous cuda operation. Please consider debugging with CUDA_LAUNCH_BLOCKING=1.",
                'ray.exceptions.ActorDiedError: The actor died because of an error raised in its creation task, ray::Worker.__init__() (pid=31, ip=10.0.0.5, actor_id=ff, repr=<x>)\n  File "/home/ada/run/worker.py", line 3, in __init__\n    widths = build()\nValueError: bad width',
            ),
            *_refused(
                "RuntimeError: /TransformerEngine/transformer_engine/common/gemm/cublaslt_gemm.cu:318 in function cublas_gemm: cuBLAS Error: an internal operation failed",
                "RuntimeError: /TransformerEngine/transformer_engine/common/fused_attn/fused_attn.cu:99 in function nvte_fused_attn: cuDNN Error: CUDNN_STATUS_BAD_PARAM. For more information, enable cuDNN error logging",
            ),
            "CUDA error (/flash-attention/csrc/flash_attn/src/flash_fwd_launch_template.h:188): an illegal memory access was encountered",
            "Error an illegal memory access was encountered at line 90 in file /src/csrc/ops.cu",
        ),
    ),
    Family(
        failure="host_memory",
        source="LSF bjobs exit reasons; Torque src/resmom/linux/mom_mach.c; OpenPBS cgroups hook; ucx src/ucs/debug/debug.c",
        messages=(
            "TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.",
            "=>> PBS: job killed: mem 4212340kb exceeded limit 4194304kb",
            "=>> PBS: job killed: vmem 42949672960 exceeded limit 34359738368",
            "Cgroup mem limit exceeded: oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=4711.pbs,mems_allowed=0-1",
            "[{node}:3112 :0:3390] Caught signal 7 (Bus error: nonexistent physical address)",
        ),
    ),
    Family(
        failure="cancelled",
        source="LSF bjobs exit reasons",
        messages=(
            "TERM_OWNER: job killed by owner.",
            "TERM_ADMIN: job killed by root or LSF administrator.",
        ),
    ),
    Family(
        failure="software",
        source="Julia base/client.jl; R src/main/errors.c; libgfortran runtime/error.c; OpenFOAM src/OpenFOAM/db/error; Quantum ESPRESSO UtilXlib; LAMMPS src/error.cpp; GROMACS fatalerror.cpp; pytorch torch/csrc/DataLoader.cpp",
        messages=(
            "ERROR: LoadError: MethodError: no method matching step(::Int64)\nStacktrace:\n [1] top-level scope\n   @ ~/run.jl:3",
            "Error in solve.default(a) : 'a' (3 x 2) must be square\nExecution halted",
            "At line 88 of file solver.f90 (unit = 10)\nFortran runtime error: End of file",
            "--> FOAM FATAL ERROR: \nMaximum number of iterations exceeded",
            "     Error in routine  electrons (1):\n     charge is wrong\n     stopping ...",
            "ERROR: Lost atoms: original 4000 current 3995 (src/thermo.cpp:488)\nLast command: run 1000",
            "Program:     gmx mdrun, version 2023.3\nSource file: src/gromacs/mdlib/sim_util.cpp (line 577)\n\nFatal error:\nStep 1200: The total potential energy is nan, which is not finite.",
            "RuntimeError: DataLoader worker (pid 27342) exited unexpectedly with exit code 1. Details are lost due to multiprocessing. Rerunning with num_workers=0 may give better error trace.\nRuntimeError: DataLoader worker (pid(s) 27342, 27344) exited unexpectedly",
        ),
    ),
    Family(
        failure="rendezvous",
        source="LightGBM src/network/linkers_socket.cpp",
        messages=("[LightGBM] [Fatal] Connecting to rank 1 failed",),
    ),
    Family(
        failure="gpu_memory",
        source="ROCm clr rocclr/device/rocm/rocdevice.cpp",
        messages=(
            ":0:rocdevice.cpp            :2984: 12345 us: [pid:3112 tid:0x7f] Callback: Queue 0x7f aborting with error : HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate the necessary resources. Available Free mem : 0 MB Code: 0x1008",
        ),
    ),
    Family(
        failure="fabric",
        source="ucx src/uct/ib/base/ib_device.c",
        messages=(
            "[1714521600.123456] [{node}:3112 :0] ib_device.c:1000 UCX  ERROR ibv_create_ah(dlid=1 sl=0 port=1 src_path_bits=0) for RC DEVX QP connect on mlx5_0 failed: Connection timed out",
        ),
    ),
    Family(
        failure="collective_hang",
        source="xla tsl/distributed_runtime/coordination/coordination_service_agent.cc",
        messages=(
            "E0105 10:00:00.1 3112 coordination_service_agent.cc:300] Polled an error from the coordination service: UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):\n/job:jax_worker/replica:0/task:3\nThe tasks have crashed. Check the task logs for an earlier error",
        ),
    ),
    Family(
        failure="software",
        source="deepspeed runtime/zero/stage_1_and_2.py",
        messages=_raised(
            "AssertionError: The parameter 423 has already been reduced. Gradient computed twice for this partition. Multiple gradient reduction is currently not supported",
        ),
    ),
)
