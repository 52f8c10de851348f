"""Writes the sysfs tree of a simulated node: InfiniBand, RAPL, sensors of the board, and control groups of its jobs.

Values that change are written again each time; each file is replaced, so that no reader sees half a number. Temporary
files are made at the top of the tree: readers list the folders of counters.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from opsk import units
from opsk.lab.machine.machine import Hca, MachineFolder, SimulatedNode
from opsk.lab.machine.work import Work
from opsk.units import GIB, MIB

RATE = "200 Gb/sec (4X HDR)"
"""As the lab's subnet: the fastest that ibsim simulates."""
RAPL_RANGE_UJ = 262_143_328_850
"""Where the energy counter of a package begins again, as on real processors."""
SOCKETS = 2
_DRAM_SHARE = 0.15
_REST_OF_NODE_W = 900.0
_SUPPLY_EFFICIENCY = 0.94
_PACKET_BYTES = 4096
_SHARE_WAITING = 0.04
_MICRO = 1_000_000
_PAGE_JOB_BYTES = 64 * GIB

_ZERO_COUNTERS = (
    "VL15_dropped", "excessive_buffer_overrun_errors", "link_error_recovery", "local_link_integrity_errors",
    "multicast_rcv_packets", "multicast_xmit_packets", "port_rcv_constraint_errors", "port_rcv_errors",
    "port_rcv_remote_physical_errors", "port_rcv_switch_relay_errors", "port_xmit_constraint_errors",
    "port_xmit_discards", "symbol_error",
)  # fmt: skip
_ZERO_HARDWARE = (
    "duplicate_request", "implied_nak_seq_err", "local_ack_timeout_err", "out_of_buffer", "out_of_sequence",
    "packet_seq_err", "req_cqe_error", "req_remote_access_errors", "resp_cqe_error", "resp_local_length_error",
    "resp_remote_access_errors", "rnr_nak_retry_err", "roce_adp_retrans", "roce_slow_restart", "rx_atomic_requests",
    "rx_icrc_encapsulated", "rx_read_requests", "rx_write_requests", "np_cnp_sent", "np_ecn_marked_roce_packets",
    "rp_cnp_handled",
)  # fmt: skip


class Tree:
    """A tree of small files, each with a line end as the kernel writes it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._draft = root / f".draft.{os.getpid()}"

    def put(self, path: str, value: object) -> None:
        """Replace one file, unless it holds that value: most do, and reading is cheaper than replacing."""
        target = self.root / path
        content = f"{value}\n".encode("ascii")
        try:
            if target.read_bytes() == content:
                return
        except FileNotFoundError:
            target.parent.mkdir(parents=True, exist_ok=True)
        self._draft.write_bytes(content)
        self._draft.replace(target)

    def put_all(self, folder: str, values: Mapping[str, object]) -> None:
        """Replace several files of one folder."""
        for name, value in values.items():
            self.put(f"{folder}/{name}", value)


def pci_address(hca: int) -> str:
    """Return where an HCA is on PCI."""
    return f"0000:{0x38 + hca:02x}:00.0"


def create_sysfs(folder: MachineFolder, machine: SimulatedNode) -> None:
    """Write the constant files."""
    (folder.sysfs / "fs" / "cgroup" / "system.slice" / "slurmstepd.scope").mkdir(parents=True)
    tree = Tree(folder.sysfs)
    for index, hca in enumerate(machine.hcas):
        _create_hca(tree, index, hca)
    for socket in range(SOCKETS):
        for zone, name in ((f"intel-rapl:{socket}", f"package-{socket}"), (f"intel-rapl:{socket}:0", "dram")):
            place = f"class/powercap/{zone}"
            tree.put_all(place, {"name": name, "max_energy_range_uj": RAPL_RANGE_UJ, "enabled": 1, "energy_uj": 0})
        tree.put_all(
            f"class/hwmon/hwmon{socket}",
            {"name": "coretemp", "temp1_label": f"Package id {socket}", "temp1_crit": 100_000, "temp1_input": 40_000},
        )
    board, meter = "class/hwmon/hwmon2", "class/hwmon/hwmon3"
    tree.put_all(board, {"name": "nct6775", "fan1_input": 5400, "fan2_input": 6000})
    tree.put_all("class/hwmon/hwmon4", {"name": "pmbus", "power1_label": "pin"})
    tree.put(f"{meter}/name", "power_meter")
    tree.put("devices/ACPI000D:00/power1_average_interval", 1000)
    (tree.root / meter / "device").symlink_to(tree.root / "devices" / "ACPI000D:00")


def _create_hca(tree: Tree, index: int, hca: Hca) -> None:
    device = f"class/infiniband/{hca.device}"
    guid = hca.guid or f"{index + 1:016x}"
    quads = ":".join(guid[at : at + 4] for at in range(0, 16, 4))
    tree.put_all(
        device, {"board_id": "MT_0000000223", "fw_ver": "20.41.1000", "hca_type": "MT4123", "node_guid": quads}
    )
    port = f"{device}/ports/1"
    tree.put_all(port, {"link_layer": "InfiniBand", "lid": hex(16 + index), "sm_lid": "0x1"})
    tree.put(f"{port}/gids/0", f"fe80:0000:0000:0000:{quads}")
    tree.put(f"{port}/gid_attrs/ndevs/0", f"ib{index}")
    tree.put_all(f"{port}/counters", dict.fromkeys(_ZERO_COUNTERS, 0))
    tree.put_all(f"{port}/hw_counters", dict.fromkeys(_ZERO_HARDWARE, 0) | {"lifespan": 12})
    address = pci_address(index)
    function = tree.root / "devices" / "pci0000:00" / address
    tree.put(f"devices/pci0000:00/{address}/numa_node", index % SOCKETS)
    (tree.root / device / "device").symlink_to(function)


def write_sysfs(folder: MachineFolder, machine: SimulatedNode, work: Work) -> None:
    """Write the files that change."""
    tree = Tree(folder.sysfs)
    for index, hca in enumerate(machine.hcas):
        down = machine.is_down(hca)
        port, moved = f"class/infiniband/{hca.device}/ports/1", machine.port_bytes[index]
        states = ("1: DOWN", "2: Polling", "10 Gb/sec (4X SDR)") if down else ("4: ACTIVE", "5: LinkUp", RATE)
        tree.put_all(port, dict(zip(("state", "phys_state", "rate"), states, strict=True)))
        words = int(moved / units.IB_DATA_WORD_BYTES)
        packets = int(moved / _PACKET_BYTES)
        counters = dict.fromkeys(("port_xmit_data", "port_rcv_data"), words)
        counters |= dict.fromkeys(
            ("port_xmit_packets", "port_rcv_packets", "unicast_xmit_packets", "unicast_rcv_packets"), packets
        )
        counters |= {"port_xmit_wait": int(words * _SHARE_WAITING), "link_downed": machine.downs[index]}
        tree.put_all(f"{port}/counters", counters)
    _write_power(tree, machine)
    _write_groups(folder, machine, work)


def _write_power(tree: Tree, machine: SimulatedNode) -> None:
    total_uj = int(machine.processors_j * _MICRO)
    for socket in range(SOCKETS):
        package_uj = int(total_uj / SOCKETS * (1 - _DRAM_SHARE))
        dram_uj = int(total_uj / SOCKETS * _DRAM_SHARE)
        tree.put(f"class/powercap/intel-rapl:{socket}/energy_uj", package_uj % RAPL_RANGE_UJ)
        tree.put(f"class/powercap/intel-rapl:{socket}:0/energy_uj", dram_uj % RAPL_RANGE_UJ)
        celsius = 35 + machine.processors_w / 20 + socket
        tree.put(f"class/hwmon/hwmon{socket}/temp1_input", int(celsius * 1000))
    node_w = sum(machine.power_w) + machine.processors_w + _REST_OF_NODE_W
    tree.put("class/hwmon/hwmon4/power1_input", int(node_w / _SUPPLY_EFFICIENCY * _MICRO))
    tree.put("class/hwmon/hwmon3/device/power1_average", int(node_w * _MICRO))


def _write_groups(folder: MachineFolder, machine: SimulatedNode, work: Work) -> None:
    """Write a control group (version 2) for each job, and take away those of jobs that are gone."""
    scope = folder.sysfs / "fs" / "cgroup" / "system.slice" / "slurmstepd.scope"
    for entry in scope.iterdir():
        if entry.name.startswith("job_") and entry.name.removeprefix("job_") not in work.jobs:
            shutil.rmtree(entry, ignore_errors=True)
    tree = Tree(folder.sysfs)
    for job_id, job in work.jobs.items():
        place = f"fs/cgroup/system.slice/slurmstepd.scope/job_{job_id}"
        used_us = int(machine.job_cpu_s.get(job_id, 0.0) * _MICRO)
        for step, pids in job.steps.items():
            inside = f"{place}/step_{step}/user/task_0/cgroup.procs"
            tree.put(inside, "\n".join(map(str, pids)))
        values = {
            "cpu.stat": f"usage_usec {used_us}\nuser_usec {used_us * 9 // 10}\nsystem_usec {used_us // 10}\n"
            "nr_periods 0\nnr_throttled 0\nthrottled_usec 0",
            "cpuset.cpus.effective": "0-63",
            "memory.current": _PAGE_JOB_BYTES,
            "memory.peak": _PAGE_JOB_BYTES + 512 * MIB,
            "memory.max": 16 * _PAGE_JOB_BYTES,
            "memory.stat": f"anon {_PAGE_JOB_BYTES // 2}\nfile {_PAGE_JOB_BYTES // 2}",
            "memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0",
            "pids.current": 8 * max(1, sum(map(len, job.steps.values()))),
            "io.stat": f"259:0 rbytes={used_us // 10} wbytes={used_us // 100} rios=1 wios=1 dbytes=0 dios=0",
        }
        stalled = {"cpu": used_us // 200, "memory": 0, "io": used_us // 100}
        for what, waited_us in stalled.items():
            values[f"{what}.pressure"] = f"some avg10=0.00 avg60=0.00 avg300=0.00 total={waited_us}"
        tree.put_all(place, values)
