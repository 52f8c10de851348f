"""Numbers that are none, wrong settings, and programs that break."""

# ruff: noqa: E501 -- lines are quoted as programs print them

from __future__ import annotations

from tests.fakes.planted_failures.cascades import after_death
from tests.fakes.planted_failures.frameworks import printing_ranks, step_lines
from tests.fakes.planted_failures.registry import cause, everywhere, filled, raised
from tests.fakes.planted_failures.world import Truth, World

raised(
    "numeric",
    "megatron_forward",
    "AssertionError: Rank <rank>: found NaN in local forward loss calculation. Device: <local>, node: <node>",
)
raised(
    "numeric",
    "megatron_rerun",
    "RuntimeError: Unexpected result nan on rank <rank> at iteration #<step> invocation #1 (message='found NaN in local forward loss calculation')",
)
raised(
    "numeric",
    "clip_grad",
    "RuntimeError: The total norm of order 2.0 for gradients from `parameters` is non-finite, so it cannot be clipped. To disable this error and scale the gradients by the non-finite norm anyway, set `error_if_nonfinite=False`",
)
raised(
    "numeric", "anomaly", "RuntimeError: Function 'PowBackward0' returned nan values in its 0th output.", held_out=True
)
raised(
    "numeric",
    "value_range",
    "ValueError: Expected parameter probs (Tensor of shape (8, 32000)) of distribution Categorical to satisfy the constraint Simplex(), but found invalid values: tensor([[nan, nan, nan]], device='cuda:<local>')",
    held_out=True,
)


@cause("numeric")
def loss_scale(world: World) -> Truth:
    """fp16 can go no lower; all ranks see the same."""
    for rank in world.ranks:
        world.raises(
            rank,
            world.fail_s + world.rng.random(),
            "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
        )
    after_death(world, 0, world.fail_s + 1)
    return Truth(failure="numeric", is_job_wide=True)


@cause("numeric")
def loss_nan(world: World) -> Truth:
    """The loss is no number; the program looks at it and leaves."""
    printer = printing_ranks(world)[0]
    world.say(printer, world.fail_s, *step_lines(world, world.steps + 1, "nan"))
    world.raises(printer, world.fail_s + 1, "ValueError: loss is NaN, stopping training")
    after_death(world, printer, world.fail_s + 1)
    return Truth(failure="numeric")


@cause("numeric", held_out=True)
def not_finite(world: World) -> Truth:
    """A trainer of one's own looks at the loss on every rank."""
    for rank in world.ranks:
        world.raises(
            rank, world.fail_s + world.rng.random(), "FloatingPointError: Non-finite loss encountered: inf, terminating"
        )
    after_death(world, 0, world.fail_s + 1)
    return Truth(failure="numeric", is_job_wide=True)


everywhere(
    "config",
    "arguments",
    "usage: train.py [-h] [--lr LR] [--tp TP]\ntrain.py: error: unrecognized arguments: --tensor-parallel 8",
)
everywhere("config", "no_file", "FileNotFoundError: [Errno 2] No such file or directory: '/data/tokens/train.idx'")
everywhere("config", "no_module", "ModuleNotFoundError: No module named 'flash_attn'")
everywhere(
    "config",
    "divisible",
    "AssertionError: global batch size (500) is not divisible by micro batch size (3) times data parallel size (8)",
)
everywhere("config", "denied", "PermissionError: [Errno 13] Permission denied: '/data/private/tokens.bin'")
everywhere(
    "config",
    "state_dict",
    "RuntimeError: Error(s) in loading state_dict for GPTModel:\n\tsize mismatch for embedding.weight: copying a param with shape torch.Size([50304, 4096]) from checkpoint, the shape in current model is torch.Size([32000, 4096]).",
)
everywhere(
    "config",
    "hydra",
    "omegaconf.errors.ConfigAttributeError: Key 'tensor_model_parallell_size' is not in struct\n    full_key: model.tensor_model_parallell_size",
    held_out=True,
)
everywhere("config", "world_size", "RuntimeError: world_size (24) is not divisible by 16", held_out=True)
everywhere(
    "config",
    "no_kernel_image",
    "RuntimeError: CUDA error: no kernel image is available for execution on the device\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.",
)
everywhere(
    "config",
    "gated",
    "huggingface_hub.errors.GatedRepoError: 401 Client Error. Access to model meta-llama/Llama-3.1-8B is restricted. You must be authenticated to access it.",
    held_out=True,
)
everywhere(
    "config",
    "glibcxx",
    "ImportError: /lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by /opt/venv/fused.so)",
    held_out=True,
)
everywhere("config", "ordinal", "RuntimeError: CUDA error: invalid device ordinal")

raised("software", "shapes", "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4096x11008 and 4096x4096)")
raised("software", "key", "KeyError: 'input_ids'")
raised("software", "assertion", "AssertionError: sample <n> has length 0")
raised(
    "software", "unicode", "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"
)
raised(
    "software",
    "device_assert",
    "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1290: indexSelectLargeIndex: block: [12,0,0], thread: [64,0,0] Assertion `srcIndex < srcSelectDimSize` failed.\nRuntimeError: CUDA error: device-side assert triggered",
)
raised(
    "software",
    "lock",
    "filelock._error.Timeout: The file lock '/home/alice/.cache/x.lock' could not be acquired.",
    held_out=True,
)
raised("software", "attribute", "AttributeError: 'NoneType' object has no attribute 'size'", held_out=True)
raised("software", "stop", "RuntimeError: generator raised StopIteration", held_out=True)


@cause("software")
def illegal_access(world: World) -> Truth:
    """A kernel of the program goes astray; the driver says so first."""
    rank = world.any_rank()
    world.kernel_nodes = list(world.nodes)
    world.kernel_say(
        world.node(rank),
        world.fail_s,
        filled(
            "NVRM: Xid (PCI:<pci>): 31, pid=<pid>, name=python, Ch 00000009, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_3 faulted @ 0x7f12_a0000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
            world,
            rank,
        ),
    )
    world.kernel_say(
        world.node(rank),
        world.fail_s + 2,
        filled("NVRM: Xid (PCI:<pci>): 43, pid=<pid>, name=python, Ch 00000009", world, rank),
    )
    world.raises(
        rank,
        world.fail_s + 1,
        "RuntimeError: CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.",
    )
    after_death(world, rank, world.fail_s + 1.5)
    return Truth(failure="software", rank=rank, node=world.node(rank), pci=world.pci(rank))


@cause("software")
def xid13_then_109(world: World) -> Truth:
    """A bad instruction, then the channel that it left behind times out."""
    rank = world.any_rank()
    world.kernel_nodes = list(world.nodes)
    say = filled(
        "NVRM: Xid (PCI:<pci>): 13, pid=<pid>, name=python, Graphics SM Warp Exception on (GPC 7, TPC 7, SM 0): Illegal Instruction Parameter",
        world,
        rank,
    )
    world.kernel_say(world.node(rank), world.fail_s, say)
    world.kernel_say(
        world.node(rank),
        world.fail_s + 5,
        filled(
            "NVRM: Xid (PCI:<pci>): 109, pid=<pid>, name=python, Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x58005",
            world,
            rank,
        ),
    )
    world.raises(rank, world.fail_s + 2, "RuntimeError: CUDA error: an illegal instruction was encountered")
    after_death(world, rank, world.fail_s + 2.5)
    return Truth(failure="software", rank=rank, node=world.node(rank), pci=world.pci(rank))


@cause("software")
def segfault(world: World) -> Truth:
    """A process breaks without a word in Python."""
    rank = world.any_rank()
    if world.rng.random() < 0.5:
        world.kernel_nodes = list(world.nodes)
        world.kernel_say(
            world.node(rank),
            world.fail_s,
            filled(
                "pt_main_thread[<pid>]: segfault at 18 ip 00007f7e3c0a1b2c sp 00007f7d11ffae80 error 4 in libnccl.so.2[7f7e38000000+8000000]",
                world,
                rank,
            ),
        )
    world.say(
        rank,
        world.fail_s,
        "Fatal Python error: Segmentation fault",
        "",
        "Current thread 0x00007f7d12000700 (most recent call first):",
        '  File "/opt/app/model.py", line 77 in forward',
    )
    after_death(world, rank, world.fail_s, end="Segmentation fault (core dumped)", signal=139)
    return Truth(failure="software", rank=rank, node=world.node(rank))


@cause("software")
def mismatch(world: World) -> Truth:
    """Ranks call different collectives."""
    at = world.fail_s
    for rank in world.ranks:
        world.raises(
            rank,
            at + world.rng.random(),
            f"RuntimeError: Detected mismatch between collectives on ranks. Rank {rank} is running collective: CollectiveFingerPrint(SequenceNumber=77, OpType=BROADCAST, TensorShape=[20]), but Rank {(rank + 1) % world.world} is running collective: CollectiveFingerPrint(SequenceNumber=77, OpType=ALLREDUCE).",
        )
    after_death(world, 0, at + 1)
    return Truth(failure="software")


@cause("software", held_out=True)
def glibc(world: World) -> Truth:
    """glibc ends the process."""
    rank = world.any_rank()
    world.say(
        rank, world.fail_s, "munmap_chunk(): invalid pointer", "*** Process received signal ***", "Signal: Aborted (6)"
    )
    after_death(world, rank, world.fail_s, end="Aborted (core dumped)", signal=134)
    return Truth(failure="software", rank=rank, node=world.node(rank))
