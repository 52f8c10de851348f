"""What training frameworks print while all is well: start-up, steps, checkpoints, a good end."""

# ruff: noqa: E501 -- lines are quoted as programs print them

from __future__ import annotations

from tests.fakes.planted_failures.world import World

PRINTED_STEPS = 60


def printing_ranks(world: World) -> list[int]:
    """Return the ranks that tell of steps, as each framework has it."""
    if world.framework == "megatron":
        return [world.world - 1]
    if world.framework == "torchtitan" and world.rng.random() < 0.5:
        return list(world.ranks)
    return [0]


def start_up(world: World) -> None:
    """Let every rank come up."""
    at = world.start_s
    world.launch(
        at, f"Job {world.job_id} on {len(world.nodes)} nodes: {','.join(world.nodes)}", "+ export NCCL_DEBUG=INFO"
    )
    for rank in world.ranks:
        t = at + 4 + world.rng.random() * 6
        world.say(
            rank,
            t,
            f"{{t:isoms}} - INFO - rank {rank}: torch {world.rng.choice(['2.1.2', '2.3.0', '2.6.0'])} on {world.node(rank)}, local rank {world.local(rank)}",
        )
        world.nccl(
            rank,
            t + 2,
            "INFO",
            f"Bootstrap : Using eth0:10.0.{rank // world.per_node}.{10 + rank // world.per_node}<0>",
        )
        world.nccl(rank, t + 3, "INFO", "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>")
        world.nccl(
            rank,
            t + 9,
            "INFO",
            f"comm 0x55d{rank:05x} rank {rank} nranks {world.world} cudaDev {world.local(rank)} busId {world.pci(rank)[5:7]}000 - Init COMPLETE",
        )
        world.say(rank, t + 20, "{t:isoms} - INFO - model built, optimizer ready")


def steps(world: World, *, until: int | None = None) -> None:
    """Let training go on until a step (the last one by default); only the first and the last steps are printed."""
    last = world.steps if until is None else until
    printers = printing_ranks(world)
    for step in range(1, last + 1):
        if PRINTED_STEPS // 3 < step < last - PRINTED_STEPS:
            continue
        at = world.start_s + 90.0 + step * world.step_s
        for rank in printers:
            world.say(rank, at, *step_lines(world, step))
        if step % 50 == 0:
            world.say(printers[0], at + 0.2, f"{{t:isoms}} - INFO - saved checkpoint global_step{step} to /ckpt/run")


def step_lines(world: World, step: int, loss: str = "") -> list[str]:
    """Return what one step prints."""
    shown = loss or f"{2.2 + 8 / (step + 3) + 0.03 * world.rng.random():.6f}"
    millis = world.step_s * 1e3 * (0.98 + 0.04 * world.rng.random())
    total = max(world.steps * 3, 1000)
    if world.framework == "megatron":
        when = " [{t:isous}]" if world.era != "old" else ""
        number = shown if loss else f"{float(shown):.6E}"
        return [
            f"{when} iteration {step:8d}/{total:8d} | consumed samples: {step * 512:12d} | elapsed time per iteration (ms): {millis:.1f} | learning rate: 1.500000E-04 | global batch size:   512 | lm loss: {number} | loss scale: 1.0 | grad norm: 0.812 | number of skipped iterations:   0 | number of nan iterations:   0 |"
        ]
    if world.framework == "deepspeed":
        return [
            f"[{{t:isoms}}] [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, skipped=0, lr=[1e-05], mom=[(0.9, 0.999)]",
            f"steps: {step} loss: {shown} iter time (s): {millis / 1e3:.3f} samples/sec: 207.455",
        ]
    if world.framework == "nemo":
        return [
            f"Training epoch 0, iteration {step}/{total - 1} | lr: 3e-05 | consumed_samples: {step * 512} | global_batch_size: 512 | global_step: {step} | reduced_train_loss: {shown} | train_step_timing in s: {millis / 1e3:.4f}"
        ]
    if world.framework == "torchtitan":
        return [
            f"\x1b[0m[titan] {{t:isoms}} - root - INFO - \x1b[31mstep: {step:2d}  \x1b[32mloss:  {shown}  \x1b[33mmemory: 45.12GiB(56.99%)  \x1b[34mtps: 7,512  \x1b[36mtflops: 401.23  \x1b[35mmfu: 40.57%\x1b[0m"
        ]
    if world.framework == "hf":
        return [
            f"{{'loss': {shown}, 'grad_norm': 1.2, 'learning_rate': 4.9e-05, 'epoch': {step / total:.2f}}}",
            f"\r {100 * step // total:3d}%|##    | {step}/{total} [00:30<41:10,  {millis / 1e3:.2f}s/it]",
        ]
    return [
        f"{{t:us}} [INFO|DP=0|PP=0|TP=0]: iteration: {step} / {total} | consumed_tokens: 41.9M | time_per_iteration_ms: {millis / 1e3:.2f}K | tokens_per_sec: 34.1K | lm_loss: {shown} | lr: 3e-05"
    ]


def good_end(world: World) -> None:
    """Let the job end well."""
    at = world.fail_s
    printer = printing_ranks(world)[0]
    ends = {
        "megatron": "[after training is done] datetime: {t:iso} ", "hf": "{'train_runtime': 3600.4, 'train_samples_per_second': 10.2, 'train_steps_per_second': 0.64, 'train_loss': 2.1, 'epoch': 1.0}",
        "torchtitan": "[titan] {t:isoms} - root - INFO - Training completed", "nemo": "`Trainer.fit` stopped: `max_steps=400` reached.",
    }  # fmt: skip
    world.say(printer, at, ends.get(world.framework, "{t:isoms} - INFO - Training completed"))
    for rank in world.ranks:
        if world.rng.random() < 0.4 and world.era == "new":
            world.glog(
                rank,
                at + 2,
                "W",
                "ProcessGroupNCCL.cpp:1250",
                "Warning: WARNING: process group has NOT been destroyed before we destruct ProcessGroupNCCL. On normal program exit, the application should call destroy_process_group to ensure that any pending NCCL operations have finished in this process. (function operator())",
            )
    world.end_s, world.state, world.exit_code = at + 20, "COMPLETED", 0
