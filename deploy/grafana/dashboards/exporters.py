"""Builds the dashboard of the exporters: which nodes and collectors answer, in time and with fresh data."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as models

from deploy.grafana.dashboards import style
from deploy.grafana.dashboards.style import BAD, GOOD, NODES, WATCH, Look, Query

UID = "opsk-exporters"


def make() -> models.Dashboard:
    """Return the dashboard."""
    text = "Whether every node answers, with every collector, in time and with fresh data; what this costs."
    page = style.new(UID, "Exporters", text)
    return style.fill(page, [*_now(), *_collectors(), *_cost(), *_blind()])


def _now() -> list[style.Panel | style.Row]:
    """Return the numbers at the top."""
    return [
        style.row("Now"),
        style.number(
            "Exporters down",
            "Targets that did not answer the last scrape: node down, service stopped, firewall or certificate.",
            style.small(steps=style.BAD_ABOVE_0, when_empty="0"),
            Query(expr=f'count(up{{job="opsk",{NODES}}} == 0) or vector(0)'),
        ),
        style.number(
            "Collectors that fail",
            "Their series are absent, not 0. The table below shows where, the exporter's log why.",
            style.small(steps=style.BAD_ABOVE_0, when_empty="0"),
            Query(expr=f"count(opsk_collector_success{{{NODES}}} == 0) or vector(0)"),
        ),
        style.number(
            "Oldest data",
            "Time since the collector that is worst off last answered.",
            style.small("s", steps=((None, GOOD), (60, WATCH), (300, BAD))),
            Query(expr=f"max(opsk_collector_age_seconds{{{NODES}}})"),
        ),
        style.number(
            "Slowest scrape",
            "Longest of the last scrapes. The exporter gives up on a sick collector after 5 s.",
            style.small("s", decimals=2, steps=((None, GOOD), (2, WATCH), (5, BAD))),
            Query(expr=f'max(scrape_duration_seconds{{job="opsk",{NODES}}})'),
        ),
        style.number(
            "Series",
            "Samples of one scrape of all nodes: what Prometheus has to keep.",
            style.small(decimals=1),
            Query(expr=f'sum(scrape_samples_scraped{{job="opsk",{NODES}}})'),
        ),
        style.number(
            "Versions",
            "Versions of the exporter that run. More than one for long: an upgrade that did not reach all nodes.",
            style.small(steps=((None, GOOD), (2, WATCH))),
            Query(expr=f"count(count by (version) (opsk_exporter_info{{{NODES}}}))"),
        ),
    ]


def _collectors() -> list[style.Panel | style.Row]:
    """Return how collectors are."""
    two = {"0": ("fails", BAD), "1": ("answers", GOOD)}
    return [
        style.row("Collectors"),
        style.matrix(
            "Collectors, by node",
            "fails: its series are absent on that node. Empty: the node has no such collector (an older exporter).",
            Look(unit="none", width=12, height=11, decimals=0, steps=((None, BAD), (1, GOOD)), words=two),
            Query(expr=f"max by (node, collector) (opsk_collector_success{{{NODES}}})", instant=True),
            rows="node",
            columns="collector",
        ),
        style.lines(
            "Time of collectors",
            "Slowest node of each. One that climbs to the deadline (5 s) is about to fail: a driver or device that "
            "hangs.",
            Look(unit="s", width=12, height=11),
            Query(expr=f"max by (collector) (opsk_collector_duration_seconds{{{NODES}}})", legend="{{collector}}"),
        ),
        style.lines(
            "Failures",
            "Within 10 min, by collector and kind. deadline: it hangs; error: see the log.",
            Look(unit="short", width=12),
            Query(
                expr=f"sum by (collector, kind) (increase(opsk_collector_failures_total{{{NODES}}}[10m])) > 0",
                legend="{{collector}} {{kind}}",
            ),
        ),
        style.lines(
            "Age of data",
            "Oldest of each collector and of each slow source. IPMI is read every 30 s: up to a minute is as it "
            "should be.",
            Look(unit="s", width=12),
            Query(expr=f"max by (collector) (opsk_collector_age_seconds{{{NODES}}})", legend="{{collector}}"),
            Query(expr=f"max by (source) (opsk_power_source_age_seconds{{{NODES}}})", legend="{{source}}"),
        ),
    ]


def _cost() -> list[style.Panel | style.Row]:
    """Return what the exporters cost."""
    return [
        style.row("What it costs"),
        style.lines(
            "Processor time",
            "CPU seconds a second of the exporter, median and highest node.",
            Look(unit="percentunit", width=8),
            Query(
                expr=f"quantile(0.5, rate(opsk_exporter_process_cpu_seconds_total{{{NODES}}}[{style.RATE}]))",
                legend="median",
            ),
            Query(
                expr=f"max(rate(opsk_exporter_process_cpu_seconds_total{{{NODES}}}[{style.RATE}]))",
                legend="highest",
            ),
        ),
        style.lines(
            "Memory",
            "Resident memory of the exporter, median and highest node. It stays flat: a rise over days is a fault to "
            "report.",
            Look(unit="bytes", width=8),
            Query(expr=f"quantile(0.5, opsk_exporter_process_resident_memory_bytes{{{NODES}}})", legend="median"),
            Query(expr=f"max(opsk_exporter_process_resident_memory_bytes{{{NODES}}})", legend="highest"),
        ),
        style.lines(
            "Samples by node",
            "Most and least of all nodes. A jump is new devices, or a label that has too many values.",
            Look(unit="short", width=8),
            Query(expr=f'max(scrape_samples_scraped{{job="opsk",{NODES}}})', legend="most"),
            Query(expr=f'min(scrape_samples_scraped{{job="opsk",{NODES}}})', legend="least"),
        ),
    ]


def _blind() -> list[style.Panel | style.Row]:
    """Return what the exporters say that they cannot see."""
    return [
        style.row("What it cannot see"),
        style.lines(
            "Values that could not be read",
            "Of GPUs, power sensors, ports, logs. Absent series, not zeros; RAPL is for root alone unless opened.",
            Look(unit="short", width=8, decimals=0),
            Query(expr=f"sum(opsk_gpu_unreadable_values{{{NODES}}})", legend="GPU values"),
            Query(
                expr=f"sum by (source, reason) (opsk_power_unreadable_sensors{{{NODES}}}) > 0",
                legend="{{source}}: {{reason}}",
            ),
            Query(expr=f"sum(opsk_infiniband_port_unreadable_files{{{NODES}}})", legend="port files"),
            Query(expr=f"sum(opsk_training_logs_unreadable{{{NODES}}})", legend="training logs"),
        ),
        style.lines(
            "Prolog files that are not used",
            "stale: an epilog did not run. torn: a prolog was killed. GPUs of such jobs are found by other ways, if "
            "at all.",
            Look(unit="short", width=8, decimals=0),
            Query(expr=f"sum by (kind) (opsk_job_bad_files{{{NODES}}})", legend="{{kind}}"),
        ),
        style.listing(
            "Nodes that see less",
            "no: the kernel log cannot be read, so XIDs come from NVML alone, and nothing is seen of NICs and memory. "
            "The drop-in kernel-log.conf opens it.",
            Look(
                unit="none",
                width=8,
                decimals=0,
                steps=((None, BAD), (1, GOOD)),
                words={"0": ("no", BAD), "1": ("yes", GOOD)},
                when_empty="none",
            ),
            [Query(expr=f"min by (node) (opsk_kernel_log_readable{{{NODES}}})", instant=True)],
            columns={"node": "Node", "Value": "Reads the kernel log"},
        ),
    ]
