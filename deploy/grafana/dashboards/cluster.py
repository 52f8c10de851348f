"""Builds the dashboard of the cluster: what runs, what waits, what is broken, and which GPUs idle."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as models

from deploy.grafana.dashboards import style
from deploy.grafana.dashboards.style import BAD, GOOD, NODES, WATCH, Look, Query

UID = "opsk-cluster"
_CLUSTER = 'cluster=~"$cluster"'


def make() -> models.Dashboard:
    """Return the dashboard."""
    page = style.new(UID, "Cluster", "How the cluster is: what runs, what waits, what is broken, who wastes what.")
    return style.fill(page, [*_now(), *_use(), *_jobs(), *_queue()])


def _now() -> list[style.Panel | style.Row]:
    """Return the numbers at the top."""
    few = Look(unit="short", width=4, height=4, decimals=0)
    return [
        style.row("Now"),
        style.number(
            "Nodes that answer",
            "Exporters that answered the last scrape. Fewer than you have nodes: see the dashboard of the exporters.",
            few,
            Query(expr=f'sum(up{{job="opsk",{NODES}}}) or count(count by (node) (opsk_gpu_power_watts{{{NODES}}}))'),
        ),
        style.number(
            "GPUs",
            "GPUs that answer. A GPU that was there and is lost is counted beside.",
            few,
            Query(expr=f"count(opsk_gpu_power_watts{{{NODES}}} or opsk_gpu_power_average_watts{{{NODES}}})"),
        ),
        style.number(
            "GPUs lost",
            "GPUs that were there and do not answer. Above 0: drain their nodes; the dashboard of GPU health names "
            "them.",
            Look(unit="short", width=4, height=4, decimals=0, steps=style.BAD_ABOVE_0, when_empty="0"),
            Query(expr=f"count(opsk_gpu_up{{{NODES}}} == 0) or vector(0)"),
        ),
        style.number(
            "Alerts",
            "Alerts of opsk-alerts.yml that fire, critical ones and all. Click through to Alerting for their runbooks.",
            Look(unit="short", width=4, height=4, decimals=0, steps=style.WATCH_ABOVE_0, when_empty="0"),
            Query(
                expr='count(ALERTS{alertname=~"Opsk.+",alertstate="firing",severity="critical"}) or vector(0)',
                legend="critical",
            ),
            Query(expr='count(ALERTS{alertname=~"Opsk.+",alertstate="firing"}) or vector(0)', legend="all"),
        ),
        style.number(
            "GPUs that jobs have",
            "Share of all GPUs that are given to a job. Low with a full queue: fragmentation, limits or drained nodes.",
            Look(
                unit="percentunit",
                width=4,
                height=4,
                high=1,
                decimals=0,
                steps=((None, BAD), (0.5, WATCH), (0.8, GOOD)),
            ),
            Query(
                expr=f"count(max by (cluster, node, gpu) (opsk_job_gpu{{{NODES}}})) / "
                f"count(opsk:gpu_activity:ratio{{{NODES}}})"
            ),
        ),
        style.number(
            "Power",
            "Power of nodes by their own meters, else of processors and GPUs; nodes with GPUs alone are left out.",
            Look(unit="watt", width=4, height=4, decimals=1),
            Query(expr=f"sum(opsk:node_power:watts{{{NODES}}})"),
        ),
    ]


def _use() -> list[style.Panel | style.Row]:
    """Return how GPUs are used."""
    ratio = Look(unit="percentunit", width=12, high=1)
    activity = f"opsk:gpu_activity:ratio{{{NODES}}}"
    index = f"max by (cluster, node, gpu, index) (opsk_gpu_info{{{NODES}}})"
    return [
        style.row("Use of GPUs"),
        style.lines(
            "Activity of GPUs that jobs have",
            "Median and quarters over the GPUs of jobs. A wide band: some jobs do little; the table below names them.",
            ratio,
            *(
                Query(
                    expr=f"quantile({share}, max by (cluster, node, gpu) (opsk:job_gpu_activity:ratio{{{NODES}}}))",
                    legend=name,
                )
                for share, name in (
                    (0.9, "busiest tenth"),
                    (0.75, "upper quarter"),
                    (0.5, "median"),
                    (0.25, "lower quarter"),
                )
            ),
        ),
        style.lines(
            "GPUs by what they do",
            "Given to a job and working, given and idle, free. Given and idle is what users wait for in vain: ask "
            "their owners.",
            Look(unit="short", width=12, stacked=True, decimals=0),
            Query(
                expr=f"count(max by (cluster, node, gpu) (opsk:job_gpu_activity:ratio{{{NODES}}}) >= 0.05) or "
                "vector(0)",
                legend="working",
            ),
            Query(
                expr=f"count(max by (cluster, node, gpu) (opsk:job_gpu_activity:ratio{{{NODES}}}) < 0.05) or vector(0)",
                legend="given and idle",
            ),
            Query(
                expr=f"count({activity} unless {style.OF_GPU} opsk_job_gpu{{{NODES}}}) or vector(0)",
                legend="free",
            ),
        ),
        style.matrix(
            "Activity by node and GPU",
            "Each cell a GPU, now. A row that differs from others of the same job: a node that is behind. Grey: no "
            "data.",
            Look(
                unit="percentunit",
                width=12,
                height=10,
                high=1,
                decimals=0,
                colours=style.AMOUNT,
            ),
            Query(expr=f"{activity} * {style.OF_GPU} group_left (index) {index}", instant=True),
            rows="node",
            columns="index",
        ),
        style.matrix(
            "Temperature by node and GPU",
            "Each cell a GPU, now. One hot column: a place in the chassis; one hot row: its fans or water; a rack: "
            "the room.",
            Look(
                unit="celsius",
                width=12,
                height=10,
                low=30,
                high=90,
                decimals=0,
                colours=style.WARM,
            ),
            Query(
                expr=f'max by (cluster, node, gpu) (opsk_gpu_temperature_celsius{{{NODES},sensor="gpu"}}) '
                f"* {style.OF_GPU} group_left (index) {index}",
                instant=True,
            ),
            rows="node",
            columns="index",
        ),
    ]


def _jobs() -> list[style.Panel | style.Row]:
    """Return the jobs that run."""
    names = style.job_words(NODES, "user", "account", "partition", "name")
    gpus = f"count by (cluster, job) (opsk_job_gpu{{{NODES}}})"
    return [
        style.row("Jobs"),
        style.listing(
            "Jobs with GPUs",
            "One row a job. Activity far below others, idle GPUs, or slower than predicted: open the job by its "
            "number.",
            Look(unit="short", width=24, height=10),
            [
                Query(
                    expr=f"{gpus} * on (cluster, job) group_left (user, account, partition, name) {names}", instant=True
                ),
                Query(expr=f"avg by (cluster, job) (opsk:job_gpu_activity:ratio{{{NODES}}})", instant=True),
                Query(expr=f"min by (cluster, job) (opsk:job_gpu_activity:ratio_of_median{{{NODES}}})", instant=True),
                Query(expr=f"opsk:job_step:ratio_of_predicted{{{_CLUSTER}}}", instant=True),
                Query(expr=f"opsk:job_power:watts{{{_CLUSTER}}}", instant=True),
                Query(expr=f"opsk:job_gpus_idle:count{{{_CLUSTER}}}", instant=True),
            ],
            columns={
                "job": "Job",
                "user": "User",
                "account": "Account",
                "partition": "Partition",
                "name": "Name",
                "Value #A": "GPUs",
                "Value #B": "Activity",
                "Value #C": "Slowest GPU / median",
                "Value #D": "Step / predicted",
                "Value #E": "Power",
                "Value #F": "Idle GPUs",
            },
            units={
                "Activity": "percentunit",
                "Slowest GPU / median": "percentunit",
                "Step / predicted": "percentunit",
                "Power": "watt",
            },
            links={"Job": ("Open the job", style.to_job("${__value.raw}"))},
            sort="GPUs",
        ),
    ]


def _each_once(what: str) -> Query:
    """Return the cluster's own count, in which nothing is in two partitions; else the sum over partitions."""
    own, parts = f"opsk_slurm_cluster_{what}{{{_CLUSTER}}}", f"opsk_slurm_{what}{{{_CLUSTER}}}"
    return Query(
        expr=f"sum by (state) ({own}) > 0 or sum by (state) ({parts} unless on (cluster) {own}) > 0", legend="{{state}}"
    )


def _queue() -> list[style.Panel | style.Row]:
    """Return what Slurm says."""
    count = Look(unit="short", width=8, stacked=True, decimals=0)
    return [
        style.row("Slurm"),
        style.lines(
            "Jobs by state",
            "From the one node that asks slurmctld. Pending rises while GPUs are idle: look at limits and drained "
            "nodes.",
            count,
            _each_once("jobs"),
        ),
        style.lines(
            "Nodes by state",
            "Down and drained nodes are lost capacity: `sinfo -R` shows the reasons.",
            count,
            _each_once("nodes"),
        ),
        style.lines(
            "GPUs by state",
            "As Slurm gives them out. Idle GPUs and pending jobs together: jobs ask for shapes that do not fit.",
            count,
            _each_once("gpus"),
        ),
        style.lines(
            "Waiting, by partition",
            "How long jobs have waited for nodes: half of them longer than the lower curve, a tenth longer than the "
            "upper.",
            Look(unit="s", width=12, when_empty="nothing waits"),
            Query(
                expr=f"max by (partition) (opsk_slurm_pending_wait_p50_seconds{{{_CLUSTER}}})",
                legend="{{partition}}, half",
            ),
            Query(
                expr=f"max by (partition) (opsk_slurm_pending_wait_p90_seconds{{{_CLUSTER}}})",
                legend="{{partition}}, a tenth",
            ),
        ),
        style.lines(
            "Why jobs wait",
            "Pending jobs by the class of Slurm's reason. Resources or priority is a full cluster; limits and "
            "dependencies are the users' own.",
            Look(unit="short", width=12, stacked=True, decimals=0, when_empty="nothing waits"),
            Query(expr=f"sum by (reason) (opsk_slurm_pending_jobs{{{_CLUSTER}}}) > 0", legend="{{reason}}"),
        ),
    ]
