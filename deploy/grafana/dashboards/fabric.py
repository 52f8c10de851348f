"""Builds the dashboard of the fabric: slow, congested, faulty and down rails, nodes and links."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as models

from deploy.grafana.dashboards import style
from deploy.grafana.dashboards.style import BAD, GOOD, NODES, WATCH, Look, Query

UID = "opsk-fabric"
_PORT = "on (cluster, node, device, port)"
_RAIL = f'max by (cluster, node, device, port, rail, leaf) (opsk_infiniband_port_info{{{NODES},rail!=""}})'

_STATES = {
    "1": ("down", BAD),
    "2": ("initialising", WATCH),
    "3": ("armed", WATCH),
    "4": ("active", GOOD),
    "5": ("active, deferred", WATCH),
}


def make() -> models.Dashboard:
    """Return the dashboard."""
    text = "InfiniBand, RoCE and NVLink: which rail, node or link is slow, congested, in error or down."
    page = style.new(UID, "Fabric", text)
    return style.fill(page, [*_now(), *_maps(), *_traffic(), *_errors(), *_roce(), *_nvlink()])


def _by_rail(expr: str) -> Query:
    """Give a value of each port its rail, from the rails file."""
    return Query(expr=f"max by (node, rail) ({expr} * {_PORT} group_left (rail) {_RAIL})", instant=True)


def _now() -> list[style.Panel | style.Row]:
    """Return the numbers at the top."""
    state = f"opsk_infiniband_port_state{{{NODES}}}"
    return [
        style.row("Now"),
        style.number(
            "Ports active",
            "RDMA ports that carry data.",
            style.small(),
            Query(expr=f"count({state} >= 4)"),
        ),
        style.number(
            "Ports that went down today",
            "Ports that were active within 24 h and are not. Drain the node, then look at cable and switch port.",
            style.small(steps=style.BAD_ABOVE_0, when_empty="0"),
            Query(expr=f"count({state} < 4 and max_over_time({state}[1d]) >= 4) or vector(0)"),
        ),
        style.number(
            "Ports slower than before",
            "Ports that came up with fewer lanes or a lower speed: reseat or swap their cables.",
            style.small(steps=style.WATCH_ABOVE_0, when_empty="0"),
            Query(
                expr=f"count(opsk_infiniband_port_rate_bytes_per_second{{{NODES}}} < "
                f"max_over_time(opsk_infiniband_port_rate_bytes_per_second{{{NODES}}}[1d])) or vector(0)"
            ),
        ),
        style.number(
            "Worst congestion",
            "Highest share of what a port could have sent and could not. The map below shows where.",
            Look(
                unit="percentunit",
                width=4,
                height=4,
                decimals=0,
                high=1,
                steps=((None, GOOD), (0.1, WATCH), (0.2, BAD)),
                when_empty="not reported",
            ),
            Query(expr=f"max(opsk_infiniband_port_congestion_ratio{{{NODES}}})"),
        ),
        style.number(
            "Ports with errors",
            "Ports with more than one error in ten seconds, over 5 min. The table below names kind and port.",
            style.small(steps=style.WATCH_ABOVE_0, when_empty="0"),
            Query(
                expr=f"count(sum by (node, device, port) (opsk:infiniband_port_errors:rate5m{{{NODES}}}) > 0.1) "
                "or vector(0)"
            ),
        ),
        style.number(
            "NVLinks down",
            "NVLinks that are not active. Above 0: collectives within the node are slower or fail; see GPU health.",
            style.small(steps=style.BAD_ABOVE_0, when_empty="0"),
            Query(expr=f"count(opsk_gpu_nvlink_link_down{{{NODES}}} == 1) or vector(0)"),
        ),
    ]


def _maps() -> list[style.Panel | style.Row]:
    """Return the maps of rails and nodes."""
    return [
        style.row("Rail × node"),
        style.matrix(
            "Sent, by node and rail",
            "Share of each port's speed that it sends, now. A pale cell in a row: a rail that the job does not use. A "
            "pale row among its job's nodes: a node that is behind.",
            Look(unit="percentunit", width=12, height=10, high=1, decimals=0, colours=style.AMOUNT),
            _by_rail(f'opsk:infiniband_port_busy:ratio{{{NODES},direction="transmitted"}}'),
            rows="node",
            columns="rail",
        ),
        style.matrix(
            "Congestion, by node and rail",
            "Share of what each port could have sent and could not, now. A bright row: data piles up before that "
            "node's peers. A bright column: the rail's leaf or its uplinks.",
            Look(unit="percentunit", width=12, height=10, high=0.5, decimals=0, colours=style.WARM),
            _by_rail(f"opsk_infiniband_port_congestion_ratio{{{NODES}}}"),
            rows="node",
            columns="rail",
        ),
    ]


def _traffic() -> list[style.Panel | style.Row]:
    """Return traffic and congestion over time."""
    sent = f"rate(opsk_infiniband_port_transmitted_bytes_total{{{NODES}}}[{style.RATE}])"
    return [
        style.row("Traffic"),
        style.lines(
            "Sent, by rail",
            "All nodes together. Rails carry alike where NCCL uses all of them; one that falls off is misconfigured "
            "or down.",
            Look(unit="Bps", width=12),
            Query(expr=f"sum by (rail) ({sent} * {_PORT} group_left (rail) {_RAIL})", legend="rail {{rail}}"),
        ),
        style.lines(
            "Sent and received, all ports",
            "The two differ by what goes to nodes outside the choice above: storage, as a rule.",
            Look(unit="Bps", width=12),
            Query(expr=f"sum({sent})", legend="sent"),
            Query(
                expr=f"sum(rate(opsk_infiniband_port_received_bytes_total{{{NODES}}}[{style.RATE}]))",
                legend="received",
            ),
        ),
        style.heat(
            "Congestion over time, the worst 20 ports",
            "A row a port. All ports of one leaf at once: its uplinks are shared. One port alone: its receiver is "
            "slow.",
            Look(unit="percentunit", width=12, height=10, high=0.5, colours=style.WARM),
            Query(
                expr=f"topk(20, max by (node, device) (opsk_infiniband_port_congestion_ratio{{{NODES}}}))",
                legend="{{node}} {{device}}",
            ),
        ),
        style.lines(
            "Congestion, by leaf",
            "Mean over the ports of a leaf. What rises for all leaves at once is a large all-to-all, not a fault.",
            Look(unit="percentunit", width=12, height=10),
            Query(
                expr=f"avg by (leaf) (opsk_infiniband_port_congestion_ratio{{{NODES}}} * {_PORT} group_left "
                f"(leaf) {_RAIL})",
                legend="{{leaf}}",
            ),
        ),
    ]


def _errors() -> list[style.Panel | style.Row]:
    """Return errors of ports."""
    return [
        style.row("Errors"),
        style.lines(
            "Errors, by kind",
            "Errors a second over all ports. Symbol errors and recoveries: cables. Sequence errors and time-outs: "
            "packets get lost on the way.",
            Look(unit="cps", width=12),
            Query(expr=f"sum by (kind) (opsk:infiniband_port_errors:rate5m{{{NODES}}}) > 0", legend="{{kind}}"),
        ),
        style.listing(
            "Ports with errors",
            "Errors within the last hour. Clean, reseat or swap the cable of what stands first, near end before far "
            "end.",
            Look(unit="short", width=12, decimals=0, when_empty="no errors"),
            [
                Query(
                    expr="sum by (node, device, port, kind) "
                    f"(avg_over_time(opsk:infiniband_port_errors:rate5m{{{NODES}}}[1h])) "
                    "* 3600 > 1",
                    instant=True,
                )
            ],
            columns={"node": "Node", "device": "Device", "port": "Port", "kind": "Kind", "Value": "Errors in 1 h"},
            links={"Node": ("Only this node", style.to_node(UID, "${__value.raw}"))},
            sort="Errors in 1 h",
        ),
        style.listing(
            "Ports",
            "Where each port is cabled to and how fast it is. One that is down may never have been used; a slow one "
            "has lost lanes.",
            Look(unit="short", width=24, height=9, decimals=0),
            [
                Query(expr=f"max by (node, device, port) (opsk_infiniband_port_state{{{NODES}}})", instant=True),
                Query(
                    expr=f"max by (node, device, port) (opsk_infiniband_port_rate_bytes_per_second{{{NODES}}})",
                    instant=True,
                ),
                Query(
                    expr="max by (node, device, port, rail, leaf, switch_port, speed, link_layer) "
                    f"(opsk_infiniband_port_info{{{NODES}}})",
                    instant=True,
                ),
                Query(
                    expr="max by (node, device, port) "
                    f"(increase(opsk_infiniband_port_link_downed_total{{{NODES}}}[1d]))",
                    instant=True,
                ),
            ],
            columns={
                "node": "Node",
                "device": "Device",
                "port": "Port",
                "rail": "Rail",
                "leaf": "Leaf",
                "switch_port": "Switch port",
                "link_layer": "Layer",
                "speed": "Width and generation",
                "Value #A": "State",
                "Value #B": "Speed",
                "Value #D": "Downs in 24 h",
            },
            units={"Speed": "Bps"},
            words={"State": _STATES},
        ),
    ]


def _roce() -> list[style.Panel | style.Row]:
    """Return what RoCE alone has."""
    names = {
        "cnp_sent_packets": "CNP sent",
        "cnp_handled_packets": "CNP obeyed",
        "ecn_marked_received_packets": "marked packets received",
    }
    lost = {
        "out_of_sequence_packets": "out of sequence",
        "packet_sequence_errors": "sequence errors",
        "local_ack_timeouts": "time-outs",
        "rnr_nak_received_packets": "receiver not ready",
    }
    return [
        style.row("RoCE and retransmission"),
        style.lines(
            "Congestion notifications",
            "Packets a second, all ports. Many while few are obeyed: senders do not slow down; look at DCQCN's "
            "settings.",
            Look(unit="pps", width=12),
            *(
                Query(expr=f"sum(rate(opsk_infiniband_port_{name}_total{{{NODES}}}[{style.RATE}]))", legend=legend)
                for name, legend in names.items()
            ),
        ),
        style.lines(
            "Sent again, or for nothing",
            "A second, all ports. On a lossless fabric all of these are near 0; time-outs end in NCCL's error 12.",
            Look(unit="pps", width=12),
            *(
                Query(expr=f"sum(rate(opsk_infiniband_port_{name}_total{{{NODES}}}[{style.RATE}]))", legend=legend)
                for name, legend in lost.items()
            ),
        ),
    ]


def _nvlink() -> list[style.Panel | style.Row]:
    """Return the links between GPUs."""
    return [
        style.row("NVLink"),
        style.lines(
            "NVLink, by node",
            "Sent by all GPUs of a node together. Nodes of one job send alike.",
            Look(unit="Bps", width=12),
            Query(
                expr=f'sum by (node) (opsk:gpu_nvlink:bytes_per_second{{{NODES},direction="transmitted"}})',
                legend="{{node}}",
            ),
        ),
        style.lines(
            "NVLink errors, by kind",
            "Within an hour, all GPUs. Replays now and then are no harm; recoveries mean that a link went away and "
            "came back.",
            Look(unit="short", width=12),
            Query(expr=f"sum by (kind) (increase(opsk_gpu_nvlink_errors_total{{{NODES}}}[1h]))", legend="{{kind}}"),
        ),
    ]
