"""What Slurm and users end, ranks that do not find each other, and ranks that wait for ever."""

# ruff: noqa: E501 -- lines are quoted as programs print them

from __future__ import annotations

from tests.fakes.planted_failures.cascades import after_death, hang_ends, sigterm, srun_ends, waits
from tests.fakes.planted_failures.registry import cause, filled
from tests.fakes.planted_failures.world import Truth, World


def _ended(world: World, failure: str, state: str, *lines: str, sigterms: bool = True) -> Truth:
    at = world.fail_s
    for line in lines:
        world.launch(at, filled(line, world, 0))
    world.end_s, world.state, world.exit_code, world.exit_signal = at + 30, state, 0, 15
    if sigterms:
        sigterm(world, at + 0.2)
    if world.launcher == "srun" and world.rng.random() < 0.6:
        srun_ends(world, at + 1)
    if state == "CANCELLED":
        world.cancelled_by = 1000
    if state == "TIMEOUT":
        world.time_limit_s = int(at - world.start_s)
    return Truth(failure=failure, is_job_wide=True)


@cause("time_limit")
def limit_step(world: World) -> Truth:
    """The step and the job are told to end."""
    return _ended(
        world,
        "time_limit",
        "TIMEOUT",
        "slurmstepd: error: *** JOB <job> ON <head> CANCELLED AT {t:isot} DUE TO TIME LIMIT ***",
        "slurmstepd: error: *** STEP <job>.0 ON <head> CANCELLED AT {t:isot} DUE TO TIME LIMIT ***",
    )


@cause("time_limit")
def limit_job(world: World) -> Truth:
    """Only the job's line."""
    return _ended(
        world,
        "time_limit",
        "TIMEOUT",
        "slurmstepd: error: *** JOB <job> ON <head> CANCELLED AT {t:isot} DUE TO TIME LIMIT ***",
        sigterms=False,
    )


@cause("time_limit", held_out=True)
def limit_srun(world: World) -> Truth:
    """The form that srun prints outside of a batch job."""
    return _ended(
        world,
        "time_limit",
        "TIMEOUT",
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
        "srun: error: Timed out, job <job> has exceeded its time limit",
        "slurmstepd: error: *** STEP <job>.0 ON <head> CANCELLED AT {t:isot} DUE TO TIME LIMIT ***",
    )


@cause("preempted")
def preempted_step(world: World) -> Truth:
    """A job of higher priority comes."""
    return _ended(
        world,
        "preempted",
        "PREEMPTED",
        "slurmstepd: error: *** JOB <job> ON <head> CANCELLED AT {t:isot} DUE TO PREEMPTION ***",
        "slurmstepd: error: *** STEP <job>.0 ON <head> CANCELLED AT {t:isot} DUE TO PREEMPTION ***",
    )


@cause("preempted")
def preempted_grace(world: World) -> Truth:
    """With time to write a checkpoint."""
    world.say(0, world.fail_s - 20, "{t:isoms} - WARNING - SIGUSR1 received: writing a checkpoint before preemption")
    return _ended(
        world,
        "preempted",
        "PREEMPTED",
        "slurmstepd: error: *** STEP <job>.0 ON <head> CANCELLED AT {t:isot} DUE TO PREEMPTION ***",
        sigterms=False,
    )


@cause("preempted", held_out=True)
def preempted_requeue(world: World) -> Truth:
    """Preempted and put back into the queue: Slurm's record tells which it was."""
    world.has_record = True
    return _ended(
        world,
        "preempted",
        "PREEMPTED",
        "slurmstepd: error: *** JOB <job> ON <head> CANCELLED AT {t:isot} DUE TO JOB REQUEUE ***",
    )


@cause("cancelled")
def cancelled_job(world: World) -> Truth:
    """The user has seen enough."""
    return _ended(
        world,
        "cancelled",
        "CANCELLED",
        "slurmstepd: error: *** JOB <job> ON <head> CANCELLED AT {t:isot} ***",
        "slurmstepd: error: *** STEP <job>.0 ON <head> CANCELLED AT {t:isot} ***",
    )


@cause("cancelled")
def cancelled_step(world: World) -> Truth:
    """Only the step's line."""
    return _ended(
        world,
        "cancelled",
        "CANCELLED",
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
        "slurmstepd: error: *** STEP <job>.0 ON <head> CANCELLED AT {t:isot} ***",
        sigterms=False,
    )


@cause("cancelled", held_out=True)
def interrupted(world: World) -> Truth:
    """Somebody pressed Ctrl-C in salloc."""
    truth = _ended(
        world,
        "cancelled",
        "CANCELLED",
        "srun: interrupt (one more within 1 sec to abort)",
        "srun: StepId=<job>.0 tasks 0-3: running",
        "srun: sending Ctrl-C to StepId=<job>.0",
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
        sigterms=False,
    )
    for rank in world.ranks:
        world.raises(rank, world.fail_s + 0.5, "KeyboardInterrupt")
    return truth


def _nobody_starts(world: World, at: float) -> None:
    """Take back that training went on: the job never came up."""
    world.said = {rank: [entry for entry in lines if entry[0] < at] for rank, lines in world.said.items()}
    world.steps = 0
    world.launched = [entry for entry in world.launched if entry[0] < at]


def _no_meeting(world: World, first: str, others: str, *, after: float = 0.5) -> Truth:
    at = world.start_s + 4
    _nobody_starts(world, at)
    world.raises(0, at + 2, filled(first, world, 0))
    for rank in list(world.ranks)[1:]:
        if world.rng.random() < 0.8:
            world.raises(rank, at + 2 + after + world.rng.random(), filled(others, world, rank))
    after_death(world, 0, at + 3 + after)
    return Truth(failure="rendezvous", is_job_wide=True)


@cause("rendezvous")
def port_taken(world: World) -> Truth:
    """The port of rank 0 is in use."""
    _no_meeting(
        world,
        "RuntimeError: The server socket has failed to listen on any local network address. The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use). The server socket has failed to bind to ?UNKNOWN? (errno: 98 - Address already in use).",
        "torch.distributed.DistNetworkError: The client socket has timed out after 900s while trying to connect to (<head>, 29500).", after=900,
    )  # fmt: skip
    return Truth(failure="rendezvous", rank=0, node=world.nodes[0] if world.has_record else "")


@cause("rendezvous")
def one_missing(world: World) -> Truth:
    """Not all came in time."""
    text = "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 63/64 clients joined."
    return _no_meeting(world, text, text)


@cause("rendezvous")
def refused(world: World) -> Truth:
    """Nobody listens."""
    text = "torch.distributed.DistNetworkError: The client socket has failed to connect to any network address of (<head>, 29500). The IPv4 network addresses of (<head>, 29500) cannot be retrieved (errno: 111 - Connection refused)."
    return _no_meeting(world, text, text)


@cause("rendezvous", held_out=True)
def no_name(world: World) -> Truth:
    """The head node's name is not known."""
    text = "torch.distributed.DistNetworkError: The IPv6 network addresses of (<head>, 29500) cannot be retrieved (gai error: -2 - Name or service not known)."
    return _no_meeting(world, text, text)


@cause("rendezvous", held_out=True)
def elastic(world: World) -> Truth:
    """torchrun's own meeting times out."""
    return _no_meeting(
        world,
        "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed. See inner exception for details.",
    )


NO_ID = "RuntimeError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: wait timeout after 600000ms, keys: /default_pg/0//cuda//0"


@cause("rendezvous")
def unique_id(world: World) -> Truth:
    """Rank 0 never tells NCCL's id."""
    return _no_meeting(world, NO_ID, NO_ID)


@cause("collective_hang")
def silent_rank(world: World) -> Truth:
    """One rank stops without a word; the others wait."""
    rank = world.any_rank()
    world.quiet_from[rank] = world.fail_s
    hang_ends(world, waits(world, world.fail_s, silent=[rank]), [rank])
    return Truth(failure="collective_hang", rank=rank, node=world.node(rank))


@cause("collective_hang")
def rank_behind(world: World) -> Truth:
    """One rank waits in the collective before."""
    rank = world.any_rank()
    hang_ends(world, waits(world, world.fail_s, behind=[rank]))
    return Truth(failure="collective_hang", rank=rank, node=world.node(rank))


@cause("collective_hang")
def cancelled_hang(world: World) -> Truth:
    """Ranks gave up waiting but lived on, and the user cancelled the job in the end."""
    rank = world.any_rank()
    world.quiet_from[rank] = world.fail_s
    over = waits(world, world.fail_s, silent=[rank])
    at = over + world.rng.choice([300, 3600])
    world.launch(at, f"slurmstepd: error: *** JOB {world.job_id} ON {world.nodes[0]} CANCELLED AT {{t:isot}} ***")
    world.end_s, world.state, world.cancelled_by, world.exit_code = at + 5, "CANCELLED", 1000, 0
    return Truth(failure="collective_hang", rank=rank, node=world.node(rank))


@cause("collective_hang")
def limit_hang(world: World) -> Truth:
    """The same, until the time was up."""
    rank = world.any_rank()
    world.quiet_from[rank] = world.fail_s
    over = waits(world, world.fail_s, silent=[rank])
    at = over + world.rng.choice([900, 7200])
    world.launch(
        at,
        f"slurmstepd: error: *** JOB {world.job_id} ON {world.nodes[0]} CANCELLED AT {{t:isot}} DUE TO TIME LIMIT ***",
    )
    world.end_s, world.state, world.exit_code, world.time_limit_s = at + 5, "TIMEOUT", 0, int(at - world.start_s)
    return Truth(failure="collective_hang", rank=rank, node=world.node(rank))


@cause("collective_hang", held_out=True)
def heartbeat(world: World) -> Truth:
    """The watchdog itself is stuck; nobody says who is behind."""
    for rank in world.ranks:
        if world.rng.random() < 0.9:
            world.glog(
                rank,
                world.fail_s + 600 + world.rng.random(),
                "F",
                "ProcessGroupNCCL.cpp:1557",
                f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Terminating the process after attempting to dump debug info, due to ProcessGroupNCCL watchdog hang.",
            )
            world.glog(
                rank,
                world.fail_s + 599,
                "E",
                "ProcessGroupNCCL.cpp:1400",
                f"[PG ID 0 PG GUID 0(default_pg) Rank {rank}] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives.",
            )
    hang_ends(world, world.fail_s + 602)
    return Truth(failure="collective_hang", is_job_wide=True)


@cause("collective_hang", held_out=True)
def gloo_barrier(world: World) -> Truth:
    """A barrier names who did not come."""
    rank = world.rng.randrange(1, world.world)
    world.quiet_from[rank] = world.fail_s
    world.raises(0, world.fail_s + 1800, f"RuntimeError: Rank {rank} failed to pass monitoredBarrier in 1800000 ms")
    after_death(world, 0, world.fail_s + 1801)
    return Truth(failure="collective_hang", rank=rank, node=world.node(rank))
