"""Builds the dashboard of power: where it goes, the energy of jobs, and who is at a limit."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as models

from deploy.grafana.dashboards import style
from deploy.grafana.dashboards.style import BAD, GOOD, NODES, OF_GPU, WATCH, Look, Query

UID = "opsk-power"
_CLUSTER = 'cluster=~"$cluster"'


def make() -> models.Dashboard:
    """Return the dashboard."""
    page = style.new(UID, "Power and energy", "Where the power goes, what jobs cost in energy, who is at a limit.")
    return style.fill(page, [*_now(), *_nodes(), *_limits(), *_jobs(), *_heat()])


def _now() -> list[style.Panel | style.Row]:
    """Return the numbers at the top."""
    node, gpu = f"sum(opsk:node_power:watts{{{NODES}}})", f"sum(opsk:gpu_power:watts{{{NODES}}})"
    return [
        style.row("Now"),
        style.number(
            "Nodes",
            "Power of nodes by their controllers, boards or power supplies, else of processors and GPUs. Nodes that "
            "report GPUs alone are left out.",
            Look(unit="watt", width=5, height=4, decimals=1),
            Query(expr=node),
        ),
        style.number(
            "GPUs",
            "What all GPUs draw, by their own meters.",
            Look(unit="watt", width=5, height=4, decimals=1),
            Query(expr=gpu),
        ),
        style.number(
            "GPUs' part",
            "Share of the nodes' power that GPUs draw. Falls while nodes idle: fans, memory and disks draw all the "
            "same. Of nodes whose power is known.",
            Look(unit="percentunit", width=4, height=4, decimals=0, high=1),
            Query(expr=f"sum(opsk:gpu_power:watts{{{NODES}}} and on (cluster, node) opsk:node_power:watts) / {node}"),
        ),
        style.number(
            "Nodes over budget",
            "Nodes above opsk:node_power_budget:watts (in opsk-rules.yml). Lower the GPUs' power limit on all of them "
            "alike.",
            Look(unit="short", width=5, height=4, decimals=0, steps=style.BAD_ABOVE_0, when_empty="0"),
            Query(
                expr=f"count(opsk:node_power:watts{{{NODES}}} > on (cluster, node) "
                f"opsk:node_power_budget:watts{{{NODES}}}) "
                "or vector(0)"
            ),
        ),
        style.number(
            "Energy in the chosen time",
            "All nodes, over the time chosen above.",
            Look(unit="watth", width=5, height=4, decimals=1),
            # Watts of each minute, by 60: a node that was there for a part of the time counts for that part.
            Query(expr=f"sum(sum_over_time(opsk:node_power:watts{{{NODES}}}[$__range:1m])) / 60", instant=True),
            curve=False,
        ),
    ]


def _nodes() -> list[style.Panel | style.Row]:
    """Return power by part and by node."""
    balance = f"opsk_power_balance_watts{{{NODES}"
    return [
        style.row("Where it goes"),
        style.lines(
            "Parts of the nodes",
            "GPUs, processors with their memory, and the rest (fans, disks, network, losses); only of nodes that "
            "report all three. A rest that rises with the room's temperature is fans.",
            Look(unit="watt", width=12, stacked=True),
            Query(expr=f'sum({balance},part="gpu"}})', legend="GPUs"),
            Query(expr=f'sum({balance},part="cpu"}})', legend="processors"),
            Query(expr=f"sum(opsk_power_unaccounted_watts{{{NODES}}})", legend="the rest"),
        ),
        style.lines(
            "Nodes that draw most",
            "The ten highest now, against their budget.",
            Look(unit="watt", width=12),
            Query(expr=f"topk(10, opsk:node_power:watts{{{NODES}}})", legend="{{node}}"),
            Query(expr=f"min(opsk:node_power_budget:watts{{{NODES}}})", legend="budget, least"),
        ),
        style.heat(
            "Power of nodes",
            "A row a node, the 30 highest. Nodes of one job draw alike; steps down in all of them are checkpoints or "
            "the end.",
            Look(unit="watt", width=24, height=8, high=11000, colours=style.AMOUNT),
            Query(expr=f"topk(30, opsk:node_power:watts{{{NODES}}})", legend="{{node}}"),
        ),
    ]


def _limits() -> list[style.Panel | style.Row]:
    """Return limits and what they cost."""
    index = f"max by (cluster, node, gpu, index) (opsk_gpu_info{{{NODES}}})"
    return [
        style.row("Limits"),
        style.lines(
            "Throttling, by reason",
            "GPUs that would run faster, summed as shares of time: 8 is eight GPUs all the time. Power cap: usual at "
            "full load. Thermal: cooling. Brake: power supplies.",
            Look(unit="short", width=12),
            Query(expr=f"sum by (reason) (opsk:gpu_throttle:ratio{{{NODES}}}) > 0", legend="{{reason}}"),
        ),
        style.listing(
            "GPUs with a lower power limit than default",
            "Somebody set these. If jobs span nodes with different limits, the lowest sets the pace.",
            Look(unit="watt", width=12, decimals=0, when_empty="all at default"),
            [
                Query(
                    expr=f"(max by (cluster, node, gpu) (opsk_gpu_power_limit_watts{{{NODES}}}) < {OF_GPU} "
                    f"max by (cluster, node, gpu) (opsk_gpu_power_default_limit_watts{{{NODES}}})) "
                    f"* {OF_GPU} group_left (index) {index}",
                    instant=True,
                )
            ],
            columns={"node": "Node", "index": "GPU", "gpu": "UUID", "Value": "Limit"},
        ),
    ]


def _jobs() -> list[style.Panel | style.Row]:
    """Return what jobs cost."""
    names = style.job_words(_CLUSTER, "user", "account", "name")
    return [
        style.row("Jobs"),
        style.lines(
            "Jobs that draw most",
            "Their GPUs, and their part of the processors. The ten highest now.",
            Look(unit="watt", width=12),
            Query(expr=f"topk(10, opsk:job_power:watts{{{_CLUSTER}}})", legend="job {{job}}"),
        ),
        style.listing(
            "Energy of jobs that run",
            "Since the exporter first saw each. Energy per token is on the job's dashboard.",
            Look(unit="joule", width=12, decimals=1),
            [
                Query(
                    expr=f"sum by (cluster, job) (opsk_job_energy_joules_total{{{_CLUSTER}}}) "
                    f"* on (cluster, job) group_left (user, account, name) {names}",
                    instant=True,
                ),
                Query(expr=f"opsk:job_power:watts{{{_CLUSTER}}}", instant=True),
            ],
            columns={
                "job": "Job",
                "user": "User",
                "account": "Account",
                "name": "Name",
                "Value #A": "Energy",
                "Value #B": "Power now",
            },
            units={"Power now": "watt"},
            links={"Job": ("Open the job", style.to_job("${__value.raw}"))},
            sort="Energy",
        ),
    ]


def _heat() -> list[style.Panel | style.Row]:
    """Return temperatures and fans, and how sure all this is."""
    gpu = f'opsk_gpu_temperature_celsius{{{NODES},sensor="gpu"}}'
    return [
        style.row("Heat, and how sure this is"),
        style.lines(
            "Temperature of GPUs",
            "Hottest, median and coolest. All rise together: the room or the water; only the hottest: one cooler.",
            Look(unit="celsius", width=8, low=None, steps=((None, GOOD), (83, WATCH), (88, BAD))),
            Query(expr=f"max({gpu})", legend="hottest"),
            Query(expr=f"quantile(0.5, {gpu})", legend="median"),
            Query(expr=f"min({gpu})", legend="coolest"),
        ),
        style.lines(
            "Fans",
            "Fastest and slowest fan of all nodes. One that stands still while others run is broken.",
            Look(unit="hertz", width=8),
            Query(expr=f"max(opsk_power_fan_speed_hertz{{{NODES}}})", legend="fastest"),
            Query(expr=f"min(opsk_power_fan_speed_hertz{{{NODES}}})", legend="slowest"),
        ),
        style.listing(
            "Sources of power readings",
            "0: the source fails or may not be read; howto measure-power explains how to open it. No row: the node has "
            "none.",
            Look(
                unit="none",
                width=8,
                decimals=0,
                steps=((None, BAD), (1, GOOD)),
                words={"0": ("fails", BAD), "1": ("answers", GOOD)},
            ),
            [Query(expr=f"min by (source) (opsk_power_source_success{{{NODES}}})", instant=True)],
            columns={"source": "Source", "Value": "On all nodes"},
        ),
    ]
