"""Defines the rules that map series of node_exporter (1.5 to 1.10) to those of opsk."""

from __future__ import annotations

from deploy.prometheus.rule import Rule

_NODE = '"node", "$1", "instance", "(.+):[0-9]+"'
HOST = {
    "opsk_host_load1": "node_load1",
    "opsk_host_load5": "node_load5",
    "opsk_host_load15": "node_load15",
    "opsk_host_memory_size_bytes": "node_memory_MemTotal_bytes",
    "opsk_host_memory_available_bytes": "node_memory_MemAvailable_bytes",
    "opsk_host_memory_free_bytes": "node_memory_MemFree_bytes",
    "opsk_host_memory_buffers_bytes": "node_memory_Buffers_bytes",
    "opsk_host_memory_cached_bytes": "node_memory_Cached_bytes",
    "opsk_host_swap_size_bytes": "node_memory_SwapTotal_bytes",
    "opsk_host_swap_free_bytes": "node_memory_SwapFree_bytes",
    "opsk_host_boot_time_seconds": "node_boot_time_seconds",
    "opsk_host_oom_kills_total": "node_vmstat_oom_kill",
}
HOST_DEVICES = {
    "opsk_host_network_received_bytes_total": "node_network_receive_bytes_total",
    "opsk_host_network_transmitted_bytes_total": "node_network_transmit_bytes_total",
    "opsk_host_network_receive_errors_total": "node_network_receive_errs_total",
    "opsk_host_network_transmit_errors_total": "node_network_transmit_errs_total",
    "opsk_host_network_receive_drops_total": "node_network_receive_drop_total",
    "opsk_host_network_transmit_drops_total": "node_network_transmit_drop_total",
    "opsk_host_disk_read_bytes_total": "node_disk_read_bytes_total",
    "opsk_host_disk_written_bytes_total": "node_disk_written_bytes_total",
    "opsk_host_disk_busy_seconds_total": "node_disk_io_time_seconds_total",
}
PRESSURE = {
    ("cpu", "some"): "node_pressure_cpu_waiting_seconds_total",
    ("memory", "some"): "node_pressure_memory_waiting_seconds_total",
    ("memory", "full"): "node_pressure_memory_stalled_seconds_total",
    ("io", "some"): "node_pressure_io_waiting_seconds_total",
    ("io", "full"): "node_pressure_io_stalled_seconds_total",
}
PORTS = {
    "state": "state_id",
    "physical_state": "physical_state_id",
    "rate_bytes_per_second": "rate_bytes_per_second",
    "received_bytes_total": "port_data_received_bytes_total",
    "transmitted_bytes_total": "port_data_transmitted_bytes_total",
    "received_packets_total": "port_packets_received_total",
    "transmitted_packets_total": "port_packets_transmitted_total",
    "transmit_wait_ticks_total": "port_transmit_wait_total",
    "symbol_errors_total": "symbol_error_total",
    "link_error_recoveries_total": "link_error_recovery_total",
    "link_downed_total": "link_downed_total",
    "receive_errors_total": "port_errors_received_total",
    "receive_remote_physical_errors_total": "port_receive_remote_physical_errors_total",
    "receive_switch_relay_errors_total": "port_receive_switch_relay_errors_total",
    "receive_constraint_errors_total": "port_constraint_errors_received_total",
    "transmit_constraint_errors_total": "port_constraint_errors_transmitted_total",
    "receive_discards_total": "port_discards_received_total",
    "transmit_discards_total": "port_discards_transmitted_total",
    "local_link_integrity_errors_total": "local_link_integrity_errors_total",
    "excessive_buffer_overrun_errors_total": "excessive_buffer_overrun_errors_total",
    "vl15_dropped_packets_total": "vl15_dropped_total",
    "out_of_sequence_packets_total": "out_of_sequence_packets_received_total",
    "packet_sequence_errors_total": "packet_sequence_errors_total",
    "local_ack_timeouts_total": "local_ack_timeout_errors_total",
    "rnr_nak_received_packets_total": "rnr_nak_retry_packets_received_total",
    "cnp_sent_packets_total": "np_cnp_packets_sent_total",
    "cnp_handled_packets_total": "rp_cnp_packets_handled_total",
    "cnp_ignored_packets_total": "rp_cnp_ignored_packets_received_total",
    "ecn_marked_received_packets_total": "np_ecn_marked_roce_packets_received_total",
}
"""What follows ``opsk_infiniband_port_``, and what follows ``node_infiniband_``: the values are the same."""


def node_rules() -> list[Rule]:
    """Return the rules for node_exporter."""
    own = 'unless on (cluster, node) opsk_host_cpus{instance!=""}'
    rules = [
        Rule(record=ours, expr=f"max by (cluster, node) (label_replace({theirs}, {_NODE})) {own}")
        for ours, theirs in HOST.items()
    ]
    rules += [
        Rule(record=ours, expr=f"max by (cluster, node, device) (label_replace({theirs}, {_NODE})) {own}")
        for ours, theirs in HOST_DEVICES.items()
    ]
    rules += [
        Rule(
            record="opsk_host_pressure_seconds_total",
            expr=f"max by (cluster, node) (label_replace({theirs}, {_NODE})) {own}",
            labels={"resource": resource, "share": share},
        )
        for (resource, share), theirs in PRESSURE.items()
    ]
    cpu = f"label_replace(node_cpu_seconds_total, {_NODE})"
    rules.append(Rule(record="opsk_host_cpu_seconds_total", expr=f"sum by (cluster, node, mode) ({cpu}) {own}"))
    idle = f'label_replace(node_cpu_seconds_total{{mode="idle"}}, {_NODE})'
    rules.append(Rule(record="opsk_host_cpus", expr=f"count by (cluster, node) ({idle}) {own}"))
    port = "(cluster, node, device, port)"
    own = f'unless on {port} opsk_infiniband_port_info{{instance!=""}}'
    rules += [
        Rule(
            record=f"opsk_infiniband_port_{ours}",
            expr=f"max by {port} (label_replace(node_infiniband_{theirs}, {_NODE})) {own}",
        )
        for ours, theirs in PORTS.items()
    ]
    wait = f"label_replace(rate(node_infiniband_port_transmit_wait_total[5m]), {_NODE}) * 4"
    sent = f"label_replace(rate(node_infiniband_port_data_transmitted_bytes_total[5m]), {_NODE})"
    rules.append(
        Rule(
            record="opsk_infiniband_port_congestion_ratio",
            expr=f"max by {port} ({wait}) / (max by {port} ({wait}) + max by {port} ({sent}) > 0) {own}",
        )
    )
    rapl = (("node_rapl_package_joules_total", "package"), ("node_rapl_dram_joules_total", "dram"))
    own = 'unless on (cluster, node) opsk_power_energy_joules_total{instance!=""}'
    for theirs, part in rapl:
        sensor = f'label_replace(label_replace({theirs}, {_NODE}), "sensor", "{part}-$1", "index", "(.+)")'
        rules.append(
            Rule(
                record="opsk_power_energy_joules_total",
                expr=f"max by (cluster, node, sensor) ({sensor}) {own}",
                labels={"source": "rapl", "part": part},
            )
        )
    return rules
