"""Which file of an RDMA port becomes which metric, and what does it count?

Sources: IBA volume 1, chapter 16 (PortCounters, PortCountersExtended); NVIDIA, "Understanding mlx5 Linux Counters";
Linux ``Documentation/ABI/stable/sysfs-class-infiniband``. Adding a counter is adding a line.
"""

from __future__ import annotations

from typing import NamedTuple


class MetricName(NamedTuple):
    """The middle of ``opsk_infiniband_port_<what>_total``, and its help text."""

    what: str
    help_text: str


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

HARDWARE = {
    "np_cnp_sent": MetricName(
        "cnp_sent_packets", "RoCE: congestion notifications sent because marked packets had arrived."
    ),
    "np_ecn_marked_roce_packets": MetricName(
        "ecn_marked_received_packets", "RoCE: packets received with the congestion mark (ECN)."
    ),
    "rp_cnp_handled": MetricName(
        "cnp_handled_packets", "RoCE: congestion notifications received and obeyed by sending slower."
    ),
    "rp_cnp_ignored": MetricName(
        "cnp_ignored_packets", "RoCE: congestion notifications received and ignored; should stay 0."
    ),
    "out_of_sequence": MetricName("out_of_sequence_packets", "Packets received out of sequence."),
    "packet_seq_err": MetricName(
        "packet_sequence_errors", "Sequence-error NAKs received; the transfer was tried again."
    ),
    "local_ack_timeout_err": MetricName(
        "local_ack_timeouts", "Times a sender's acknowledge timer ran out; the transfer was tried again."
    ),
    "rnr_nak_retry_err": MetricName(
        "rnr_nak_received_packets", "Receiver-not-ready NAKs received; the transfer was tried again."
    ),
    "implied_nak_seq_err": MetricName(
        "implied_nak_sequence_errors", "Responses to RDMA reads that skipped a sequence number."
    ),
    "duplicate_request": MetricName("duplicate_requests", "Requests received that had been executed before."),
    "out_of_buffer": MetricName(
        "out_of_buffer_drops", "Packets dropped because no receive buffer had been posted for their queue pair."
    ),
    "roce_adp_retrans": MetricName("roce_adaptive_retransmissions", "RoCE: adaptive retransmissions."),
    "roce_adp_retrans_to": MetricName(
        "roce_adaptive_retransmission_timeouts", "RoCE: timeouts of adaptive retransmission."
    ),
    "roce_slow_restart": MetricName("roce_slow_restarts_used", "RoCE: times slow restart was used."),
    "roce_slow_restart_cnps": MetricName(
        "roce_slow_restart_cnp_packets", "RoCE: congestion notifications that slow restart generated."
    ),
    "roce_slow_restart_trans": MetricName("roce_slow_restarts", "RoCE: changes of state to slow restart."),
    "rx_icrc_encapsulated": MetricName("roce_icrc_errors", "RoCE: packets received with a wrong invariant checksum."),
    "rx_read_requests": MetricName("received_read_requests", "RDMA READ requests received."),
    "rx_write_requests": MetricName("received_write_requests", "RDMA WRITE requests received."),
    "rx_atomic_requests": MetricName("received_atomic_requests", "ATOMIC requests received."),
    "rx_dct_connect": MetricName("received_dct_connects", "Connection requests received for dynamic transports."),
    "req_cqe_error": MetricName("requester_cqe_errors", "Requests that completed with an error, on this side."),
    "req_cqe_flush_error": MetricName(
        "requester_cqe_flush_errors", "Requests flushed with an error because their queue had failed, on this side."
    ),
    "req_remote_access_errors": MetricName(
        "requester_remote_access_errors", "Requests that the other side refused for lack of access."
    ),
    "req_remote_invalid_request": MetricName(
        "requester_remote_invalid_request_errors", "Requests that the other side called invalid."
    ),
    "req_transport_retries_exceeded": MetricName(
        "requester_transport_retries_exceeded", "Requests given up because the other side never acknowledged."
    ),
    "req_rnr_retries_exceeded": MetricName(
        "requester_rnr_retries_exceeded", "Requests given up because the other side was never ready."
    ),
    "resp_cqe_error": MetricName("responder_cqe_errors", "Responses that completed with an error, on this side."),
    "resp_cqe_flush_error": MetricName(
        "responder_cqe_flush_errors", "Responses flushed with an error because their queue had failed, on this side."
    ),
    "resp_local_length_error": MetricName(
        "responder_local_length_errors", "Messages received that were longer than their buffer."
    ),
    "resp_remote_access_errors": MetricName(
        "responder_remote_access_errors", "Requests received that this side refused for lack of access."
    ),
}
"""Files of ``hw_counters`` (mlx5 names)."""
