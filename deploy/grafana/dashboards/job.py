"""Builds the dashboard of one job: its speed against the prediction, and where time is lost."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as models

from deploy.grafana.dashboards import style
from deploy.grafana.dashboards.style import BAD, GOOD, OF_GPU, WATCH, Look, Query

UID = "opsk-job"
_JOB = 'cluster=~"$cluster",job="$job"'
_HAS = f"and {OF_GPU} opsk_job_gpu{{{_JOB}}}"
_NODES = f"and on (cluster, node) opsk_job_gpu{{{_JOB}}}"
_NAME = "{{node}} GPU {{index}}"
_INDEX = f"* {OF_GPU} group_left (index) max by (cluster, node, gpu, index) (opsk_gpu_info or opsk_gpu_mig_info)"


def make() -> models.Dashboard:
    """Return the dashboard."""
    text = "One job: measured against the model, GPU by GPU, and what its nodes, fabric and input do."
    page = style.new(UID, "Job", text, nodes=False, job=True)
    return style.fill(page, [*_speed(), *_gpus(), *_stragglers(), *_fabric(), *_host(), *_energy()])


def _speed() -> list[style.Panel | style.Row]:
    """Return measured and predicted speed."""
    return [
        style.row("Measured against the model"),
        style.number(
            "GPUs",
            "GPUs that Slurm gave to the job, on all its nodes.",
            Look(unit="short", width=3, height=4, decimals=0),
            Query(expr=f"count(opsk_job_gpu{{{_JOB}}})"),
        ),
        style.number(
            "Runs for",
            "Time since the job began on its first node.",
            Look(unit="s", width=3, height=4),
            Query(expr=f"time() - min(opsk_job_start_time_seconds{{{_JOB}}})"),
            curve=False,
        ),
        style.number(
            "Step / predicted",
            "Measured step time over the expected one, which is in the job's record. Above 110 %: look for a "
            "straggler, congestion or slow input below.",
            Look(
                unit="percentunit",
                width=4,
                height=4,
                decimals=0,
                steps=((None, GOOD), (1.1, WATCH), (1.25, BAD)),
                when_empty="no log read",
            ),
            Query(expr=f"opsk:job_step:ratio_of_predicted{{{_JOB}}}"),
        ),
        style.number(
            "Tokens per second",
            "All GPUs of the job together, from its log.",
            Look(unit="short", width=4, height=4, decimals=1, when_empty="no log read"),
            Query(expr=f"max(opsk_training_tokens_per_second{{{_JOB}}})"),
        ),
        style.number(
            "TFLOP/s per GPU",
            "Model FLOPs as the framework counts them: compare with the same framework only.",
            Look(unit="short", width=4, height=4, decimals=0, when_empty="no log read"),
            Query(expr=f"max(opsk_training_tflops_per_gpu{{{_JOB}}})"),
        ),
        style.number(
            "Steps done",
            "Of all steps that the job is to train, where its log states them. A curve that goes flat is a job that "
            "hangs; one that falls has started again.",
            Look(unit="percentunit", width=3, height=4, decimals=1, when_empty="not reported"),
            Query(expr=f"max(opsk_training_iteration{{{_JOB}}}) / max(opsk_training_iterations{{{_JOB}}})"),
        ),
        style.number(
            "GPUs idle",
            "GPUs of the job without process or work over 15 min. Above 0: fewer ranks than GPUs, or waiting for "
            "input.",
            Look(unit="short", width=3, height=4, decimals=0, steps=style.WATCH_ABOVE_0, when_empty="0"),
            Query(expr=f"opsk:job_gpus_idle:count{{{_JOB}}} or vector(0)"),
        ),
        style.lines(
            "Step time",
            "Measured, and what the model expects with its range. Above the upper end for long: there is a loss to "
            "find.",
            Look(unit="s", width=8, low=None),
            Query(expr=f"max(opsk_training_step_seconds{{{_JOB}}})", legend="measured"),
            *(
                Query(
                    expr=f'max(opsk:job_predicted_step:seconds{{{_JOB},bound="{bound}"}})',
                    legend=f"predicted, {bound}",
                )
                for bound in ("low", "expected", "high")
            ),
        ),
        style.lines(
            "Tokens per second",
            "Measured, and what the model expects with its range. Dips at even spaces are checkpoints or evaluations.",
            Look(unit="short", width=8),
            Query(expr=f"max(opsk_training_tokens_per_second{{{_JOB}}})", legend="measured"),
            *(
                Query(
                    expr=f"max(opsk_training_tokens_per_second{{{_JOB}}}) * max(opsk_training_step_seconds{{{_JOB}}}) "
                    f'/ max(opsk:job_predicted_step:seconds{{{_JOB},bound="{bound}"}})',
                    legend=f"predicted, {bound} step time",
                )
                for bound in ("low", "expected", "high")
            ),
        ),
        style.lines(
            "Loss",
            "From the log. A jump, or no curve at all while steps go on, is a training that diverges or counts NaN.",
            Look(unit="none", width=8, low=None, when_empty="not in the log"),
            Query(expr=f"max(opsk_training_loss{{{_JOB}}})", legend="loss"),
        ),
    ]


def _gpus() -> list[style.Panel | style.Row]:
    """Return the heat maps, a row a GPU."""
    return [
        style.row("GPU by GPU"),
        style.heat(
            "Activity",
            "A row a GPU. All should look alike: a row that differs is the rank that others wait for. Stripes in all "
            "rows together: checkpoints, or waiting for input.",
            Look(unit="percentunit", width=12, height=10, high=1, colours=style.AMOUNT),
            Query(expr=f"(opsk:gpu_activity:ratio {_HAS}) {_INDEX}", legend=_NAME),
        ),
        style.heat(
            "Power",
            "A row a GPU. GPUs that wait in a collective draw less than those that compute: the brightest row may be "
            "the slow one.",
            Look(unit="watt", width=12, height=10, high=700, colours=style.AMOUNT),
            Query(expr=f"(opsk:gpu_power:watts {_HAS}) {_INDEX}", legend=_NAME),
        ),
    ]


def _stragglers() -> list[style.Panel | style.Row]:
    """Return what tells a slow GPU from the others."""
    near = Look(unit="percentunit", width=12, low=0.5, high=1.1, steps=((None, BAD), (0.75, WATCH), (0.9, GOOD)))
    return [
        style.row("Stragglers"),
        style.bars(
            "Clock against the job's median: the ten slowest",
            "Below 90 %: this GPU is slowed down. The next panel shows the cause.",
            near,
            Query(
                expr=f"sort(bottomk(10, opsk:job_gpu_clock:ratio_of_median{{{_JOB}}} {_INDEX}))",
                legend=_NAME,
                instant=True,
            ),
        ),
        style.bars(
            "Activity against the job's median: the ten least busy",
            "Below 75 % at a good clock: its node starves it, or its rank has less to do (first and last pipeline "
            "stage). All at 75 % but one: they wait for that one.",
            near,
            Query(
                expr=f"sort(bottomk(10, opsk:job_gpu_activity:ratio_of_median{{{_JOB}}} {_INDEX}))",
                legend=_NAME,
                instant=True,
            ),
        ),
        style.lines(
            "Throttling",
            "Share of time with reduced clocks, the ten worst. Thermal: cooling of that node. Brake: power "
            "supplies. The power cap is usual at full load, on all GPUs alike: its curve is the median.",
            Look(unit="percentunit", width=12, high=1),
            Query(
                expr=f'topk(10, (opsk:gpu_throttle:ratio{{reason!="sw_power_cap"}} {_HAS}) {_INDEX} > 0)',
                legend=f"{_NAME} {{{{reason}}}}",
            ),
            Query(
                expr=f'quantile(0.5, opsk:gpu_throttle:ratio{{reason="sw_power_cap"}} {_HAS})',
                legend="power cap, median GPU",
            ),
        ),
        style.lines(
            "Memory of GPUs",
            "Most and least used of the job's GPUs, and what was predicted for the fullest. Near the top: the next "
            "longer sequence runs out of memory.",
            Look(unit="bytes", width=12),
            Query(expr=f"max(opsk_gpu_memory_used_bytes {_HAS})", legend="fullest GPU"),
            Query(expr=f"min(opsk_gpu_memory_used_bytes {_HAS})", legend="emptiest GPU"),
            Query(expr=f"min(opsk_gpu_memory_size_bytes {_HAS})", legend="installed"),
            Query(expr=f"max(opsk:job_predicted_gpu_memory:bytes{{{_JOB}}})", legend="predicted"),
        ),
    ]


def _fabric() -> list[style.Panel | style.Row]:
    """Return what the job's nodes do on the networks."""
    return [
        style.row("Networks of its nodes"),
        style.lines(
            "InfiniBand and RoCE, sent",
            "All ports of a node together. Nodes of one job send alike; one that sends less is behind, or lost a rail.",
            Look(unit="Bps", width=8),
            Query(
                expr=f"sum by (node) (rate(opsk_infiniband_port_transmitted_bytes_total[{style.RATE}]) {_NODES})",
                legend="{{node}}",
            ),
        ),
        style.lines(
            "Congestion",
            "Share of what a port could have sent and could not for lack of credit. Above 20 %: a receiver is slow, "
            "or links are shared; the dashboard of the fabric shows which rail.",
            Look(unit="percentunit", width=8, high=1, steps=((None, GOOD), (0.2, BAD))),
            Query(
                expr=f"topk(10, max by (node, device) (opsk_infiniband_port_congestion_ratio {_NODES}))",
                legend="{{node}} {{device}}",
            ),
        ),
        style.lines(
            "NVLink, sent",
            "By GPU. Tensor parallel ranks send alike; a GPU that sends less than its peers is behind.",
            Look(unit="Bps", width=8),
            Query(
                expr=f'topk(16, (opsk:gpu_nvlink:bytes_per_second{{direction="transmitted"}} {_HAS}) {_INDEX})',
                legend=_NAME,
            ),
        ),
    ]


def _host() -> list[style.Panel | style.Row]:
    """Return what its processes on the nodes do."""
    return [
        style.row("Processors, memory and input"),
        style.lines(
            "Processors in use",
            "CPUs that the job's processes keep busy, by node, and how many it has. All in use: data loading is short "
            "of CPU.",
            Look(unit="short", width=8),
            Query(expr=f"sum by (node) (rate(opsk_job_cpu_seconds_total{{{_JOB}}}[{style.RATE}]))", legend="{{node}}"),
            Query(expr=f"min(opsk_job_cpus{{{_JOB}}})", legend="allotted, least"),
        ),
        style.lines(
            "Waiting",
            "Share of time in which some task of the job waited for CPU, memory or I/O. Waiting for I/O while GPUs "
            "are idle: storage or too few loader processes.",
            Look(unit="percentunit", width=8),
            Query(
                expr=f"max by (node, resource) (rate(opsk_job_stalled_seconds_total{{{_JOB}}}[{style.RATE}]))",
                legend="{{node}} {{resource}}",
            ),
        ),
        style.lines(
            "Memory of the host",
            "By node, without file caches, and the limit. At the limit processes are killed: ask for more, or load "
            "less ahead.",
            Look(unit="bytes", width=8),
            Query(expr=f"sum by (node) (opsk_job_memory_anonymous_bytes{{{_JOB}}})", legend="{{node}}"),
            Query(expr=f"min(opsk_job_memory_limit_bytes{{{_JOB}}})", legend="limit, least"),
        ),
    ]


def _energy() -> list[style.Panel | style.Row]:
    """Return what the job costs."""
    energy = f"sum(opsk_job_energy_joules_total{{{_JOB}}})"
    return [
        style.row("Energy"),
        style.lines(
            "Power of the job",
            "Its GPUs, and its part of the processors by the CPUs that it has.",
            Look(unit="watt", width=12),
            Query(expr=f"opsk:job_power:watts{{{_JOB}}}", legend="job"),
            Query(expr=f"sum(opsk:gpu_power:watts {_HAS})", legend="its GPUs"),
        ),
        style.number(
            "Energy so far",
            "Since the exporter first saw the job.",
            Look(unit="joule", width=4, decimals=1),
            Query(expr=energy),
        ),
        style.number(
            "Energy per token",
            "Power over tokens a second, now. Compare plans by it, not by power.",
            Look(unit="joule", width=4, decimals=2, when_empty="no log read"),
            Query(
                expr=f"opsk:job_power:watts{{{_JOB}}} / on (cluster, job) "
                f"max by (cluster, job) (opsk_training_tokens_per_second{{{_JOB}}})"
            ),
        ),
        style.number(
            "GPU hours",
            "Time that the job has had its GPUs, all together.",
            Look(unit="h", width=4, decimals=1),
            Query(expr=f"sum(opsk_job_gpu_allocated_seconds_total{{{_JOB}}}) / 3600"),
        ),
    ]
