"""Runs Prometheus' own node_exporter on a sysfs tree, and knows what its InfiniBand metrics are called here."""

from __future__ import annotations

import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = ("prometheus-node-exporter", "node_exporter")

PORT = "opsk_infiniband_port_"
PORT_NAMES = {
    "state_id": "state",
    "physical_state_id": "physical_state",
    "rate_bytes_per_second": "rate_bytes_per_second",
    "legacy_multicast_packets_received_total": "extended_received_multicast_packets_total",
    "legacy_multicast_packets_transmitted_total": "extended_transmitted_multicast_packets_total",
    "legacy_data_received_bytes_total": "extended_received_bytes_total",
    "legacy_packets_received_total": "extended_received_packets_total",
    "legacy_unicast_packets_received_total": "extended_received_unicast_packets_total",
    "legacy_unicast_packets_transmitted_total": "extended_transmitted_unicast_packets_total",
    "legacy_data_transmitted_bytes_total": "extended_transmitted_bytes_total",
    "legacy_packets_transmitted_total": "extended_transmitted_packets_total",
    "excessive_buffer_overrun_errors_total": "excessive_buffer_overrun_errors_total",
    "link_downed_total": "link_downed_total",
    "link_error_recovery_total": "link_error_recoveries_total",
    "local_link_integrity_errors_total": "local_link_integrity_errors_total",
    "multicast_packets_received_total": "received_multicast_packets_total",
    "multicast_packets_transmitted_total": "transmitted_multicast_packets_total",
    "port_constraint_errors_received_total": "receive_constraint_errors_total",
    "port_constraint_errors_transmitted_total": "transmit_constraint_errors_total",
    "port_data_received_bytes_total": "received_bytes_total",
    "port_data_transmitted_bytes_total": "transmitted_bytes_total",
    "port_discards_received_total": "receive_discards_total",
    "port_discards_transmitted_total": "transmit_discards_total",
    "port_errors_received_total": "receive_errors_total",
    "port_packets_received_total": "received_packets_total",
    "port_packets_transmitted_total": "transmitted_packets_total",
    "port_transmit_wait_total": "transmit_wait_ticks_total",
    "unicast_packets_received_total": "received_unicast_packets_total",
    "unicast_packets_transmitted_total": "transmitted_unicast_packets_total",
    "port_receive_remote_physical_errors_total": "receive_remote_physical_errors_total",
    "port_receive_switch_relay_errors_total": "receive_switch_relay_errors_total",
    "symbol_error_total": "symbol_errors_total",
    "vl15_dropped_total": "vl15_dropped_packets_total",
    # From release 1.10 on:
    "duplicate_requests_packets_total": "duplicate_requests_total",
    "implied_nak_seq_errors_total": "implied_nak_sequence_errors_total",
    "local_ack_timeout_errors_total": "local_ack_timeouts_total",
    "np_cnp_packets_sent_total": "cnp_sent_packets_total",
    "np_ecn_marked_roce_packets_received_total": "ecn_marked_received_packets_total",
    "out_of_buffer_drops_total": "out_of_buffer_drops_total",
    "out_of_sequence_packets_received_total": "out_of_sequence_packets_total",
    "packet_sequence_errors_total": "packet_sequence_errors_total",
    "req_cqes_errors_total": "requester_cqe_errors_total",
    "req_cqes_flush_errors_total": "requester_cqe_flush_errors_total",
    "req_remote_access_errors_total": "requester_remote_access_errors_total",
    "req_remote_invalid_request_errors_total": "requester_remote_invalid_request_errors_total",
    "resp_cqes_errors_total": "responder_cqe_errors_total",
    "resp_cqes_flush_errors_total": "responder_cqe_flush_errors_total",
    "resp_local_length_errors_total": "responder_local_length_errors_total",
    "resp_remote_access_errors_total": "responder_remote_access_errors_total",
    "rnr_nak_retry_packets_received_total": "rnr_nak_received_packets_total",
    "roce_adp_retransmits_total": "roce_adaptive_retransmissions_total",
    "roce_adp_retransmits_timeout_total": "roce_adaptive_retransmission_timeouts_total",
    "roce_slow_restart_used_total": "roce_slow_restarts_used_total",
    "roce_slow_restart_cnps_total": "roce_slow_restart_cnp_packets_total",
    "roce_slow_restart_total": "roce_slow_restarts_total",
    "rp_cnp_packets_handled_total": "cnp_handled_packets_total",
    "rp_cnp_ignored_packets_received_total": "cnp_ignored_packets_total",
    "rx_atomic_requests_total": "received_atomic_requests_total",
    "rx_dct_connect_requests_total": "received_dct_connects_total",
    "rx_read_requests_total": "received_read_requests_total",
    "rx_write_requests_total": "received_write_requests_total",
    "rx_icrc_encapsulated_errors_total": "roce_icrc_errors_total",
}
"""Metric of node_exporter, without ``node_infiniband_``, to what follows `PORT` in ours: the values are the same.

``info`` has its words in `opsk_infiniband_device_info`; ``lifespan_seconds`` (newer releases) divides by 1000
in whole numbers and says 0 for less than a second, where ours says how long.
"""
OTHER_NAMES = ("info", "lifespan_seconds")


def node_exporter_program() -> str | None:
    """Return the path of node_exporter, if this machine has one."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


@contextmanager
def node_exporter(program: str, sysfs: Path) -> Iterator[tuple[str, int]]:
    """Run node_exporter with its InfiniBand collector alone on loopback; give its address and its process id."""
    command = [program, f"--path.sysfs={sysfs}", "--collector.disable-defaults", "--collector.infiniband"]
    command += ["--web.listen-address=127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                if found := re.search(r"address=(127\.0\.0\.1:[1-9]\d*)", line):
                    yield f"http://{found[1]}/metrics", process.pid
                    return
            raise AssertionError("node_exporter did not start")
        finally:
            process.terminate()


def fetch(address: str) -> str:
    """Return one scrape."""
    with urllib.request.urlopen(address, timeout=30) as answer:
        return str(answer.read().decode("utf-8"))
