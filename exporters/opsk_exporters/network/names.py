"""Maps the counter files of RDMA ports and devices to metrics: adding a counter is adding a line.

`COUNTERS` and `EXTENDED` have the files of every port, `HARDWARE` those that drivers add (``hw_counters`` of a port or
a device). Sources: Linux ``Documentation/ABI/stable/sysfs-class-infiniband``; the tables of names in Linux
``drivers/infiniband/hw/*`` and ``drivers/infiniband/sw/rxe``; NVIDIA, "Understanding mlx5 Linux Counters"; AWS,
"Monitor an EFA". A file in none of the tables has no known unit: it is counted, never shown.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

_STICKS = "On old devices it stays at its largest value instead of wrapping."
_WRAPS = "mlx5 counts in 32 bits and begins again at 0."


class MetricName(NamedTuple):
    """The middle of ``opsk_infiniband_port_<what>_total``, and its help text; a gauge has no ``_total``."""

    what: str
    help_text: str
    kind: Literal["counter", "gauge"] = "counter"


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


MLX5 = {
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
    "cc_rx_ce_pkts": MetricName(
        "ecn_marked_received_rdma_packets",
        "RoCE: packets received with the congestion mark, while this optional counter is on.",
    ),
    "cc_rx_cnp_pkts": MetricName(
        "received_cnp_packets", "RoCE: congestion notifications received, while this optional counter is on."
    ),
    "cc_tx_cnp_pkts": MetricName(
        "transmitted_cnp_packets", "RoCE: congestion notifications sent, while this optional counter is on."
    ),
    "rdma_rx_bytes": MetricName("rdma_received_bytes", "RDMA bytes received, while this optional counter is on."),
    "rdma_rx_packets": MetricName("rdma_received_packets", "RDMA packets received, while this optional counter is on."),
    "rdma_tx_bytes": MetricName("rdma_transmitted_bytes", "RDMA bytes sent, while this optional counter is on."),
    "rdma_tx_packets": MetricName("rdma_transmitted_packets", "RDMA packets sent, while this optional counter is on."),
    "rx_icrc_encapsulated": MetricName("roce_icrc_errors", "RoCE: packets received with a wrong invariant checksum."),
}
"""mlx5: counters of the port. Those of queues are in `QUEUES`."""

QUEUES = {
    "out_of_sequence": MetricName("out_of_sequence_packets", "Packets received out of sequence. " + _WRAPS),
    "packet_seq_err": MetricName(
        "packet_sequence_errors", "Sequence-error NAKs received; the transfer was tried again. " + _WRAPS
    ),
    "local_ack_timeout_err": MetricName(
        "local_ack_timeouts", "Times a sender's acknowledge timer ran out; the transfer was tried again. " + _WRAPS
    ),
    "rnr_nak_retry_err": MetricName(
        "rnr_nak_received_packets", "Receiver-not-ready NAKs received; the transfer was tried again. " + _WRAPS
    ),
    "implied_nak_seq_err": MetricName(
        "implied_nak_sequence_errors", "Responses to RDMA reads that skipped a sequence number. " + _WRAPS
    ),
    "duplicate_request": MetricName("duplicate_requests", "Requests received that had been executed before. " + _WRAPS),
    "out_of_buffer": MetricName(
        "out_of_buffer_drops", "Packets dropped because no receive buffer had been posted for their queue. " + _WRAPS
    ),
    "roce_adp_retrans": MetricName("roce_adaptive_retransmissions", "RoCE: adaptive retransmissions. " + _WRAPS),
    "roce_adp_retrans_to": MetricName(
        "roce_adaptive_retransmission_timeouts", "RoCE: timeouts of adaptive retransmission. " + _WRAPS
    ),
    "roce_slow_restart": MetricName("roce_slow_restarts_used", "RoCE: times slow restart was used. " + _WRAPS),
    "roce_slow_restart_cnps": MetricName(
        "roce_slow_restart_cnp_packets", "RoCE: congestion notifications that slow restart generated. " + _WRAPS
    ),
    "roce_slow_restart_trans": MetricName("roce_slow_restarts", "RoCE: changes of state to slow restart. " + _WRAPS),
    "rx_read_requests": MetricName("received_read_requests", "RDMA READ requests received. " + _WRAPS),
    "rx_write_requests": MetricName("received_write_requests", "RDMA WRITE requests received. " + _WRAPS),
    "rx_atomic_requests": MetricName("received_atomic_requests", "ATOMIC requests received. " + _WRAPS),
    "rx_dct_connect": MetricName(
        "received_dct_connects", "Connection requests received for dynamic transports. " + _WRAPS
    ),
    "req_cqe_error": MetricName(
        "requester_cqe_errors", "Requests that completed with an error, on this side. " + _WRAPS
    ),
    "req_cqe_flush_error": MetricName(
        "requester_cqe_flush_errors",
        "Requests flushed with an error because their queue had failed, on this side. " + _WRAPS,
    ),
    "req_remote_access_errors": MetricName(
        "requester_remote_access_errors", "Requests that the other side refused for lack of access. " + _WRAPS
    ),
    "req_remote_invalid_request": MetricName(
        "requester_remote_invalid_request_errors", "Requests that the other side called invalid. " + _WRAPS
    ),
    "req_transport_retries_exceeded": MetricName(
        "requester_transport_retries_exceeded",
        "Requests given up because the other side never acknowledged. " + _WRAPS,
    ),
    "req_rnr_retries_exceeded": MetricName(
        "requester_rnr_retries_exceeded", "Requests given up because the other side was never ready. " + _WRAPS
    ),
    "resp_cqe_error": MetricName(
        "responder_cqe_errors", "Responses that completed with an error, on this side. " + _WRAPS
    ),
    "resp_cqe_flush_error": MetricName(
        "responder_cqe_flush_errors",
        "Responses flushed with an error because their queue had failed, on this side. " + _WRAPS,
    ),
    "resp_local_length_error": MetricName(
        "responder_local_length_errors", "Messages received that were longer than their buffer. " + _WRAPS
    ),
    "resp_remote_access_errors": MetricName(
        "responder_remote_access_errors", "Requests received that this side refused for lack of access. " + _WRAPS
    ),
}
"""mlx5: counters of queue pairs, summed over a port."""

REPRESENTORS = {
    f"vport_{name}": MetricName(
        f"vport_{metric.what}", "Virtual ports that this representor stands for: " + metric.help_text
    )
    for name, metric in QUEUES.items()
}
"""mlx5 in switchdev mode: the same of the virtual functions behind a representor."""

MLX4 = {
    "rq_num_lle": QUEUES["resp_local_length_error"],
    "rq_num_rae": QUEUES["resp_remote_access_errors"],
    "rq_num_wrfe": QUEUES["resp_cqe_flush_error"],
    "rq_num_oos": QUEUES["out_of_sequence"],
    "rq_num_dup": QUEUES["duplicate_request"],
    "sq_num_rae": QUEUES["req_remote_access_errors"],
    "sq_num_rire": QUEUES["req_remote_invalid_request"],
    "sq_num_wrfe": QUEUES["req_cqe_flush_error"],
    "sq_num_tree": QUEUES["req_transport_retries_exceeded"],
    "sq_num_rree": QUEUES["req_rnr_retries_exceeded"],
    "sq_num_rnr": QUEUES["rnr_nak_retry_err"],
    "sq_num_oos": QUEUES["packet_seq_err"],
    "sq_num_to": QUEUES["local_ack_timeout_err"],
    "sq_num_lle": MetricName("requester_local_length_errors", "Local length errors, sending."),
    "rq_num_lqpoe": MetricName("responder_local_queue_errors", "Local queue pair operation errors, receiving."),
    "sq_num_lqpoe": MetricName("requester_local_queue_errors", "Local queue pair operation errors, sending."),
    "rq_num_lpe": MetricName("responder_local_protection_errors", "Local protection errors, receiving."),
    "sq_num_lpe": MetricName("requester_local_protection_errors", "Local protection errors, sending."),
    "sq_num_mwbe": MetricName("requester_memory_window_bind_errors", "Memory window bind errors, sending."),
    "sq_num_bre": MetricName("requester_bad_response_errors", "Bad responses to requests sent."),
    "rq_num_rire": MetricName("responder_remote_invalid_request_errors", "Invalid requests received."),
    "sq_num_roe": MetricName("requester_remote_operation_errors", "Requests that the other side could not carry out."),
    "rq_num_rnr": MetricName("rnr_nak_sent_packets", "Receiver-not-ready NAKs sent."),
    "num_cqovf": MetricName("completion_queue_overflows", "Completion queues that overflowed."),
    "rq_num_udsdprd": MetricName(
        "datagram_out_of_buffer_drops", "Unreliable datagrams dropped on arrival for lack of a receive buffer."
    ),
}
"""mlx4 (ConnectX-3): diagnostic counters; what mlx5 counts too has its name."""

BNXT_RE = {
    "active_pds": MetricName("active_protection_domains", "Protection domains in use.", "gauge"),
    "active_ahs": MetricName("active_address_handles", "Address handles in use.", "gauge"),
    "active_qps": MetricName("active_queue_pairs", "Queue pairs in use.", "gauge"),
    "active_rc_qps": MetricName("active_rc_queue_pairs", "Reliable connected queue pairs in use.", "gauge"),
    "active_ud_qps": MetricName("active_ud_queue_pairs", "Unreliable datagram queue pairs in use.", "gauge"),
    "active_srqs": MetricName("active_shared_receive_queues", "Shared receive queues in use.", "gauge"),
    "active_cqs": MetricName("active_completion_queues", "Completion queues in use.", "gauge"),
    "active_mrs": MetricName("active_memory_regions", "Memory regions in use.", "gauge"),
    "active_mws": MetricName("active_memory_windows", "Memory windows in use.", "gauge"),
    "recoverable_errors": MetricName("recoverable_errors", "Errors that the adapter recovered from."),
    "rx_roce_errors": MetricName("roce_receive_errors", "RoCE: packets received with an error."),
    "rx_roce_discards": MetricName("roce_receive_discards", "RoCE: packets discarded on arrival."),
    "to_retransmits": MetricName("timeout_retransmissions", "Retransmissions because a timer ran out."),
    "seq_err_naks_rcvd": QUEUES["packet_seq_err"],
    "max_retry_exceeded": MetricName("retries_exceeded", "Requests given up after too many retries."),
    "rnr_naks_rcvd": QUEUES["rnr_nak_retry_err"],
    "missing_resp": MetricName("missing_responses", "Responses that were missing."),
    "unrecoverable_err": MetricName("unrecoverable_errors", "Errors that the adapter did not recover from."),
    "bad_resp_err": MLX4["sq_num_bre"],
    "local_qp_op_err": MetricName("local_queue_operation_errors", "Local queue pair operation errors."),
    "local_protection_err": MetricName("local_protection_errors", "Local protection errors."),
    "mem_mgmt_op_err": MetricName("memory_management_errors", "Memory management operation errors."),
    "remote_invalid_req_err": QUEUES["req_remote_invalid_request"],
    "remote_access_err": QUEUES["req_remote_access_errors"],
    "remote_op_err": MLX4["sq_num_roe"],
    "dup_req": QUEUES["duplicate_request"],
    "oos_drop_count": MetricName("out_of_sequence_drops", "Packets dropped because they came out of sequence."),
    "tx_atomic_req": MetricName("transmitted_atomic_requests", "ATOMIC requests sent."),
    "tx_read_req": MetricName("transmitted_read_requests", "RDMA READ requests sent."),
    "tx_read_resp": MetricName("transmitted_read_responses", "RDMA READ responses sent."),
    "tx_write_req": MetricName("transmitted_write_requests", "RDMA WRITE requests sent."),
    "tx_send_req": MetricName("transmitted_send_requests", "SEND requests sent."),
    "rx_atomic_req": QUEUES["rx_atomic_requests"],
    "rx_read_req": QUEUES["rx_read_requests"],
    "rx_read_resp": MetricName("received_read_responses", "RDMA READ responses received."),
    "rx_write_req": QUEUES["rx_write_requests"],
    "rx_send_req": MetricName("received_send_requests", "SEND requests received."),
    "rx_roce_only_pkts": MetricName("roce_received_packets", "RoCE: packets received."),
    "rx_roce_only_bytes": MetricName("roce_received_bytes", "RoCE: bytes received."),
    "tx_roce_only_pkts": MetricName("roce_transmitted_packets", "RoCE: packets sent."),
    "tx_roce_only_bytes": MetricName("roce_transmitted_bytes", "RoCE: bytes sent."),
    "rx_roce_good_pkts": MetricName("roce_received_good_packets", "RoCE: packets received without an error."),
    "rx_roce_good_bytes": MetricName("roce_received_good_bytes", "RoCE: bytes received without an error."),
    "rx_out_of_buffer": QUEUES["out_of_buffer"],
    "tx_cnp_pkts": MLX5["np_cnp_sent"],
    "np_cnp_pkts": MLX5["np_cnp_sent"],
    "rx_cnp_pkts": MLX5["rp_cnp_handled"],
    "rx_ecn_marked_pkts": MLX5["np_ecn_marked_roce_packets"],
    "pacing_reschedule": MetricName("doorbell_pacing_reschedules", "Times pacing of doorbells was prolonged."),
    "pacing_complete": MetricName("doorbell_pacing_completions", "Times pacing of doorbells ended."),
    "pacing_alerts": MetricName("doorbell_pacing_alerts", "Times the doorbell queue called for pacing."),
} | {
    f"res_{name}": MetricName(f"bnxt_{what}", f"Queues in error because of: {words}.")
    for name, what, words in (
        ("exceed_max", "exceeds_maximum_errors", "more data than was requested"),
        ("length_mismatch", "length_mismatch_errors", "a payload of another length than stated"),
        ("exceeds_wqe", "exceeds_request_errors", "more data than the work request has room for"),
        ("opcode_err", "opcode_errors", "a wrong opcode"),
        ("rx_invalid_rkey", "receive_key_errors", "an invalid remote key, receiving"),
        ("rx_domain_err", "receive_domain_errors", "a wrong protection domain, receiving"),
        ("rx_no_perm", "receive_permission_errors", "no permission, receiving"),
        ("rx_range_err", "receive_range_errors", "an address out of range, receiving"),
        ("tx_invalid_rkey", "transmit_key_errors", "an invalid key, sending"),
        ("tx_domain_err", "transmit_domain_errors", "a wrong protection domain, sending"),
        ("tx_no_perm", "transmit_permission_errors", "no permission, sending"),
        ("tx_range_err", "transmit_range_errors", "an address out of range, sending"),
        ("irrq_oflow", "read_queue_overflow_errors", "an overflow of the inbound read request queue"),
        ("unsup_opcode", "unsupported_opcode_errors", "an opcode that is not supported"),
        ("unaligned_atomic", "unaligned_atomic_errors", "an atomic at an address that is not aligned"),
        ("rem_inv_err", "remote_invalidate_errors", "a remote invalidation that failed"),
        ("mem_err", "memory_errors", "a memory error"),
        ("srq_err", "shared_receive_queue_errors", "an error of the shared receive queue"),
        ("cmp_err", "completion_errors", "a completion queue that could take no entry"),
        ("invalid_dup_rkey", "duplicate_key_errors", "a duplicate request with an invalid key"),
        ("wqe_format_err", "request_format_errors", "a work request of a wrong format"),
        ("cq_load_err", "completion_queue_load_errors", "a completion queue that could not be loaded"),
        ("srq_load_err", "shared_receive_queue_load_errors", "a shared receive queue that could not be loaded"),
        ("tx_pci_err", "transmit_pci_errors", "a PCI error, sending"),
        ("rx_pci_err", "receive_pci_errors", "a PCI error, receiving"),
    )
}
"""bnxt_re (Broadcom); what mlx5 counts too has its name. ``res_*`` are errors that brought a queue to a halt."""

TRAFFIC = {
    "rx_bytes": MetricName("hardware_received_bytes", "Bytes received, as the driver counts them (EFA, bnxt_re)."),
    "rx_pkts": MetricName("hardware_received_packets", "Packets received, as the driver counts them (EFA, bnxt_re)."),
    "tx_bytes": MetricName("hardware_transmitted_bytes", "Bytes sent, as the driver counts them (EFA, bnxt_re)."),
    "tx_pkts": MetricName("hardware_transmitted_packets", "Packets sent, as the driver counts them (EFA, bnxt_re)."),
}
"""EFA and bnxt_re: ports of EFA have no other traffic counters."""

EFA = {
    "rx_drops": MetricName("receive_drops", "Packets received and dropped."),
    "send_bytes": MetricName("send_bytes", "Bytes in SEND requests."),
    "send_wrs": MetricName("send_requests", "SEND requests."),
    "recv_bytes": MetricName("receive_request_bytes", "Bytes received into posted buffers."),
    "recv_wrs": MetricName("receive_requests", "Receive requests that were filled."),
    "rdma_read_bytes": MetricName("rdma_read_bytes", "Bytes fetched with RDMA READ."),
    "rdma_read_wrs": MetricName("rdma_read_requests", "RDMA READ requests sent."),
    "rdma_read_wr_err": MetricName("rdma_read_request_errors", "RDMA READ requests that failed."),
    "rdma_read_resp_bytes": MetricName("rdma_read_response_bytes", "Bytes sent in answer to RDMA READ."),
    "rdma_write_bytes": MetricName("rdma_write_bytes", "Bytes sent with RDMA WRITE."),
    "rdma_write_wrs": MetricName("rdma_write_requests", "RDMA WRITE requests sent."),
    "rdma_write_wr_err": MetricName("rdma_write_request_errors", "RDMA WRITE requests that failed."),
    "rdma_write_recv_bytes": MetricName("rdma_write_received_bytes", "Bytes received by RDMA WRITE."),
    "retrans_bytes": MetricName("retransmitted_bytes", "Bytes sent again."),
    "retrans_pkts": MetricName("retransmitted_packets", "Packets sent again."),
    "retrans_timeout_events": MetricName("retransmission_timeouts", "Times nobody acknowledged in time."),
    "unresponsive_remote_events": MetricName("unresponsive_remotes", "Times the other side did not answer."),
    "impaired_remote_conn_events": MetricName("impaired_remotes", "Times a connection to another side was impaired."),
}
"""EFA (AWS), ports."""

EFA_COMMANDS = {
    "submitted_cmds": MetricName("submitted_commands", "Commands given to the device."),
    "completed_cmds": MetricName("completed_commands", "Commands that the device completed."),
    "cmds_err": MetricName("failed_commands", "Commands that the device completed with an error."),
    "no_completion_cmds": MetricName("lost_commands", "Commands that the device never completed."),
    "keep_alive_rcvd": MetricName("received_keep_alives", "Keep-alive events received from the device."),
    "alloc_pd_err": MetricName("protection_domain_errors", "Protection domains that could not be made."),
    "create_qp_err": MetricName("queue_pair_errors", "Queue pairs that could not be made."),
    "create_cq_err": MetricName("completion_queue_errors", "Completion queues that could not be made."),
    "reg_mr_err": MetricName("memory_region_errors", "Memory regions that could not be registered."),
    "alloc_ucontext_err": MetricName("user_context_errors", "User contexts that could not be made."),
    "create_ah_err": MetricName("address_handle_errors", "Address handles that could not be made."),
    "mmap_err": MetricName("memory_map_errors", "Memory maps that could not be made."),
}
"""EFA (AWS), the device; on old kernels they stand with those of the port."""

IRDMA = (
    {
        "cnpHandled": MLX5["rp_cnp_handled"],
        "cnpIgnored": MLX5["rp_cnp_ignored"],
        "cnpSent": MLX5["np_cnp_sent"],
        "RxECNMrkd": MLX5["np_ecn_marked_roce_packets"],
        "RNR received": QUEUES["rnr_nak_retry_err"],
        "RNR sent": MLX4["rq_num_rnr"],
        "Nak Sequence Error": QUEUES["packet_seq_err"],
        "Nak Sequence Error Implied": QUEUES["implied_nak_seq_err"],
        "Rcvd Out of order packets": QUEUES["out_of_sequence"],
        "RTO": QUEUES["local_ack_timeout_err"],
        "CRC errors": MLX5["rx_icrc_encapsulated"],
        "Rx atomics": QUEUES["rx_atomic_requests"],
        "Tx atomics": BNXT_RE["tx_atomic_req"],
        "RxUDP": MetricName("received_udp_packets", "UDP packets received (RoCE v2)."),
        "TxUDP": MetricName("transmitted_udp_packets", "UDP packets sent (RoCE v2)."),
        "rxVlanErrors": MetricName("vlan_receive_errors", "Packets received with a wrong VLAN."),
    }
    | {
        f"ip{version}{name}": MetricName(f"ipv{version}_{what}", f"IPv{version}: {words}.")
        for version in (4, 6)
        for name, what, words in (
            ("InDiscards", "receive_discards", "packets received and discarded"),
            ("InTruncatedPkts", "receive_truncated_packets", "packets received that were cut short"),
            ("InOctets", "received_bytes", "bytes received"),
            ("InPkts", "received_packets", "packets received"),
            ("InReasmRqd", "received_fragments", "fragments received"),
            ("InMcastOctets", "received_multicast_bytes", "multicast bytes received"),
            ("InMcastPkts", "received_multicast_packets", "multicast packets received"),
            ("OutNoRoutes", "transmit_no_routes", "packets not sent for lack of a route"),
            ("OutOctets", "transmitted_bytes", "bytes sent"),
            ("OutPkts", "transmitted_packets", "packets sent"),
            ("OutSegRqd", "transmitted_fragments", "packets that had to be sent in fragments"),
            ("OutMcastOctets", "transmitted_multicast_bytes", "multicast bytes sent"),
            ("OutMcastPkts", "transmitted_multicast_packets", "multicast packets sent"),
        )
    }
    | {
        f"{prefix}{name}": metric
        for prefix in ("", "iw")
        for name, metric in {
            "InRdmaReads": QUEUES["rx_read_requests"],
            "InRdmaWrites": QUEUES["rx_write_requests"],
            "InRdmaSends": BNXT_RE["rx_send_req"],
            "OutRdmaReads": BNXT_RE["tx_read_req"],
            "OutRdmaWrites": BNXT_RE["tx_write_req"],
            "OutRdmaSends": BNXT_RE["tx_send_req"],
        }.items()
    }
    | {
        f"{prefix}{name}": metric
        for prefix in ("", "tcp")
        for name, metric in {
            "RetransSegs": MetricName("tcp_retransmitted_segments", "TCP segments sent again (iWARP)."),
            "InOptErrors": MetricName("tcp_receive_option_errors", "TCP segments received with wrong options (iWARP)."),
            "InProtoErrors": MetricName("tcp_receive_protocol_errors", "TCP segments received with errors (iWARP)."),
            "InSegs": MetricName("tcp_received_segments", "TCP segments received (iWARP)."),
            "OutSegs": MetricName("tcp_transmitted_segments", "TCP segments sent (iWARP)."),
        }.items()
    }
)
"""irdma and i40iw (Intel), names of all kernels; the old ones carry ``iw`` and ``tcp`` in front."""

HFI1 = {
    "TxPkt": MetricName("opa_transmitted_packets", "Packets sent (Omni-Path)."),
    "RxPkt": MetricName("opa_received_packets", "Packets received (Omni-Path)."),
    "TxDropped": MetricName("opa_transmit_drops", "Packets dropped instead of being sent (Omni-Path)."),
    "TxHdrErr": MetricName("opa_transmit_header_errors", "Packets not sent for an error in the header (Omni-Path)."),
    "TxUnderrun": MetricName("opa_transmit_underruns", "Packets cut short because their data came late (Omni-Path)."),
    "TxUnVLErr": MetricName("opa_transmit_lane_errors", "Packets for a virtual lane that there is not (Omni-Path)."),
    "TxInvalLen": MetricName("opa_transmit_length_errors", "Packets not sent for a wrong length (Omni-Path)."),
    "TxWait": MetricName("opa_transmit_wait_ticks", "Ticks in which there was data to send but no credit (Omni-Path)."),
    "DRIVER_Tx_Errs": MetricName("opa_transmit_errors", "Send errors that the driver saw (Omni-Path)."),
    "DRIVER_Rcv_Errs": MetricName("opa_receive_errors", "Receive errors that the driver saw (Omni-Path)."),
    "DRIVER_HW_Errs": MetricName("opa_hardware_errors", "Hardware errors that the driver saw (Omni-Path)."),
    "DRIVER_RcvLen_Errs": MetricName("opa_receive_length_errors", "Packets received with a wrong length (Omni-Path)."),
    "DRIVER_CtxtsOpen": MetricName("opa_open_contexts", "Contexts open (Omni-Path).", "gauge"),
    "DRIVER_EgrBufFull": MetricName("opa_eager_buffer_overflows", "Times the eager buffer was full (Omni-Path)."),
    "DRIVER_EgrHdrFull": MetricName("opa_eager_header_overflows", "Times the eager header was full (Omni-Path)."),
}
"""hfi1 (Omni-Path): those whose unit is plain from their name; of some hundred, most are for the driver's makers."""

RXE = {
    "sent_pkts": MetricName("software_transmitted_packets", "Packets sent (Soft-RoCE)."),
    "rcvd_pkts": MetricName("software_received_packets", "Packets received (Soft-RoCE)."),
    "out_of_seq_request": QUEUES["out_of_sequence"],
    "rcvd_rnr_err": QUEUES["rnr_nak_retry_err"],
    "send_rnr_err": MLX4["rq_num_rnr"],
    "rcvd_seq_err": QUEUES["packet_seq_err"],
    "ack_deferred": MetricName("deferred_acknowledges", "Acknowledges that had to wait (Soft-RoCE)."),
    "retry_exceeded_err": QUEUES["req_transport_retries_exceeded"],
    "retry_rnr_exceeded_err": QUEUES["req_rnr_retries_exceeded"],
    "completer_retry_err": MetricName("completer_retries", "Times a completion had to be tried again (Soft-RoCE)."),
    "send_err": MetricName("software_transmit_errors", "Packets that could not be sent (Soft-RoCE)."),
    "link_downed": MetricName("software_link_downed", "Times the interface below went down (Soft-RoCE)."),
    "rdma_sends": BNXT_RE["tx_send_req"],
    "rdma_recvs": BNXT_RE["rx_send_req"],
}
"""rxe (Soft-RoCE)."""

HARDWARE = MLX5 | QUEUES | REPRESENTORS | MLX4 | BNXT_RE | TRAFFIC | EFA | EFA_COMMANDS | IRDMA | HFI1 | RXE
"""File name to metric, all drivers. Files that mean the same have one metric; a device has one driver."""
