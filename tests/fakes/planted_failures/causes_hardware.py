"""GPUs, NVLink, network and nodes that break."""

# ruff: noqa: E501 -- lines are quoted as programs print them

from __future__ import annotations

from tests.fakes.planted_failures.cascades import after_death, hang_ends, srun_ends, waits
from tests.fakes.planted_failures.registry import cause, filled
from tests.fakes.planted_failures.world import Truth, World


def _gpu(
    world: World, *kernel: str, error: str = "", failure: str = "gpu_hardware", needs_kernel: bool = True
) -> Truth:
    rank = world.any_rank()
    if needs_kernel or not error:
        world.kernel_nodes = list(world.nodes)
    for number, text in enumerate(kernel):
        world.kernel_say(world.node(rank), world.fail_s + 0.6 * number, filled(text, world, rank))
    if error:
        world.raises(rank, world.fail_s + 1.5, filled(error, world, rank))
        after_death(world, rank, world.fail_s + 2)
    else:
        world.quiet_from[rank] = world.fail_s
        hang_ends(world, waits(world, world.fail_s, silent=[rank]), [rank])
    if world.rng.random() < 0.4:
        world.kernel_say(
            world.node(rank),
            world.fail_s + 4,
            filled("NVRM: Xid (PCI:<pci>): 45, pid=<pid>, name=python, Ch 00000008", world, rank),
        )
    return Truth(failure=failure, node=world.node(rank), rank=rank, pci=world.pci(rank))


def _xid(name: str, *kernel: str, error: str = "", failure: str = "gpu_hardware", held_out: bool = False) -> None:
    def plant(world: World) -> Truth:
        return _gpu(world, *kernel, error=error, failure=failure)

    plant.__name__ = name
    cause(failure, held_out=held_out)(plant)


OFF_BUS = "NVRM: Xid (PCI:<pci>): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
LAUNCH = "RuntimeError: CUDA error: unspecified launch failure\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1."
UNKNOWN = "RuntimeError: CUDA error: unknown error\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions."
ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect."

_xid("xid79", OFF_BUS, error=UNKNOWN)
_xid("xid79_silent", OFF_BUS, "NVRM: GPU <pci>.0: GPU has fallen off the bus.")
_xid(
    "xid48_94",
    "NVRM: Xid (PCI:<pci>): 48, pid=<pid>, name=python, DBE (double bit error) ECC Error (Addr:FBPA 5)",
    "NVRM: Xid (PCI:<pci>): 94, pid=<pid>, name=python, Contained: SM (0x1). RST: No, D-RST: No",
    error=ECC,
)
_xid("xid95", "NVRM: Xid (PCI:<pci>): 95, pid=<pid>, name=python, Uncontained: FBHUB. RST: Yes, D-RST: No", error=ECC)
_xid(
    "xid119",
    "NVRM: Xid (PCI:<pci>): 119, pid=<pid>, name=python, Timeout waiting for RPC from GSP0! Expected function 76 (GSP_RM_CONTROL) (0x20802002 0x8).",
)
_xid(
    "xid62",
    "NVRM: Xid (PCI:<pci>): 62, pid='<unknown>', name=<unknown>, 2d1f(1cf4) 00000000 00000000",
    error=LAUNCH,
    held_out=True,
)
_xid(
    "xid140",
    "NVRM: Xid (PCI:<pci>): 140, pid=<pid>, name=python, An uncorrectable ECC error detected (possible firmware handling failure) DRAM:0, LTC:0, MMU:0, PCIE:0",
    error=ECC,
    held_out=True,
)
_xid(
    "xid64",
    "NVRM: Xid (PCI:<pci>): 64, pid='<unknown>', name=<unknown>, Row Remapper: failed to remap row",
    "NVRM: Xid (PCI:<pci>): 48, pid=<pid>, name=python, DBE (double bit error)",
    error=UNKNOWN,
    held_out=True,
)
_xid(
    "nvlink74",
    "NVRM: Xid (PCI:<pci>): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 3(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)",
    error="RuntimeError: CUDA error: an illegal memory access was encountered",
    failure="nvlink",
)
_xid(
    "nvlink149",
    "NVRM: Xid (PCI:<pci>): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
    failure="nvlink",
)
_xid(
    "nvlink_peer",
    "NVRM: Xid (PCI:<pci>): 74, pid=<pid>, name=python, NVLink: fatal error detected on link 0(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
    error="RuntimeError: CUDA error: invalid access of peer GPU memory over NVLink or a hardware error",
    failure="nvlink",
)
_xid(
    "nvlink145",
    "NVRM: Xid (PCI:<pci>): 145, RLW_CTRL Nonfatal XC0 i0 Link 12 (0x00000007 0x00000000 0x00000000 0x00000000)",
    "NVRM: Xid (PCI:<pci>): 149, NETIR_LINK_DOWN Fatal XC1 i0 Link 12 (0x00000025 0x00000000)",
    failure="nvlink",
    held_out=True,
)


@cause("nvlink", held_out=True)
def nvlink_uncorrectable(world: World) -> Truth:
    """CUDA itself says it, no kernel log is at hand."""
    return _gpu(
        world,
        error="RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution",
        failure="nvlink",
        needs_kernel=False,
    )


@cause("nvlink")
def nvswitch(world: World) -> Truth:
    """A switch of the node gives up; all its ranks stop."""
    node = world.rng.choice(world.nodes)
    world.kernel_nodes = list(world.nodes)
    world.kernel_say(
        node,
        world.fail_s,
        "nvidia-nvswitch2: SXid (PCI:0000:c5:00.0): 12028, Fatal, Link 32 egress non-posted PRIV error (First)",
        "nvidia-nvswitch2: SXid (PCI:0000:c5:00.0): 20034, Fatal, Link 32 LTSSM Fault Up",
    )
    for rank in world.ranks_of(node):
        world.quiet_from[rank] = world.fail_s
    hang_ends(world, waits(world, world.fail_s, silent=world.ranks_of(node)), world.ranks_of(node))
    return Truth(failure="nvlink", node=node)


@cause("gpu_hardware")
def ecc_text_only(world: World) -> Truth:
    """The program tells, and nothing else is at hand."""
    world.kernel_nodes = []
    truth = _gpu(world, error=ECC, needs_kernel=False)
    return Truth(failure="gpu_hardware", node=truth.node, rank=truth.rank)


@cause("gpu_hardware", held_out=True)
def gpu_lost_text(world: World) -> Truth:
    """NVML in the program finds the GPU lost."""
    world.kernel_nodes = []
    truth = _gpu(world, error="pynvml.NVMLError_GpuIsLost: GPU is lost", needs_kernel=False)
    return Truth(failure="gpu_hardware", node=truth.node, rank=truth.rank)


def _completion(world: World, rank: int, at: float, hca: str, status: int = 12) -> None:
    other = world.nodes[(world.nodes.index(world.node(rank)) + 1) % len(world.nodes)]
    world.warn(
        rank,
        at,
        "transport/net_ib.cc:1295",
        f"NET/IB: Got completion from peer 10.1.{world.nodes.index(other)}.5<53908> with status={status} opcode=129 len=1048576 vendor err 129 (Recv) localGid ::ffff:10.1.0.3 remoteGids::ffff:10.1.0.5 hca {hca}",
    )


def _link(world: World, *kernel: str, tells: bool = True, only_one_end: bool = True) -> Truth:
    rank = world.any_rank()
    node, number = world.node(rank), world.rng.randrange(8)
    hca = f"mlx5_{number}"
    world.kernel_nodes = list(world.nodes) if kernel else world.kernel_nodes
    for offset, text in enumerate(kernel):
        world.kernel_say(node, world.fail_s + 0.5 * offset, text.replace("<hca>", hca).replace("<n>", str(number)))
    retry = 8.0
    if tells:
        _completion(world, rank, world.fail_s + retry, hca)
    if not only_one_end:
        peer = next(other for other in world.ranks if world.node(other) != node) if len(world.nodes) > 1 else rank
        _completion(world, peer, world.fail_s + retry + 0.4, f"mlx5_{(number + 3) % 8}")
    world.raises(
        rank,
        world.fail_s + retry + 1,
        "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1970, unhandled system error, NCCL version 2.20.5\nncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.",
    )
    after_death(world, rank, world.fail_s + retry + 1.2)
    return Truth(
        failure="fabric",
        node=node,
        rank=None,
        hca=hca if tells or "<hca>" in "".join(kernel) else "",
        netdev=f"ib{number}",
    )


@cause("fabric")
def completion_error(world: World) -> Truth:
    """Only NCCL tells."""
    world.kernel_nodes = []
    return _link(world)


@cause("fabric")
def link_down(world: World) -> Truth:
    """The kernel sees the port go down before NCCL's retries end."""
    return _link(world, "mlx5_core 0000:12:00.0 <hca>: Link DOWN", only_one_end=False)


@cause("fabric")
def carrier_lost(world: World) -> Truth:
    """An IPoIB device loses its carrier, comes back, goes again."""
    return _link(
        world,
        "mlx5_core 0000:12:00.0 ib<n>: Link down",
        "mlx5_core 0000:12:00.0 ib<n>: Link up",
        "mlx5_core 0000:12:00.0 ib<n>: Link down",
    )


@cause("fabric")
def async_event(world: World) -> Truth:
    """The device itself tells NCCL."""
    world.kernel_nodes = []
    rank = world.any_rank()
    hca = f"mlx5_{world.rng.randrange(8)}"
    world.warn(rank, world.fail_s, "transport/net_ib.cc:94", f"NET/IB : {hca}:1 Got async event : port error")
    _completion(world, rank, world.fail_s + 6, hca)
    world.raises(
        rank,
        world.fail_s + 7,
        "torch.distributed.DistBackendError: NCCL error: unhandled system error, NCCL version 2.18.1",
    )
    after_death(world, rank, world.fail_s + 7.2)
    return Truth(failure="fabric", node=world.node(rank), hca=hca)


@cause("fabric", held_out=True)
def nic_health(world: World) -> Truth:
    """The adapter's firmware gives up."""
    return _link(
        world,
        "mlx5_core 0000:12:00.0: poll_health:825:(pid 0): device's health compromised - reached miss count",
        tells=False,
    )


@cause("fabric", held_out=True)
def completion_old(world: World) -> Truth:
    """The form of older NCCL."""
    world.kernel_nodes = []
    rank = world.any_rank()
    world.warn(
        rank,
        world.fail_s + 5,
        "transport/net_ib.cc:839",
        "NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129",
    )
    world.raises(
        rank,
        world.fail_s + 6,
        "RuntimeError: NCCL error in: /opt/pytorch/torch/lib/c10d/ProcessGroupNCCL.cpp:33, unhandled system error, NCCL version 2.7.8",
    )
    after_death(world, rank, world.fail_s + 6.2)
    return Truth(failure="fabric", node=world.node(rank))


def _node_lost(world: World, *, tells: bool, kernel: tuple[str, ...] = ()) -> Truth:
    node = world.rng.choice(world.nodes)
    gone = world.ranks_of(node)
    for rank in gone:
        world.quiet_from[rank] = world.fail_s
    if kernel:
        world.kernel_nodes = list(world.nodes)
        world.kernel_say(node, world.fail_s - 0.5, *kernel)
    at = world.fail_s + world.rng.choice([60, 180])
    others = next(each for each in world.nodes if each != node) if len(world.nodes) > 1 else node
    if tells:
        world.launch(
            at,
            f"srun: error: Node failure on {node}",
            f"slurmstepd: error: *** STEP {world.job_id}.0 ON {others} CANCELLED AT {{t:isot}} DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
        )
        srun_ends(world, at + 1, gone)
        world.end_s, world.state = at + 40, "NODE_FAIL"
    else:
        hang_ends(world, waits(world, world.fail_s, silent=gone), gone)
    if world.has_record and tells:
        world.node_reasons = {node: "Not responding"}
    return Truth(failure="node", node=node)


@cause("node")
def node_failure(world: World) -> Truth:
    """Slurm tells."""
    return _node_lost(world, tells=True)


@cause("node")
def machine_check(world: World) -> Truth:
    """The processor tells before the node goes."""
    return _node_lost(
        world,
        tells=True,
        kernel=(
            "mce: [Hardware Error]: CPU 12: Machine Check Exception: 5 Bank 7: be00000000800400",
            "mce: [Hardware Error]: Machine check: Processor context corrupt",
            "Kernel panic - not syncing: Fatal machine check",
        ),
    )


@cause("node")
def panic(world: World) -> Truth:
    """The kernel gives up, Slurm has not seen it yet."""
    return _node_lost(world, tells=False, kernel=("Kernel panic - not syncing: Fatal exception in interrupt",))


@cause("node", held_out=True)
def node_failure_job(world: World) -> Truth:
    """The form for the whole job, from the controller."""
    truth = _node_lost(world, tells=False)
    world.launched = [line for line in world.launched if "srun: error" not in line[2] and "api.py" not in line[2]]
    world.launch(
        world.fail_s + 100,
        f"srun: error: Node failure on {truth.node}",
        "srun: Force Terminated StepId=" + world.job_id + ".0",
        f"slurmstepd: error: *** JOB {world.job_id} ON {world.nodes[0]} CANCELLED AT {{t:isot}} DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
    )
    world.state = "NODE_FAIL"
    return truth


@cause("node", held_out=True)
def memory_uncorrected(world: World) -> Truth:
    """Host memory that cannot be corrected, then silence."""
    return _node_lost(
        world,
        tells=False,
        kernel=(
            "EDAC MC2: 1 UE memory scrubbing error on CPU_SrcID#1_MC#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x2)",
            "Kernel panic - not syncing: UE row 0",
        ),
    )
