"""What is in logs of jobs that fail and of jobs that do not, and proves nothing."""

# ruff: noqa: E501 -- lines are quoted as programs print them

from __future__ import annotations

from tests.fakes.planted_failures.world import World

WARNINGS = (
    "/opt/venv/lib/python3.10/site-packages/torch/utils/checkpoint.py:429: UserWarning: torch.utils.checkpoint: please pass in use_reentrant=True",
    "FutureWarning: `torch.cuda.amp.autocast(args...)` is deprecated. Please use `torch.amp.autocast('cuda', args...)` instead.",
    "WARNING:root:Failed to import tensorboard, metrics are not shown",
    "rm: cannot remove '/tmp/.X11-unix': Permission denied",
    "bash: /home/ada/.bashrc: Permission denied",
    "cat: /sys/fs/cgroup/memory.max: No such file or directory",
    "[WARNING] async_io requires the dev libaio .so object and headers but these were not found.",
    "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid your system being overloaded",
    "wandb: WARNING Retry attempt failed: HTTPSConnectionPool(host='api.wandb.ai'): Connection reset by peer. Retrying in 5 s",
    "urllib3.connectionpool WARNING Connection pool is full, discarding connection",
    "hint: a hang might be caused by a rank that raised an exception, see the documentation",
    "Note: out of memory errors could be caused by fragmentation; set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid it",
    "INFO - NCCL_IB_TIMEOUT=22 so that a retry exceeded error is less likely",
    "ldconfig: Can't create temporary cache file /etc/ld.so.cache~: Permission denied",
    "INFO - tokenizer: 0 samples were skipped because of errors, nan_count=0",
    "INFO - watchdog timeout is 600000 ms, heartbeat timeout 480 s",
)
QUOTED_KERNEL = (
    "INFO - self-test pattern: NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.",
    "[Mon Jan  5 10:00:00 2026] NVRM: Xid (PCI:0000:86:00): 48, pid='<unknown>', name=<unknown>, DBE (double bit error)",
    "kernel: mlx5_core 0000:12:00.0 mlx5_3: Link DOWN (quoted from the ticket)",
)
HARMLESS_KERNEL = (
    "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing",
    "IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready",
    "perf: interrupt took too long (2510 > 2500), lowering kernel.perf_event_max_sample_rate to 79500",
    "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0 slot:0)",
    "NVRM: Xid (PCI:0000:2c:00): 63, pid='<unknown>', name=<unknown>, Row Remapper: new row marked for remapping, reset gpu to activate.",
    'audit: type=1400 audit(1700000000.123:45): apparmor="DENIED" operation="open" profile="snap.x"',
    "systemd-journald[812]: Received SIGTERM from PID 1 (systemd).",
)


def at_start(world: World) -> None:
    """Warnings, quotations and advice of programs that start up."""
    for rank in world.ranks:
        for text in world.rng.sample(WARNINGS, world.rng.randint(0, 3)):
            world.say(rank, world.start_s + 5 + 60 * world.rng.random(), text)
    if world.rng.random() < 0.3:
        world.say(world.any_rank(), world.start_s + 40, world.rng.choice(QUOTED_KERNEL))
    if world.rng.random() < 0.25:
        rank = world.any_rank()
        world.say(rank, world.start_s + 30, *(
            "Traceback (most recent call last):", '  File "/opt/venv/lib/python3.10/site-packages/wandb/sdk/lib/retry.py", line 131, in __call__',
            "    result = self._call_fn(*args, **kwargs)", "requests.exceptions.ReadTimeout: HTTPSConnectionPool(host='api.wandb.ai', port=443): Read timed out.",
            "wandb: Network error (ReadTimeout), entering retry loop.",
        ))  # fmt: skip


def while_running(world: World) -> None:
    """What goes wrong now and then, and is lived with."""
    long_before = world.start_s + 90 + 0.3 * world.steps * world.step_s
    if world.steps * world.step_s < 900:
        return
    if world.rng.random() < 0.25:
        rank = world.any_rank()
        world.say(
            rank,
            long_before,
            "{t:isoms} - WARNING - ConnectionResetError: [Errno 104] Connection reset by peer, metrics are sent again",
        )
    if world.rng.random() < 0.2:
        rank = world.any_rank()
        world.nccl(rank, long_before, "INFO", "NET/IB : Got async event : GID table change")
    if world.rng.random() < 0.2:
        world.say(
            world.any_rank(),
            long_before,
            "{t:isoms} - WARNING - OSError: [Errno 5] Input/output error: '/data/shard_0131.tar', trying again (1 of 5)",
        )


def of_kernels(world: World) -> None:
    """What kernels say all day, and what they said of other jobs."""
    for node in world.nodes:
        for _ in range(world.rng.randint(2, 6)):
            at = world.start_s - 86_400 + world.rng.random() * (86_400 + world.fail_s - world.start_s)
            world.kernel_say(node, at, world.rng.choice(HARMLESS_KERNEL))
        if world.rng.random() < 0.2:
            at = world.start_s - 3600 * world.rng.randint(2, 20)
            world.kernel_say(node, at, world.rng.choice([
                "NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
                "NVRM: Xid (PCI:0000:4e:00): 31, pid=7001, name=python, Ch 00000008, intr 00000000. MMU Fault",
                "Memory cgroup out of memory: Killed process 7100 (python) total-vm:9000000kB, anon-rss:8000000kB, file-rss:0kB, shmem-rss:0kB, UID:1001 pgtables:100kB oom_score_adj:0",
                "mlx5_core 0000:12:00.0 ibs3: Link down",
            ]))  # fmt: skip
