"""Does each kind of line become its event, with no more than it says?

The lines are written here after the forms that the driver's and the kernel's sources print.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.telemetry.kernel_log import (
    CrashEvent,
    HungTaskEvent,
    KernelEvent,
    LinkState,
    MemoryErrorEvent,
    NicEvent,
    OomEvent,
    OomScope,
    PanicEvent,
    PcieErrorEvent,
    Severity,
    SxidEvent,
    XidEvent,
    read_kernel_log,
)

XID = "NVRM: Xid (PCI:0000:1a:00): "


def only(text: str) -> KernelEvent:
    (event,) = read_kernel_log(text).events
    return event


@pytest.mark.parametrize(
    ("text", "kind", "driver", "severity"),
    [
        (
            "nvidia 0000:1a:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
            "error",
            "nvidia",
            "corrected",
        ),
        (
            "mlx5_core 0000:1a:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer",
            "error",
            "mlx5_core",
            "non_fatal",
        ),
        (
            "nvidia 0000:1a:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Data Link Layer",
            "error",
            "nvidia",
            "fatal",
        ),
        ("pcieport 0000:80:01.1: AER: Multiple Corrected error received: 0000:1a:00.0", "received", None, "corrected"),
        (
            "pcieport 0000:80:01.1: AER: Uncorrectable (Fatal) error message received from 0000:1a:00.0",
            "received",
            None,
            "fatal",
        ),
        ("nvidia 0000:1a:00.0: AER: can't recover (no error_detected callback)", "recovery_failed", "nvidia", None),
        ("pcieport 0000:1a:00.0: DPC: containment event, status:0x1f01 source:0x0000", "containment", "pcieport", None),
    ],
)
def test_errors_of_pcie(text: str, kind: str, driver: str | None, severity: str | None) -> None:
    event = only(text)
    assert isinstance(event, PcieErrorEvent)
    assert (event.kind, event.pci, event.driver) == (kind, "0000:1a:00.0", driver)
    assert event.severity == severity


@pytest.mark.parametrize(
    ("text", "kind", "severity", "count"),
    [
        ("EDAC MC0: 3 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0", "edac", Severity.CORRECTED, 3),
        ("EDAC skx MC1: 1 UE memory read error on DIMM_A1", "edac", Severity.FATAL, 1),
        ("mce: [Hardware Error]: Machine check events logged", "mce", None, 1),
        (
            "mce: [Hardware Error]: CPU 12: Machine Check Exception: 5 Bank 3: be00000000800400",
            "mce",
            Severity.FATAL,
            1,
        ),
        ("{1}[Hardware Error]: event severity: recoverable", "apei", Severity.NON_FATAL, 1),
        ("Memory failure: 0x3f: recovery action for dirty page: Recovered", "page", Severity.NON_FATAL, 1),
    ],
)
def test_errors_of_host_memory(text: str, kind: str, severity: Severity | None, count: int) -> None:
    event = only(text)
    assert isinstance(event, MemoryErrorEvent)
    assert (event.kind, event.severity, event.count) == (kind, severity, count)


@pytest.mark.parametrize(
    ("text", "kind", "state", "names"),
    [
        ("mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link INIT", "link", LinkState.INIT, ("mlx5_5", None)),
        ("mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ACTIVE", "link", LinkState.UP, ("mlx5_5", None)),
        ("mlx5_core 0000:ab:00.0: mlx5_5: Port: 1 Link DOWN", "link", LinkState.DOWN, ("mlx5_5", None)),
        ("mlx5_core 0000:ab:00.0 ens1f0np0: Link down", "link", LinkState.DOWN, (None, "ens1f0np0")),
        (
            "mlx5_core 0000:ab:00.0: Port module event[error]: module 0, Cable error, High Temperature",
            "cable",
            None,
            (None, None),
        ),
        (
            "mlx5_core 0000:ab:00.0: mlx5_port_module_event:1:(pid 0): Port module event: module 0, Cable plugged",
            "module",
            None,
            (None, None),
        ),
        (
            "mlx5_core 0000:ab:00.0: poll_health:801:(pid 0): device's health compromised - reached miss count",
            "health",
            None,
            (None, None),
        ),
        (
            "mlx5_core 0000:ab:00.0: mlx5_pcie_event:2:(pid 9): Detected insufficient power on the PCIe slot (27W).",
            "power",
            None,
            (None, None),
        ),
    ],
)
def test_events_of_mlx5(text: str, kind: str, state: LinkState | None, names: tuple[str | None, str | None]) -> None:
    event = only(text)
    assert isinstance(event, NicEvent)
    assert (event.kind, event.state, event.pci) == (kind, state, "0000:ab:00.0")
    assert (event.device, event.netdev) == names


def test_a_module_event_without_address_is_told_too() -> None:
    event = only("mlx5_port_module_event:1:(pid 0): Port module event[error]: module 2, Cable error, High Temperature")
    assert isinstance(event, NicEvent)
    assert (event.kind, event.pci, event.port) == ("cable", None, 2)


def test_a_carrier_is_believed_from_the_network_daemon() -> None:
    event = only("Aug 17 06:18:01 vm systemd-networkd[5]: ib6: Lost carrier")
    assert isinstance(event, NicEvent)
    assert (event.netdev, event.state) == ("ib6", LinkState.DOWN)


def test_a_user_cannot_forge_an_xid_through_syslog() -> None:
    assert read_kernel_log(f"Aug 17 06:18:01 vm mallory[5]: {XID}79, GPU has fallen off the bus.").events == ()


OOM_CHOICE = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=step_0,mems_allowed=0-1,oom_memcg=/slurm/job_42,"
    "task_memcg=/slurm/job_42/step_0/task_1,task=python,pid=77,uid=1000"
)
OOM_KILL = (
    "Memory cgroup out of memory: Killed process 77 (python) total-vm:900kB, anon-rss:512kB, file-rss:1kB, UID:1000"
)


def test_an_oom_kill_is_one_event_from_two_lines() -> None:
    event = only(f"[ 1.0] {OOM_CHOICE}\n[ 1.0] some line\n[ 1.1] {OOM_KILL}")
    assert isinstance(event, OomEvent)
    assert (event.pid, event.process, event.uid, event.scope) == (77, "python", 1000, OomScope.CGROUP)
    assert (event.cgroup, event.limit_cgroup) == ("/slurm/job_42/step_0/task_1", "/slurm/job_42")
    assert event.rss_bytes == 512 * 1024


@pytest.mark.parametrize("tail", ["", ".", ", UID 7, total-vm:1kB", " total-vm:1kB, anon-rss:1kB"])
def test_the_line_of_the_kill_has_many_ends(tail: str) -> None:
    event = only(f"Killed process 9876 (apache2){tail}")
    assert isinstance(event, OomEvent)
    assert (event.pid, event.process) == (9876, "apache2")


@pytest.mark.parametrize("text", [OOM_CHOICE, OOM_KILL])
def test_half_an_oom_kill_is_told_too(text: str) -> None:
    event = only(text)
    assert isinstance(event, OomEvent)
    assert (event.pid, event.scope) == (77, OomScope.CGROUP)


def test_the_node_running_out_is_not_a_cgroup_running_out() -> None:
    choice = "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,global_oom,task_memcg=/a,task=x,pid=5,uid=0"
    event = only(f"{choice}\nOut of memory: Killed process 5 (x) total-vm:1kB, anon-rss:1kB")
    assert isinstance(event, OomEvent)
    assert (event.scope, event.cgroup, event.limit_cgroup) == (OomScope.NODE, "/a", None)


def test_an_old_kernel_names_the_cgroup_first() -> None:
    event = only(
        "Task in /slurm/uid_7/job_4/step_0 killed as a result of limit of /slurm/uid_7/job_4\n"
        "Memory cgroup out of memory: Kill process 5 (x) score 9 or sacrifice child\n"
        "Killed process 5 (x) total-vm:1kB, anon-rss:2kB, file-rss:0kB"
    )
    assert isinstance(event, OomEvent)
    assert (event.pid, event.cgroup, event.rss_bytes) == (5, "/slurm/uid_7/job_4/step_0", 2048)


def test_a_group_kill_gives_each_victim_its_cgroup() -> None:
    second = OOM_KILL.replace(" 77 ", " 78 ")
    text = (
        f"{OOM_CHOICE}\nTasks in /slurm/job_42 are going to be killed due to memory.oom.group set\n{OOM_KILL}\n{second}"
    )
    events = read_kernel_log(text).events
    assert [getattr(event, "pid", None) for event in events] == [77, 78]
    assert [getattr(event, "limit_cgroup", None) for event in events] == ["/slurm/job_42", "/slurm/job_42"]


@pytest.mark.parametrize(
    ("text", "kind", "pid", "blocked_s"),
    [
        ("INFO: task python:77 blocked for more than 120 seconds.", "hung_task", 77, 120),
        ("watchdog: BUG: soft lockup - CPU#12 stuck for 22s! [pt:main:77]", "soft_lockup", 77, 22),
        ("rcu: INFO: rcu_sched self-detected stall on CPU", "rcu_stall", None, None),
    ],
)
def test_what_does_not_go_on(text: str, kind: str, pid: int | None, blocked_s: float | None) -> None:
    event = only(text)
    assert isinstance(event, HungTaskEvent)
    assert (event.kind, event.pid, event.blocked_s) == (kind, pid, blocked_s)


@pytest.mark.parametrize(
    ("text", "kind", "process", "library"),
    [
        (
            "pt_main[77]: segfault at 7f79 ip 00007f sp 00007f error 4 in libnccl.so.2[7f+d3]",
            "segfault",
            "pt_main",
            "libnccl.so.2",
        ),
        ("a b[77]: segfault at 0 ip 0 sp 0 error 14", "segfault", "a b", None),
        (
            "traps: python[77] general protection fault ip:7f sp:7f error:0 in libc.so.6[7f+1]",
            "general_protection_fault",
            "python",
            "libc.so.6",
        ),
        ("traps: python[77] trap invalid opcode ip:7f sp:7f error:0 in x[7f+1]", "invalid_opcode", "python", "x"),
    ],
)
def test_processes_that_the_processor_stopped(text: str, kind: str, process: str, library: str | None) -> None:
    event = only(f"2025-01-21T04:41:44,285060+00:00 {text}")
    assert isinstance(event, CrashEvent)
    assert (event.kind, event.pid, event.process, event.library) == (kind, 77, process, library)


def test_a_panic_is_told() -> None:
    assert isinstance(only("Kernel panic - not syncing: Fatal exception"), PanicEvent)


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: Xid error: xyz, invalid data",
        "NVRM: Xid (PCI:zz): 79, no address",
        "NVRM: Xid (PCI:0000:05:00): abc, pid=1",
        "nvidia-nvswitch2: open (major=510)",
        "IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready",
        "mlx5_core 0000:ab:00.0: mlx5_cmd_out_err:838:(pid 1): ACCESS_REG(0x805) op_mod(0x1) failed",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 15.41 GiB.",
        "",
    ],
)
def test_what_is_no_event_gives_none(text: str) -> None:
    assert read_kernel_log(text).events == ()


FRAGMENTS = [
    XID,
    "79, ",
    "pid=",
    "name=",
    "oom-kill:constraint=CONSTRAINT_MEMCG,",
    "oom_memcg=",
    "task_memcg=",
    ",task=",
]
FRAGMENTS += ["nvidia-nvswitch0: SXid (PCI:0000:c5:00.0): ", "mlx5_core 0000:ab:00.0: ", "fallen off the bus", "0x1 "]
FRAGMENTS += [
    "Killed process 5 (",
    "NVRM: GPU ",
    "0000:1a:00.0",
    " EDAC MC0: ",
    "[1]: segfault at ",
    "Task in /",
    "\n",
    "\x00",
]


@given(st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=8), max_size=40))
def test_no_mixture_of_fragments_breaks_the_reader(parts: list[str]) -> None:
    for event in read_kernel_log("".join(parts)).events:
        assert event.text.isprintable()


@pytest.mark.parametrize("fragment", FRAGMENTS)
def test_a_long_hostile_line_comes_to_an_end(fragment: str) -> None:
    log = read_kernel_log((fragment * 40_000)[:200_000].replace("\n", " "))
    assert len(log.events) <= 1


def test_a_flood_is_counted_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opsk.telemetry.kernel_log.event_reader.MAX_EVENTS", 3)
    log = read_kernel_log(f"{XID}79, x\n" * 10)
    assert (len(log.events), log.left_out, log.lines) == (3, 7, 10)


def test_lines_that_are_too_long_are_counted() -> None:
    log = read_kernel_log([XID + "79, " + "x" * 10_000])
    assert log.cut_lines == 1
    assert len(log.events) == 1


@pytest.mark.shared
def test_real_logs_give_the_xids_that_their_notes_name(shared: Path) -> None:
    folder = shared / "data" / "real"
    expected = json.loads((folder / "EXPECTED.json").read_text(encoding="utf-8"))["train_log"]
    wrong = {}
    for name, entry in expected.items():
        log = read_kernel_log((folder / "train_log" / name).read_text(encoding="utf-8", errors="replace"))
        found = list(dict.fromkeys((e.pci[:-2], e.code) for e in log.events if isinstance(e, XidEvent)))
        if found != [tuple(pair) for pair in entry.get("xids", ())]:
            wrong[name] = found
    assert wrong == {}


@pytest.mark.shared
def test_real_logs_of_ports_and_switches(shared: Path) -> None:
    folder = shared / "data" / "real" / "train_log"

    def events(name: str) -> tuple[KernelEvent, ...]:
        return read_kernel_log((folder / name).read_text(encoding="utf-8")).events

    carriers = Counter(e.state for e in events("azure_syslog_1dev_6flap.log") if isinstance(e, NicEvent))
    assert carriers == {LinkState.DOWN: 6, LinkState.UP: 6}  # its note: six times
    start = [e.state for e in events("gh_gpud1209_mlx5_link.log") if isinstance(e, NicEvent)]
    assert start == [LinkState.INIT, LinkState.UP]  # its note: a normal start, no flap
    assert [e.code for e in events("gpud_fabricmanager.log") if isinstance(e, SxidEvent)] == [12028]
    assert events("gpud_kmsg_nvswitch.log") == ()
    libraries = [e.library for e in events("gpud_dmesg_libnccl_segfault.log") if isinstance(e, CrashEvent)]
    assert libraries == ["libnccl.so.2"] * 2
