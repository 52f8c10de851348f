"""Memory of GPUs and hosts that runs out, and storage that is full or gone."""

# ruff: noqa: E501 -- lines are quoted as programs print them

from __future__ import annotations

from tests.fakes.planted_failures.cascades import after_death
from tests.fakes.planted_failures.registry import cause, filled, raised
from tests.fakes.planted_failures.world import Truth, World

raised(
    "gpu_memory",
    "oom_new",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate <asked> GiB. GPU <local> has a total capacity of 79.10 GiB of which 412.62 MiB is free. Including non-PyTorch memory, this process has 78.69 GiB memory in use. Of the allocated memory 74.25 GiB is allocated by PyTorch, and 2.61 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)",
)
raised(
    "gpu_memory",
    "oom_old",
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate <asked> GiB (GPU <local>; 79.10 GiB total capacity; 74.25 GiB already allocated; 412.62 MiB free; 76.90 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF",
)
raised(
    "gpu_memory",
    "oom_runtime",
    "RuntimeError: CUDA out of memory. Tried to allocate <asked> GiB (GPU <local>; 39.59 GiB total capacity; 36.11 GiB already allocated; 21.19 MiB free; 37.90 GiB reserved in total by PyTorch)",
)
raised(
    "gpu_memory",
    "cublas_alloc",
    "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
)
raised(
    "gpu_memory",
    "oom_hip",
    "torch.OutOfMemoryError: HIP out of memory. Tried to allocate <asked> GiB. GPU <local> has a total capacity of 63.98 GiB of which 1.02 GiB is free.",
    held_out=True,
)
raised(
    "gpu_memory",
    "oom_runtime_api",
    "RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.",
    held_out=True,
)
raised(
    "gpu_memory",
    "xla_exhausted",
    "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.",
)
raised(
    "gpu_memory",
    "cudnn_plan",
    "RuntimeError: FIND was unable to find an engine to execute this computation because the workspace could not be allocated: CUDNN_STATUS_ALLOC_FAILED",
    held_out=True,
)


@cause("gpu_memory")
def many_ranks_oom(world: World) -> Truth:
    """All ranks of one step run out at once, as equal shards do."""
    for rank in world.ranks:
        world.raises(
            rank,
            world.fail_s + world.rng.random(),
            filled(
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU <local> has a total capacity of 79.10 GiB of which 1.62 GiB is free.",
                world,
                rank,
            ),
        )
    after_death(world, 0, world.fail_s + 1)
    return Truth(failure="gpu_memory", is_job_wide=True)


def _killed(world: World, rank: int, *lines: str) -> Truth:
    world.quiet_from[rank] = world.fail_s
    for line in lines:
        world.launch(world.fail_s + 0.4, filled(line, world, rank))
    after_death(world, rank, world.fail_s, end="Killed", signal=137)
    world.state = "OUT_OF_MEMORY" if world.rng.random() < 0.6 else "FAILED"
    return Truth(failure="host_memory", rank=rank, node=world.node(rank))


def _kernel_oom(world: World, rank: int) -> None:
    pid = world.pid(rank)
    world.kernel_say(
        world.node(rank), world.fail_s,
        "python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
        f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=job_{world.job_id},mems_allowed=0-1,oom_memcg=/slurm/uid_1000/job_{world.job_id},task_memcg=/slurm/uid_1000/job_{world.job_id}/step_0/task_{world.local(rank)},task=python,pid={pid},uid=1000",
        f"Memory cgroup out of memory: Killed process {pid} (python) total-vm:251658240kB, anon-rss:201326592kB, file-rss:1024kB, shmem-rss:0kB, UID:1000 pgtables:409600kB oom_score_adj:0",
    )  # fmt: skip


@cause("host_memory")
def slurm_oom_kill(world: World) -> Truth:
    """slurmstepd counts an event of the job's cgroup."""
    return _killed(
        world,
        world.any_rank(),
        "slurmstepd: error: Detected 1 oom_kill event in StepId=<job>.0. Some of the step tasks have been OOM Killed.",
    )


@cause("host_memory")
def slurm_oom_handler(world: World) -> Truth:
    """Older wording, with the kernel's own log."""
    rank = world.any_rank()
    _kernel_oom(world, rank)
    world.kernel_nodes = world.kernel_nodes or list(world.nodes)
    return _killed(
        world,
        rank,
        "slurmstepd: error: Detected 3 oom-kill event(s) in step <job>.0 cgroup. Some of your processes may have been killed by the cgroup out-of-memory handler.",
    )


@cause("host_memory")
def kernel_only(world: World) -> Truth:
    """Only the kernel says it; the step's tasks are just killed."""
    rank = world.any_rank()
    _kernel_oom(world, rank)
    world.kernel_nodes = list(world.nodes)
    return _killed(world, rank)


raised(
    "host_memory",
    "bad_alloc",
    "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc",
    end="Aborted (core dumped)",
)
raised("host_memory", "cannot_allocate", "OSError: [Errno 12] Cannot allocate memory", held_out=True)
raised(
    "host_memory",
    "cpu_allocator",
    "RuntimeError: [enforce fail at alloc_cpu.cpp:83] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 68719476736 bytes. Error code 12 (Cannot allocate memory)",
)
raised(
    "host_memory",
    "shm_worker",
    "RuntimeError: DataLoader worker (pid <pid>) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit.",
    held_out=True,
)


@cause("host_memory", held_out=True)
def slurm_limit(world: World) -> Truth:
    """Slurm's own accounting ends the step."""
    return _killed(
        world,
        world.any_rank(),
        "slurmstepd: error: Step <job>.0 exceeded memory limit (530120704 > 524288000), being killed",
        "slurmstepd: error: Exceeded job memory limit",
    )


@cause("host_memory", held_out=True)
def ray_monitor(world: World) -> Truth:
    """A worker is taken down by the site's memory watcher, in words of its own."""
    return _killed(
        world,
        world.any_rank(),
        "slurmstepd: error: task <local>: Out Of Memory. StepId=<job>.0 hit its memory limit on <node>",
    )


raised(
    "storage",
    "enospc",
    "OSError: [Errno 28] No space left on device: '/ckpt/run/global_step<step>/mp_rank_00_model_states.pt'",
)
raised(
    "storage", "quota", "OSError: [Errno 122] Disk quota exceeded: '/home/alice/run/checkpoints/iter_0001000/model.pt'"
)
raised("storage", "stale", "OSError: [Errno 116] Stale file handle: '/data/tokens/shard_00031.bin'")
raised("storage", "transport", "OSError: [Errno 107] Transport endpoint is not connected: '/mnt/fsx/data'")
raised("storage", "io_error", "OSError: [Errno 5] Input/output error")
raised(
    "storage",
    "writer",
    "RuntimeError: [enforce fail at inline_container.cc:595] . unexpected pos 17179869184 vs 17179869080\n\nOSError: [Errno 28] No space left on device",
    held_out=True,
)
raised("storage", "read_only", "OSError: [Errno 30] Read-only file system: '/scratch/run/ckpt'", held_out=True)
raised(
    "storage",
    "stale_nfs",
    "torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([<rank>])\nOSError: [Errno 116] Stale file handle",
    held_out=True,
)


@cause("storage")
def full_on_several(world: World) -> Truth:
    """Several ranks write the same file system, which is full."""
    first = world.any_rank()
    some = [first, *(rank for rank in world.ranks if rank != first and world.rng.random() < 0.6)]
    for number, rank in enumerate(some):
        world.raises(
            rank,
            world.fail_s + 0.3 * bool(number) + world.rng.random(),
            "OSError: [Errno 28] No space left on device: '/ckpt/run/tmp'",
        )
    after_death(world, first, world.fail_s)
    return Truth(failure="storage", is_job_wide=True)


@cause("storage")
def lustre_evicted(world: World) -> Truth:
    """A client of Lustre is thrown out, on one node; its ranks fail to read."""
    node = world.rng.choice(world.nodes)
    world.kernel_nodes = list(world.nodes)
    world.kernel_say(
        node,
        world.fail_s - 2,
        "LustreError: 167-0: fs01-OST0003-osc-ffff9f: This client was evicted by fs01-OST0003; in progress operations using this service will fail.",
    )
    for rank in world.ranks_of(node):
        world.raises(
            rank,
            world.fail_s + world.rng.random(),
            "OSError: [Errno 5] Input/output error: '/lustre/fs01/data/shard_0007.bin'",
        )
    after_death(world, world.ranks_of(node)[0], world.fail_s)
    return Truth(failure="storage", node=node)


@cause("storage", held_out=True)
def lustre_shutdown(world: World) -> Truth:
    """A server of Lustre goes; one rank tells."""
    rank = world.any_rank()
    world.raises(
        rank,
        world.fail_s,
        "OSError: [Errno 108] Cannot send after transport endpoint shutdown: '/lustre/fs01/data/shard_0007.bin'",
    )
    after_death(world, rank, world.fail_s)
    return Truth(failure="storage", node=world.node(rank), rank=rank)
