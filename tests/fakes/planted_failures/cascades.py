"""What the others say when one rank died, waits for ever, or the job is ended: none of it is the cause."""

# ruff: noqa: E501 -- lines are quoted as programs print them

from __future__ import annotations

from collections.abc import Collection

from tests.fakes.planted_failures.world import World

OPERATIONS = ("ALLREDUCE", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE", "ALLTOALL_BASE", "BROADCAST", "SEND")


def after_death(world: World, rank: int, at: float, *, end: str = "Exited with exit code 1", signal: int = 0) -> None:
    """Let a rank's process end at a time, and all that follows in the others."""
    world.quiet_from[rank] = min(at + 0.5, world.quiet_from.get(rank, at + 0.5))
    how = world.rng.choice(["killed", "errors", "watchdog"])
    stop = at + 2 + 4 * world.rng.random()
    if how == "errors":
        errors(world, [other for other in world.ranks if other != rank], at + 1.0, rank)
        stop = at + 8
    elif how == "watchdog":
        stop = waits(world, at, silent=[rank]) + 3
    if world.launcher == "srun":
        world.launch(at + 0.8, f"srun: error: {world.node(rank)}: task {rank}: {end}")
        srun_ends(world, stop, {rank})
    else:
        torchrun_ends(world, rank, at + 1.2, stop, signal or 1)
    world.end_s = stop + 15


def srun_ends(world: World, at: float, gone: Collection[int] = ()) -> None:
    """Let srun take the other tasks down."""
    step = f"{world.job_id}.0"
    world.launch(at, f"srun: Terminating StepId={step}" if world.era != "old" else f"srun: Terminating job step {step}")
    due = world.rng.choice([" DUE TO TASK FAILURE", ""])
    for node in world.rng.sample(world.nodes, max(1, len(world.nodes) // 2)):
        world.launch(at + 0.3, f"slurmstepd: error: *** STEP {step} ON {node} CANCELLED AT {{t:isot}}{due} ***")
    for node in world.nodes:
        tasks = [rank for rank in world.ranks_of(node) if rank not in gone]
        if tasks:
            world.launch(
                at + 1.5,
                f"srun: error: {node}: tasks {tasks[0]}-{tasks[-1]}: {world.rng.choice(['Terminated', 'Killed', 'Exited with exit code 143'])}",
            )


def torchrun_ends(world: World, rank: int, at: float, stop: float, code: int) -> None:
    """Let torchrun's agents take their processes down, that of the dead rank first."""
    node, exit_code = world.node(rank), code if code < 128 else 128 - code
    for others in world.nodes:
        first = world.ranks_of(others)[0]
        when, said = (
            (at, rank) if others == node else (stop, world.ranks_of(others)[world.rng.randrange(world.per_node)])
        )
        where = "torch/distributed/elastic/multiprocessing/api.py:897]"
        shown = exit_code if others == node else world.rng.choice([1, -6])
        world.launch(
            when,
            f"W{{t:klog}} {world.pid(first) - 9} {where} Sending process {world.pid(first) + 1} closing signal SIGTERM",
        )
        world.launch(
            when + 0.7,
            f"E{{t:klog}} {world.pid(first) - 9} torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: {shown}) local_rank: {world.local(said)} (pid: {world.pid(said)}) of binary: /opt/venv/bin/python",
        )
        if others == node or world.rng.random() < 0.7:
            world.launch(when + 0.8, *(
                "Traceback (most recent call last):", '  File "/opt/venv/bin/torchrun", line 8, in <module>', "    sys.exit(main())",
                '  File "/opt/venv/lib/python3.10/site-packages/torch/distributed/launcher/api.py", line 264, in launch_agent', "    raise ChildFailedError(",
                "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", "=" * 60, "/opt/app/train.py FAILED", "-" * 60, "Failures:", "  <NO_OTHER_FAILURES>", "-" * 60,
                "Root Cause (first observed failure):", "[0]:", "  time      : {t:iso}", f"  host      : {others}", f"  rank      : {said} (local_rank: {world.local(said)})",
                f"  exitcode  : {shown} (pid: {world.pid(said)})", "  error_file: <N/A>", "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html", "=" * 60,
            ))  # fmt: skip


def errors(world: World, ranks: Collection[int], at: float, dead: int) -> None:
    """Let others find the connection closed."""
    peer = f"10.0.{dead // world.per_node}.{10 + dead // world.per_node}"
    for rank in ranks:
        if world.rng.random() < 0.3:
            continue
        t = at + 4 * world.rng.random()
        kind = world.rng.randrange(5)
        if kind == 0:
            world.warn(
                rank,
                t,
                "misc/socket.cc:49",
                f"socketProgress: Connection closed by remote peer {world.node(dead)}<44123>",
            )
        elif kind == 1:
            world.raises(
                rank,
                t,
                "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1970, remote process exited or there was a network error, NCCL version 2.20.5\nncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
            )
        elif kind == 2:
            world.raises(
                rank,
                t,
                f"RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [{peer}]:38211",
            )
        elif kind == 3:
            world.glog(
                rank,
                t,
                "W",
                "TCPStore.cpp:122",
                f"[c10d] recvValue failed on SocketImpl(fd=67, addr=[{world.node(rank)}]:52160, remote=[{world.nodes[0]}]:29500): failed to recv, got 0 bytes",
            )
        else:
            world.glog(
                rank, t, "E", "ProcessGroupNCCL.cpp:577", f"[Rank {rank}] NCCL communicator was aborted on rank {rank}."
            )


def waits(
    world: World, at: float, *, silent: Collection[int] = (), behind: Collection[int] = (), seq: int | None = None
) -> float:
    """Let all but the silent wait for a collective until their time is up; return when."""
    limit_ms = world.rng.choice([600_000, 1_800_000, 600_000])
    number = seq if seq is not None else world.steps * 37 + world.rng.randint(5, 900)
    operation = world.rng.choice(OPERATIONS)
    over = at + limit_ms / 1e3
    for rank in world.ranks:
        if rank in silent:
            continue
        if world.rng.random() < 0.08 and rank not in behind:
            world.glog(
                rank,
                over + 1.5,
                "E",
                "ProcessGroupNCCL.cpp:577",
                f"[Rank {rank}] NCCL communicator was aborted on rank {rank}.",
            )
            continue
        t = over + world.rng.random() * 1.5
        own = number - 1 if rank in behind else number
        ran = limit_ms + world.rng.randint(3, 900)
        sizes = (
            ""
            if world.era == "old"
            else f", NumelIn={world.rng.randint(1, 10**9)}, NumelOut={world.rng.randint(1, 10**9)}"
        )
        group = f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}]" if world.era == "new" else f"[Rank {rank}]"
        world.glog(
            rank,
            t,
            "E",
            "ProcessGroupNCCL.cpp:616",
            f"{group} Watchdog caught collective operation timeout: WorkNCCL(SeqNum={own}, OpType={operation}{sizes}, Timeout(ms)={limit_ms}) ran for {ran} milliseconds before timing out.",
        )
        if world.era != "old" and world.rng.random() < 0.8:
            world.glog(
                rank,
                t + 0.1,
                "E",
                "ProcessGroupNCCL.cpp:1664",
                f"[PG 1 Rank {rank}] Exception (either an error or timeout) detected by watchdog at work: {own}, last enqueued NCCL work: {own + 2}, last completed NCCL work: {own - 1}.",
            )
        world.glog(
            rank,
            t + 0.3,
            "E",
            "ProcessGroupNCCL.cpp:630",
            f"[Rank {rank}] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.",
        )
        world.glog(
            rank,
            t + 0.4,
            "E",
            "ProcessGroupNCCL.cpp:636",
            f"[Rank {rank}] To avoid data inconsistency, we are taking the entire process down.",
        )
        if world.rng.random() < 0.5:
            world.say(
                rank,
                t + 0.5,
                "terminate called after throwing an instance of 'c10::DistBackendError'",
                f"  what():  {group} NCCL watchdog thread terminated with exception: {group} Watchdog caught collective operation timeout: WorkNCCL(SeqNum={own}, OpType={operation}, Timeout(ms)={limit_ms}) ran for {ran} milliseconds before timing out.",
            )
    return over + 2


def hang_ends(world: World, over: float, silent: Collection[int] = ()) -> None:
    """End a job whose ranks gave up waiting."""
    first = next((rank for rank in world.ranks if rank not in silent), None)
    if first is None:
        world.end_s = over + 20
        return
    if world.launcher == "srun":
        world.launch(over + 1, f"srun: error: {world.node(first)}: task {first}: Aborted (core dumped)")
        srun_ends(world, over + 3, {first})
    else:
        torchrun_ends(world, first, over + 1, over + 4, 134)
    world.end_s = over + 20


def sigterm(world: World, at: float) -> None:
    """Let every rank be told to end."""
    for rank in world.ranks:
        kind = world.rng.randrange(4)
        if kind == 0:
            world.raises(
                rank,
                at + world.rng.random(),
                f"torch.distributed.elastic.multiprocessing.api.SignalException: Process {world.pid(rank)} got signal: 15",
            )
        elif kind == 1:
            world.say(rank, at + world.rng.random(), "{t:isoms} - INFO - SIGTERM received, saving nothing and leaving")
    if world.launcher != "srun":
        world.launch(
            at + 0.5,
            f"W{{t:klog}} {world.pid(0) - 9} torch/distributed/elastic/agent/server/api.py:741] Received Signals.SIGTERM death signal, shutting down workers",
        )
    world.end_s = at + world.rng.choice([3, 32])
