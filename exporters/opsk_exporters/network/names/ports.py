"""Defines the metrics of the counter files that every RDMA port has.

Sources: IBA volume 1, chapter 16 (PortCounters, PortCountersExtended); Linux
``Documentation/ABI/stable/sysfs-class-infiniband``. Adding a counter is adding a line.
"""

from __future__ import annotations

from typing import Literal, NamedTuple


class MetricName(NamedTuple):
    """The middle of ``opsk_infiniband_port_<what>_total``, and its help text; a gauge has no ``_total``."""

    what: str
    help_text: str
    kind: Literal["counter", "gauge"] = "counter"


_STICKS = "On old devices it stays at its largest value instead of wrapping."

COUNTERS = {
    "port_rcv_data": MetricName(
        "received_bytes",
        "Bytes received on all virtual lanes, headers included, without link packets (data words of the device x 4).",
    ),
    "port_xmit_data": MetricName(
        "transmitted_bytes",
        "Bytes sent on all virtual lanes, headers included, without link packets (data words of the device x 4).",
    ),
    "port_rcv_packets": MetricName("received_packets", "Packets received, packets with errors included."),
    "port_xmit_packets": MetricName("transmitted_packets", "Packets sent, packets with errors included."),
    "unicast_rcv_packets": MetricName("received_unicast_packets", "Unicast packets received."),
    "unicast_xmit_packets": MetricName("transmitted_unicast_packets", "Unicast packets sent."),
    "multicast_rcv_packets": MetricName("received_multicast_packets", "Multicast packets received."),
    "multicast_xmit_packets": MetricName("transmitted_multicast_packets", "Multicast packets sent."),
    "port_xmit_wait": MetricName(
        "transmit_wait_ticks",
        "Ticks in which the port had data to send but no credit, or lost arbitration; the length of a tick depends on "
        "the device, so compare ports of one kind only. " + _STICKS,
    ),
    "port_rcv_errors": MetricName("receive_errors", "Packets received with an error. " + _STICKS),
    "port_rcv_remote_physical_errors": MetricName(
        "receive_remote_physical_errors", "Packets received that a switch had marked as bad (EBP). " + _STICKS
    ),
    "port_rcv_switch_relay_errors": MetricName(
        "receive_switch_relay_errors", "Packets received that could not be forwarded (switch ports). " + _STICKS
    ),
    "port_rcv_constraint_errors": MetricName(
        "receive_constraint_errors", "Packets received and dropped by partition or raw filters. " + _STICKS
    ),
    "port_xmit_constraint_errors": MetricName(
        "transmit_constraint_errors", "Packets not sent because of partition or raw filters. " + _STICKS
    ),
    "port_rcv_discards": MetricName("receive_discards", "Packets dropped on arrival. " + _STICKS),
    "port_xmit_discards": MetricName(
        "transmit_discards", "Packets dropped because the port was down or congested. " + _STICKS
    ),
    "symbol_error": MetricName("symbol_errors", "Minor link errors on one or more lanes. " + _STICKS),
    "link_error_recovery": MetricName(
        "link_error_recoveries", "Times the link came back from an error by itself. " + _STICKS
    ),
    "link_downed": MetricName(
        "link_downed", "Times the link failed to recover from an error and went down. " + _STICKS
    ),
    "local_link_integrity_errors": MetricName(
        "local_link_integrity_errors", "Times local physical errors exceeded their threshold. " + _STICKS
    ),
    "excessive_buffer_overrun_errors": MetricName(
        "excessive_buffer_overrun_errors", "Times consecutive flow control periods had buffer overruns. " + _STICKS
    ),
    "VL15_dropped": MetricName(
        "vl15_dropped_packets", "Subnet management packets dropped for lack of buffers. " + _STICKS
    ),
}
"""Files of ``counters``."""

EXTENDED = {
    "port_rcv_data_64": MetricName("extended_received_bytes", "As received_bytes, from counters_ext of old kernels."),
    "port_xmit_data_64": MetricName(
        "extended_transmitted_bytes", "As transmitted_bytes, from counters_ext of old kernels."
    ),
    "port_rcv_packets_64": MetricName(
        "extended_received_packets", "As received_packets, from counters_ext of old kernels."
    ),
    "port_xmit_packets_64": MetricName(
        "extended_transmitted_packets", "As transmitted_packets, from counters_ext of old kernels."
    ),
    "port_unicast_rcv_packets": MetricName(
        "extended_received_unicast_packets", "As received_unicast_packets, from counters_ext of old kernels."
    ),
    "port_unicast_xmit_packets": MetricName(
        "extended_transmitted_unicast_packets", "As transmitted_unicast_packets, from counters_ext of old kernels."
    ),
    "port_multicast_rcv_packets": MetricName(
        "extended_received_multicast_packets", "As received_multicast_packets, from counters_ext of old kernels."
    ),
    "port_multicast_xmit_packets": MetricName(
        "extended_transmitted_multicast_packets", "As transmitted_multicast_packets, from counters_ext of old kernels."
    ),
}
"""Files of ``counters_ext``: 64-bit twins where ``counters`` stop at 32 bits."""
