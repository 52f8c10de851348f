"""Do made-up nodes move on as nodes do, and does all that an exporter reads follow from one state?"""

from __future__ import annotations

import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from opsk.errors import InputError, LabError
from opsk.lab.folder import LabFolder
from opsk.lab.machine.clock import advance, change, list_machine_folders, update_draw
from opsk.lab.machine.faults import break_domain, break_gpu, break_leaf, break_nic, list_faults, repair
from opsk.lab.machine.gpus import build_gpu_state
from opsk.lab.machine.machine import (
    DeviceFault,
    Hca,
    MachineFolder,
    SimulatedNode,
    load_machine,
    new_machine,
    save_machine,
)
from opsk.lab.machine.sysfs import RAPL_RANGE_UJ, create_sysfs
from opsk.lab.machine.work import GpuLoad, NodeJob, Work, find_work
from opsk.telemetry.host.cgroups import CgroupReader
from opsk.telemetry.kernel_log import FallenOffBusEvent, NicEvent, XidEvent, read_kernel_log
from opsk.telemetry.network.infiniband import SysfsInfiniband
from opsk.telemetry.power.hwmon import HwmonReader
from opsk.telemetry.power.rapl import RaplReader

GPUS, HCAS = 4, 2
BUSY = Work(jobs={"7": NodeJob(gpus=(0, 2), steps={"batch": (100,), "0": (101, 102)})})
"""A job on GPUs 0 and 2 with three processes."""


def fresh(node: str, number: int) -> SimulatedNode:
    hcas = tuple(
        Hca(device=f"mlx5_{at}", guid=f"{number + 1:08x}{at:08x}", leaf=f"leaf{at}", switch=f"2000{at:012x}")
        for at in range(HCAS)
    )
    return new_machine(node, number, gpus=GPUS, hcas=hcas, at_unix_s=1000.0)


@pytest.fixture
def lab(tmp_path: Path) -> LabFolder:
    """A lab's folder with two made-up nodes; nothing runs."""
    found = LabFolder(path=tmp_path, base=tmp_path)
    for number, node in enumerate(("n0", "n1")):
        folder = MachineFolder(root=found.nodes / node)
        folder.jobs.mkdir(parents=True)
        folder.kernel_log.touch()
        machine = fresh(node, number)
        create_sysfs(folder, machine)
        save_machine(folder, replace(machine, at_unix_s=time.time()))
        change(folder, Work())
    return found


def folder_of(lab: LabFolder, node: str = "n0") -> MachineFolder:
    return MachineFolder(root=lab.nodes / node)


def value(lab: LabFolder, key: str, node: str = "n0") -> str | None:
    """What the state file of the stand-in says."""
    lines = dict(line.split(" = ", 1) for line in folder_of(lab, node).nvml_state.read_text().splitlines())
    return lines.get(key)


def test_a_node_is_what_was_written(lab: LabFolder) -> None:
    for folder in list_machine_folders(lab.nodes):
        machine = load_machine(folder)
        save_machine(folder, machine)
        assert load_machine(folder) == machine


def test_counters_grow_by_what_was_drawn_until_then() -> None:
    busy = update_draw(fresh("n0", 0), BUSY)
    later = advance(busy, BUSY, 1010.0)
    assert later.energy_j == pytest.approx([10 * watts for watts in busy.power_w])
    assert later.processors_j == pytest.approx(10 * busy.processors_w)
    assert later.port_bytes == pytest.approx([10 * rate for rate in busy.port_bytes_per_s])
    assert later.job_cpu_s == pytest.approx({"7": 10 * 6.0 * 2})
    # A clock that is set back stops the counters; it does not turn them.
    assert advance(later, BUSY, 900.0).energy_j == later.energy_j


def test_energy_never_falls_when_a_job_ends() -> None:
    # The stand-in goes on by the rate that it was told: what follows must begin where it was.
    busy = advance(update_draw(fresh("n0", 0), BUSY), BUSY, 1010.0)
    told = build_gpu_state(busy, BUSY).gpus[0].keys
    at_end_mj = float(told["energy_mj"]) + 5.0 * float(told["energy_mj.rate"])
    after = update_draw(advance(busy, Work(), 1015.0), Work())
    assert float(build_gpu_state(after, Work()).gpus[0].keys["energy_mj"]) == pytest.approx(at_end_mj, rel=1e-6)


def test_gpus_of_a_job_work_and_the_others_idle() -> None:
    gpus = build_gpu_state(update_draw(fresh("n0", 0), BUSY), BUSY).gpus
    assert [int(gpu.keys["utilization.gpu_percent"]) > 90 for gpu in gpus] == [True, False, True, False]
    assert [[process.pid for process in gpu.processes] for gpu in gpus] == [[102], [], [101], []]


def planned(pace: float = 1.0, memory_bytes: float = 53.6e9) -> Work:
    load = GpuLoad(memory_bytes=(memory_bytes, 40e9), power_w=(620.0, 580.0), pace=pace)
    return Work(jobs={"7": NodeJob(gpus=(0, 2), steps={"0": (101, 102)}, load=load)})


def test_gpus_hold_and_draw_what_their_jobs_plan_does() -> None:
    machine = update_draw(fresh("n0", 0), planned())
    gpus = build_gpu_state(machine, planned()).gpus
    gib = 1 << 30
    assert [gpu.keys["memory.used_bytes"] for gpu in gpus] == [53.6e9, gib, 40e9, gib]
    # A process holds all but what the driver does: what is in use on a GPU that idles.
    assert [gpu.processes[0].memory_used_bytes for gpu in (gpus[0], gpus[2])] == [53.6e9 - gib, 40e9 - gib]
    # The wave of a GPU's power is 2 %.
    assert (machine.power_w[0], machine.power_w[2]) == pytest.approx((620.0, 580.0), rel=0.02)
    assert [float(gpu.keys["power.usage_mw"]) / 1000 for gpu in gpus] == pytest.approx(machine.power_w, abs=0.001)


def test_gpus_of_a_slow_job_wait_in_between_and_send_less() -> None:
    whole, half, still = (update_draw(fresh("n0", 0), planned(pace)) for pace in (1.0, 0.5, 0.0))
    # A GPU that waits draws a quarter of its 700 W (`StateFractions.waiting`).
    assert half.power_w[0] == pytest.approx((620.0 + 175.0) / 2, rel=0.02)
    assert still.power_w[0] == pytest.approx(175.0, rel=0.02)
    assert half.link_bytes_per_s == pytest.approx([rate / 2 for rate in whole.link_bytes_per_s])
    assert half.port_bytes_per_s == pytest.approx([rate / 2 for rate in whole.port_bytes_per_s])
    assert set(still.port_bytes_per_s) == {0.0}


def test_no_gpu_holds_more_than_it_has_or_draws_more_than_its_limit() -> None:
    work = planned(memory_bytes=120e9)
    card = build_gpu_state(update_draw(fresh("n0", 0), work), work).gpus[0].keys
    assert card["memory.used_bytes"] == int(card["memory.total_bytes"]) - int(card["memory.reserved_bytes"])
    greedy = Work(jobs={"7": NodeJob(gpus=(0,), steps={"0": (101,)}, load=GpuLoad(power_w=(900.0,)))})
    assert update_draw(fresh("n0", 0), greedy).power_w[0] == 700.0


def test_gpus_of_a_job_without_a_plan_are_as_they_always_were() -> None:
    machine = update_draw(fresh("n0", 0), BUSY)
    gpu = build_gpu_state(machine, BUSY).gpus[0]
    assert (gpu.keys["memory.used_bytes"], gpu.processes[0].memory_used_bytes) == (68 << 30, 67 << 30)
    assert machine.power_w[0] == pytest.approx(640.0, abs=30.0)


def test_a_job_without_a_process_on_the_node_leaves_its_gpus_idle() -> None:
    work = Work(jobs={"7": NodeJob(gpus=(0,), steps={"extern": (100,)})})
    assert not work.is_busy(0)
    assert build_gpu_state(update_draw(fresh("n0", 0), work), work).gpus[0].processes == ()


def test_readers_of_the_exporter_read_the_tree_whole(lab: LabFolder) -> None:
    change(folder_of(lab), BUSY)
    sysfs = folder_of(lab).sysfs
    devices = SysfsInfiniband(sysfs).devices()
    assert [(device.device, device.node_guid, device.unreadable) for device in devices] == [
        ("mlx5_0", "0000000100000000", ()), ("mlx5_1", "0000000100000001", ())
    ]  # fmt: skip
    for device in devices:
        (port,) = device.ports
        # HDR: 200 Gbit/s.
        assert (port.state_name, port.rate_bytes_per_s, port.unreadable) == ("ACTIVE", 25e9, ())
    zones = RaplReader(sysfs).zones()
    assert sorted(zone.zone for zone in zones) == ["package-0", "package-0/dram", "package-1", "package-1/dram"]
    assert all(zone.energy_j is not None for zone in zones)
    (supply,) = (power for power in HwmonReader(sysfs).read().powers if power.part == "psu_input")
    (power,) = (power for power in HwmonReader(sysfs).read().powers if power.part == "node")
    machine = load_machine(folder_of(lab))
    assert power.chip == "ACPI000D:00"
    # Fans, disks and the rest take 900 W.
    assert power.average_w == pytest.approx(sum(machine.power_w) + machine.processors_w + 900.0)
    assert supply.input_w is not None
    assert supply.input_w > power.average_w
    (job,) = CgroupReader(sysfs / "fs" / "cgroup").jobs()
    assert (job.job_id, job.steps, job.pids) == ("7", ("0", "batch"), {100, 101, 102})
    change(folder_of(lab), Work())
    assert CgroupReader(sysfs / "fs" / "cgroup").jobs() == ()


def test_the_processors_counter_begins_again_as_a_real_one(lab: LabFolder) -> None:
    # Two sockets share the energy, 15 % of it is the memory's.
    once_around_j = RAPL_RANGE_UJ / 1e6 * 2 / 0.85
    change(folder_of(lab), Work(), lambda machine: replace(machine, processors_j=once_around_j + 200.0))
    said_uj = int((folder_of(lab).sysfs / "class/powercap/intel-rapl:0/energy_uj").read_text())
    assert said_uj == pytest.approx(200.0 / 2 * 0.85 * 1e6, abs=10)


def test_a_gpu_that_is_lost_says_so_in_nvml_and_kernel_log(lab: LabFolder) -> None:
    (broken,) = break_gpu(lab, "n1", 3)
    assert (broken.node, broken.fault) == ("n1", DeviceFault(kind="gpu", what="3", xid=79))
    assert value(lab, "gpu.3.lost", "n1") == "1"
    assert value(lab, "event.1", "n1") == "xid 3 79"
    assert value(lab, "gpu.3.lost", "n0") is None
    with folder_of(lab, "n1").kernel_log.open(encoding="ascii") as lines:
        events = read_kernel_log(lines).events
    assert [type(event) for event in events] == [XidEvent, FallenOffBusEvent]
    assert {event.pci for event in events} == {"0000:61:00.0"}
    assert value(lab, "gpu.3.pci.bus_id", "n1") == "00000000:61:00.0"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (94, {"remap.pending": "1", "remap.failure": "0", "ecc.volatile.uncorrected.dram": "1"}),
        (64, {"remap.pending": "0", "remap.failure": "1"}),
        (74, {"nvlink.0.state": "0"}),
        (13, {"recovery_action": "0", "remap.pending": "0"}),
    ],
)
def test_an_xid_brings_with_it_what_it_means(lab: LabFolder, code: int, told: dict[str, str]) -> None:
    break_gpu(lab, "n0", 1, code)
    assert {key: value(lab, f"gpu.1.{key}") for key in told} == told
    assert value(lab, "gpu.1.lost") is None


def test_each_xid_is_told_once_more_when_it_comes_again(lab: LabFolder) -> None:
    break_gpu(lab, "n0", 1, 94)
    break_gpu(lab, "n0", 1, 94)
    assert len(list_faults(lab)) == 1
    assert (value(lab, "event.1"), value(lab, "event.2")) == ("xid 1 94", "xid 1 94")


def test_a_link_that_is_taken_away_is_down_and_counted(lab: LabFolder) -> None:
    break_nic(lab, "n0", "1")
    port = SysfsInfiniband(folder_of(lab).sysfs).devices()[1].ports[0]
    assert (port.state_name, port.counters["link_downed"]) == ("DOWN", 1)
    with folder_of(lab).kernel_log.open(encoding="ascii") as lines:
        (event,) = read_kernel_log(lines).events
    assert isinstance(event, NicEvent)
    assert (event.pci, event.netdev) == ("0000:39:00.0", "ib1")
    repair(lab, "nic", "n0", "mlx5_1")
    port = SysfsInfiniband(folder_of(lab).sysfs).devices()[1].ports[0]
    assert (port.state_name, port.counters["link_downed"]) == ("ACTIVE", 1)


@pytest.mark.parametrize("said", ["leaf1", "2000000000000001", "0x2000000000000001"])
def test_a_leaf_takes_the_links_of_all_nodes_with_it(lab: LabFolder, said: str) -> None:
    assert [each.node for each in break_leaf(lab, said)] == ["n0", "n1"]
    for node in ("n0", "n1"):
        states = [device.ports[0].state_name for device in SysfsInfiniband(folder_of(lab, node).sysfs).devices()]
        assert states == ["ACTIVE", "DOWN"]
    assert len(repair(lab, "leaf", said)) == 2


def test_a_domain_that_is_broken_has_no_link_left(lab: LabFolder) -> None:
    break_domain(lab, "n0")
    for gpu in range(GPUS):
        assert {value(lab, f"gpu.{gpu}.nvlink.{link}.state") for link in range(18)} == {"0"}
        assert value(lab, f"gpu.{gpu}.fabric.health_summary") == "2"
        assert value(lab, f"event.{gpu + 1}") == f"xid {gpu} 74"
    assert value(lab, "gpu.0.nvlink.0.state", "n1") == "1"


def test_what_is_repaired_is_sound_and_the_rest_stays_broken(lab: LabFolder) -> None:
    break_gpu(lab, "n0", 1)
    break_gpu(lab, "n0", 2)
    break_gpu(lab, "n1", 2)
    assert [each.node for each in repair(lab, "gpu", "n0", "2")] == ["n0"]
    assert [(each.node, each.fault.what) for each in list_faults(lab)] == [("n0", "1"), ("n1", "2")]
    assert value(lab, "gpu.2.lost") is None
    assert len(repair(lab)) == 2
    assert list_faults(lab) == () == repair(lab)


def test_what_is_not_there_cannot_be_broken(lab: LabFolder, tmp_path: Path) -> None:
    for attempt, said in (
        (lambda: break_gpu(lab, "n9", 0), "only nodes with an exporter have devices: n0, n1"),
        (lambda: break_gpu(lab, "n0", 4), "n0 has no GPU 4"),
        (lambda: break_gpu(lab, "n0", 0, 0), "0 is no XID"),
        (lambda: break_nic(lab, "n0", "mlx5_7"), "n0 has no HCA mlx5_7"),
        (lambda: break_leaf(lab, "leaf7"), "cabled to a leaf leaf7"),
        (lambda: repair(lab, "gpu", "n0", "1"), "not broken: gpu n0 1"),
    ):
        with pytest.raises(InputError) as caught:
            attempt()
        assert said in caught.value.message
    down = LabFolder(path=tmp_path / "down", base=tmp_path / "down")
    assert list_faults(down) == ()
    with pytest.raises(LabError, match="no node of this lab has devices"):
        break_gpu(down, "n0", 0)


def test_jobs_are_those_that_the_prolog_wrote_down(lab: LabFolder, tmp_path: Path) -> None:
    text = "opsk-job 1\njob=12\nnode=n0\ngpus=1,3\nwhole\n"
    (folder_of(lab).jobs / "12").write_text(text, encoding="ascii")
    work = find_work(list_machine_folders(lab.nodes), tmp_path / "slurm.conf", time.time())
    assert work["n1"] == Work()
    assert work["n0"].jobs["12"].gpus == (1, 3)
    # No process on this machine has yet this lab's slurm.conf in its environment.
    assert not work["n0"].is_busy(1)


def test_processes_of_a_job_are_those_with_its_number_node_and_cluster(lab: LabFolder, tmp_path: Path) -> None:
    (folder_of(lab).jobs / "12").write_text("opsk-job 1\njob=12\nnode=n0\ngpus=1\nwhole\n", encoding="ascii")
    conf = tmp_path / "slurm.conf"
    mine = {"SLURM_CONF": str(conf), "SLURMD_NODENAME": "n0", "SLURM_JOB_ID": "12"}
    told = (
        (mine, "batch"),
        (mine | {"SLURM_STEP_ID": "0"}, "0"),
        (mine | {"SLURM_STEP_ID": "4294967292"}, "extern"),
        (mine | {"SLURM_CONF": "/etc/slurm/slurm.conf"}, None),
        (mine | {"SLURMD_NODENAME": "n1"}, None),
        (mine | {"SLURM_JOB_ID": "13"}, None),
    )
    running = [(subprocess.Popen(["/bin/sleep", "60"], env=environment), step) for environment, step in told]
    try:
        work = find_work(list_machine_folders(lab.nodes), conf, time.time())
    finally:
        for process, _step in running:
            process.kill()
            process.wait()
    steps = {step: (process.pid,) for process, step in running if step is not None}
    assert work["n0"].jobs["12"].steps == steps
    assert work["n0"].is_busy(1)
    assert not work["n0"].is_busy(0)
