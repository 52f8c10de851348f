"""Builds the dashboard of GPU health: which GPU is unhealthy, how badly, and what to do about it."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as models

from deploy.grafana.dashboards import style
from deploy.grafana.dashboards.style import BAD, GOOD, NODES, OF_GPU, WATCH, Look, Query

UID = "opsk-gpu-health"
_INDEX = f"max by (cluster, node, gpu, index) (opsk_gpu_info{{{NODES}}})"


def make() -> models.Dashboard:
    """Return the dashboard."""
    text = "Which GPU is sick, how badly, and what is to be done: XIDs, memory, links, heat, recovery actions."
    page = style.new(UID, "GPU health and XIDs", text)
    return style.fill(page, [*_now(), *_xids(), *_memory(), *_links(), *_heat(), *_kernel()])


def _count(title: str, text: str, expr: str, steps: style.Steps = style.BAD_ABOVE_0) -> style.Panel:
    """Return a number that should be 0."""
    look = Look(unit="short", width=4, height=4, decimals=0, steps=steps, when_empty="0")
    return style.number(title, text, look, Query(expr=f"count({expr}) or vector(0)"))


def _now() -> list[style.Panel | style.Row]:
    """Return the numbers at the top: all should be 0."""
    return [
        style.row("Now: all of these should be 0"),
        _count(
            "Lost",
            "GPUs that do not answer any more. Drain, reset or power-cycle their nodes.",
            f"opsk_gpu_up{{{NODES}}} == 0",
        ),
        _count(
            "Wait for an action",
            "GPUs whose driver requires a reset, a reboot or a drain. Follow the table below.",
            f'opsk_gpu_recovery_action{{{NODES},action!="none"}} == 1',
        ),
        _count(
            "Serious XIDs in 24 h",
            "GPUs with an XID that asks for reset, drain, reboot or service.",
            f'time() - opsk_gpu_xid_last_seen_timestamp_seconds{{{NODES},class=~"reset|drain|reboot|service"}} < 86400',
        ),
        _count(
            "Memory cannot be repaired",
            "GPUs without spare rows for a fault, or beyond the errors of a life: replace them.",
            f"opsk_gpu_row_remap_failed{{{NODES}}} == 1 or opsk_gpu_sram_threshold_exceeded{{{NODES}}} == 1",
        ),
        _count(
            "Repair waits for a reset",
            "GPUs with rows that the next reset replaces. Jobs may end first.",
            f"opsk_gpu_row_remap_pending{{{NODES}}} == 1",
            style.WATCH_ABOVE_0,
        ),
        _count(
            "Not sound in NVLink domain",
            "GPUs that have not joined their NVLink fabric, or are not healthy in it. Look at Fabric Manager first.",
            f"opsk_gpu_fabric_healthy{{{NODES}}} == 0 or opsk_gpu_fabric_joined{{{NODES}}} == 0",
        ),
    ]


def _xids() -> list[style.Panel | style.Row]:
    """Return XIDs and what they ask for."""
    seen = f"opsk_gpu_xid_last_seen_timestamp_seconds{{{NODES}}}"
    return [
        style.row("XIDs"),
        style.listing(
            "XIDs, by GPU",
            "The class shows what to do. app: the job's own fault, unless one GPU repeats it. reset_when_idle: jobs "
            "may end. reset, drain, reboot, service: now. cascade: look for the one before it. nvlink: both ends of "
            "the link.",
            Look(unit="short", width=14, height=9, decimals=0, when_empty="no XIDs"),
            [
                Query(
                    expr=style.add_gpu_index(
                        f"max by (cluster, node, gpu, xid, class) (opsk_gpu_xid_errors_total{{{NODES}}})"
                    ),
                    instant=True,
                ),
                Query(
                    expr=style.add_gpu_index(f"max by (cluster, node, gpu, xid, class) ({seen}) * 1000"),
                    instant=True,
                ),
            ],
            columns={
                "node": "Node",
                "index": "GPU",
                "xid": "XID",
                "class": "Class",
                "Value #A": "Times",
                "Value #B": "Last seen",
                "gpu": "UUID",
            },
            units={"Last seen": "dateTimeFromNow"},
            links={"Node": ("Only this node", style.to_node(UID, "${__value.raw}"))},
            sort="Last seen",
        ),
        style.lines(
            "GPUs with XIDs, by class",
            "GPUs that reported an XID within 5 min. Many of class app from one user: a bug. One class on many nodes "
            "at once: power, driver or fabric.",
            Look(unit="short", width=10, height=9, decimals=0, stacked=True, when_empty="no XIDs"),
            Query(expr=f"count by (class) (time() - {seen} < 300)", legend="{{class}}"),
        ),
        style.listing(
            "GPUs that wait for an action",
            "The driver's own word for what brings the GPU back. Drain the node first.",
            Look(unit="none", width=14, height=6, decimals=0, when_empty="none"),
            [
                Query(
                    expr=style.add_gpu_index(
                        f'max by (cluster, node, gpu, action) (opsk_gpu_recovery_action{{{NODES},action!="none"}} == 1)'
                    ),
                    instant=True,
                )
            ],
            columns={"node": "Node", "index": "GPU", "action": "Action", "gpu": "UUID"},
        ),
        style.listing(
            "GPUs lost",
            "They answered since the exporter began, and do not now.",
            Look(unit="none", width=10, height=6, decimals=0, when_empty="none"),
            [
                Query(
                    expr=style.add_gpu_index(f"max by (cluster, node, gpu) (opsk_gpu_up{{{NODES}}}) == 0"),
                    instant=True,
                )
            ],
            columns={"node": "Node", "index": "GPU", "gpu": "UUID"},
        ),
    ]


def _memory() -> list[style.Panel | style.Row]:
    """Return memory errors and repair."""
    return [
        style.row("Memory"),
        style.lines(
            "Memory errors",
            "Corrected and not, a day, all GPUs. Corrected ones are no harm; one that is not ends a process: reset "
            "the GPU.",
            Look(unit="short", width=8),
            Query(
                expr=f"sum by (error, location) (increase(opsk_gpu_ecc_volatile_errors_total{{{NODES}}}[1d])) > 0",
                legend="{{error}} {{location}}",
            ),
        ),
        style.bars(
            "Rows replaced, by GPU",
            "The ten GPUs with most rows replaced for errors that could not be corrected. Growing within weeks: plan "
            "its service.",
            Look(unit="short", width=8, decimals=0, steps=((None, GOOD), (1, WATCH), (8, BAD)), when_empty="none"),
            Query(
                expr="sort_desc(topk(10, max by (cluster, node, gpu) "
                f'(opsk_gpu_remapped_rows{{{NODES},cause="uncorrected"}}) '
                f"* {OF_GPU} group_left (index) {_INDEX} > 0))",
                legend="{{node}} GPU {{index}}",
                instant=True,
            ),
        ),
        style.bars(
            "Banks without spare rows",
            "GPUs with banks that have few or no spare rows left: the next fault there is the last.",
            Look(unit="short", width=8, decimals=0, steps=((None, GOOD), (1, WATCH), (4, BAD)), when_empty="none"),
            Query(
                expr="sort_desc(topk(10, sum by (cluster, node, gpu) "
                f'(opsk_gpu_row_remap_banks{{{NODES},spares=~"low|none"}}) '
                f"* {OF_GPU} group_left (index) {_INDEX} > 0))",
                legend="{{node}} GPU {{index}}",
                instant=True,
            ),
        ),
    ]


def _links() -> list[style.Panel | style.Row]:
    """Return NVLink and PCIe."""
    return [
        style.row("Links"),
        style.listing(
            "NVLinks that are down",
            "Each costs its share of the bandwidth, or the whole domain. Reset the GPU; if it stays, service.",
            Look(unit="none", width=8, decimals=0, when_empty="none"),
            [
                Query(
                    expr=f"max by (cluster, node, gpu, link) (opsk_gpu_nvlink_link_down{{{NODES}}}) "
                    f"* {OF_GPU} group_left (index) {_INDEX}",
                    instant=True,
                )
            ],
            columns={"node": "Node", "index": "GPU", "link": "Link"},
        ),
        style.lines(
            "NVLink errors",
            "Within an hour, by GPU, the ten with most. Recoveries are worse than replays and checksum errors.",
            Look(unit="short", width=8),
            Query(
                expr="topk(10, sum by (cluster, node, gpu, kind) "
                f"(increase(opsk_gpu_nvlink_errors_total{{{NODES}}}[1h])) "
                f"* {OF_GPU} group_left (index) {_INDEX} > 0)",
                legend="{{node}} GPU {{index}} {{kind}}",
            ),
        ),
        style.lines(
            "PCIe replays and errors",
            "Within an hour, by GPU, the ten with most. Many: reseat the board or riser.",
            Look(unit="short", width=8),
            Query(
                expr=f"topk(10, sum by (cluster, node, gpu) (increase(opsk_gpu_pcie_replays_total{{{NODES}}}[1h])) "
                f"* {OF_GPU} group_left (index) {_INDEX} > 0)",
                legend="{{node}} GPU {{index}} replays",
            ),
            Query(
                expr="topk(10, sum by (cluster, node, gpu, kind) "
                f"(increase(opsk_gpu_pcie_errors_total{{{NODES}}}[1h])) "
                f"* {OF_GPU} group_left (index) {_INDEX} > 0)",
                legend="{{node}} GPU {{index}} {{kind}}",
            ),
        ),
    ]


def _heat() -> list[style.Panel | style.Row]:
    """Return heat and throttling."""
    name = "{{node}} GPU {{index}}"
    return [
        style.row("Heat"),
        style.bars(
            "Closest to slowing down",
            "Degrees left, the ten GPUs with least. Below 5: it is about to slow down; look at its cooling.",
            Look(unit="celsius", width=8, high=50, decimals=0, steps=((None, BAD), (5, WATCH), (10, GOOD))),
            Query(
                expr=f"sort(bottomk(10, max by (cluster, node, gpu) (opsk_gpu_temperature_margin_celsius{{{NODES}}}) "
                f"* {OF_GPU} group_left (index) {_INDEX}))",
                legend=name,
                instant=True,
            ),
        ),
        style.lines(
            "Hottest memory",
            "The ten hottest. Memory slows down near 95 °C.",
            Look(unit="celsius", width=8, low=None, steps=((None, GOOD), (90, WATCH), (95, BAD))),
            Query(
                expr=f'topk(10, max by (cluster, node, gpu) (opsk_gpu_temperature_celsius{{{NODES},sensor="memory"}}) '
                f"* {OF_GPU} group_left (index) {_INDEX})",
                legend=name,
            ),
        ),
        style.lines(
            "Slowed down by heat",
            "Share of time, the ten most. The whole job waits for such a GPU.",
            Look(unit="percentunit", width=8, high=1),
            Query(
                expr=f'topk(10, sum by (cluster, node, gpu) (opsk:gpu_throttle:ratio{{{NODES},reason=~".*thermal.*"}}) '
                f"* {OF_GPU} group_left (index) {_INDEX} > 0)",
                legend=name,
            ),
        ),
    ]


def _kernel() -> list[style.Panel | style.Row]:
    """Return what else nodes say, and what runs on GPUs without a job."""
    return [
        style.row("Kernel log, services, strangers"),
        style.lines(
            "Nodes with events in the kernel log",
            "Within an hour, by kind: GPUs that fell off the bus, PCIe and memory errors, NICs, processes that were "
            "killed. `journalctl -k` on the node has the lines.",
            Look(unit="short", width=10, decimals=0, when_empty="none"),
            Query(
                expr=f"count by (kind) (time() - opsk_kernel_log_event_last_seen_timestamp_seconds{{{NODES}}} < 3600)",
                legend="{{kind}}",
            ),
        ),
        style.listing(
            "Services of the NVLink fabric",
            "Fabric Manager and IMEX: enabled and not running means that CUDA jobs fail on that node.",
            Look(
                unit="none",
                width=7,
                decimals=0,
                steps=((None, BAD), (1, GOOD)),
                words={"0": ("no", BAD), "1": ("yes", GOOD)},
                when_empty="none installed",
            ),
            [
                Query(expr=f"min by (service) (opsk_gpu_service_running{{{NODES}}})", instant=True),
                Query(expr=f"max by (service) (opsk_gpu_service_enabled{{{NODES}}})", instant=True),
            ],
            columns={"service": "Service", "Value #A": "Runs on all", "Value #B": "Enabled on some"},
        ),
        style.listing(
            "GPUs with processes of no job",
            "Left over from a job, or started by hand: end them before the GPU is allocated again.",
            Look(unit="short", width=7, decimals=0, when_empty="none"),
            [Query(expr=f"max by (node, gpu) (opsk_job_stranger_processes{{{NODES}}}) > 0", instant=True)],
            columns={"node": "Node", "gpu": "UUID", "Value": "Processes"},
        ),
    ]
