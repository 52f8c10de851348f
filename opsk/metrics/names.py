"""Defines the names of the metrics that more than one part of opsk uses.

The exporters add help texts and labels; `docs/reference/metrics.md` lists all metrics.
"""

from __future__ import annotations

COLLECTOR_MISSING = "opsk_collector_missing"
COLLECTOR_SUCCESS = "opsk_collector_success"

GPU_CLOCK_HERTZ = "opsk_gpu_clock_hertz"
GPU_CLOCK_MAX_HERTZ = "opsk_gpu_clock_max_hertz"
GPU_DRIVER_INFO = "opsk_gpu_driver_info"
GPU_ECC_VOLATILE_ERRORS_TOTAL = "opsk_gpu_ecc_volatile_errors_total"
GPU_ENERGY_JOULES_TOTAL = "opsk_gpu_energy_joules_total"
GPU_FABRIC_FAULT = "opsk_gpu_fabric_fault"
GPU_FABRIC_HEALTHY = "opsk_gpu_fabric_healthy"
GPU_FABRIC_INFO = "opsk_gpu_fabric_info"
GPU_FABRIC_JOINED = "opsk_gpu_fabric_joined"
GPU_FABRIC_STATE = "opsk_gpu_fabric_state"
GPU_INFO = "opsk_gpu_info"
GPU_MEMORY_SIZE_BYTES = "opsk_gpu_memory_size_bytes"
GPU_MEMORY_USED_BYTES = "opsk_gpu_memory_used_bytes"
GPU_NVLINKS = "opsk_gpu_nvlinks"
GPU_POWER_AVERAGE_WATTS = "opsk_gpu_power_average_watts"
GPU_POWER_DEFAULT_LIMIT_WATTS = "opsk_gpu_power_default_limit_watts"
GPU_POWER_LIMIT_WATTS = "opsk_gpu_power_limit_watts"
GPU_POWER_WATTS = "opsk_gpu_power_watts"
GPU_RECOVERY_ACTION = "opsk_gpu_recovery_action"
GPU_ROW_REMAP_FAILED = "opsk_gpu_row_remap_failed"
GPU_ROW_REMAP_PENDING = "opsk_gpu_row_remap_pending"
GPU_SM_ACTIVE_RATIO = "opsk_gpu_sm_active_ratio"
GPU_TEMPERATURE_CELSIUS = "opsk_gpu_temperature_celsius"
GPU_TEMPERATURE_LIMIT_CELSIUS = "opsk_gpu_temperature_limit_celsius"
GPU_TENSOR_ACTIVE_RATIO = "opsk_gpu_tensor_active_ratio"
GPU_THROTTLE_SECONDS_TOTAL = "opsk_gpu_throttle_seconds_total"
GPU_UP = "opsk_gpu_up"
GPU_UTILIZATION_RATIO = "opsk_gpu_utilization_ratio"
GPU_XID_ERRORS_TOTAL = "opsk_gpu_xid_errors_total"
GPU_XID_LAST_SEEN_TIMESTAMP_SECONDS = "opsk_gpu_xid_last_seen_timestamp_seconds"

HOST_CPU_SECONDS_TOTAL = "opsk_host_cpu_seconds_total"
HOST_CPUS = "opsk_host_cpus"
HOST_PRESSURE_SECONDS_TOTAL = "opsk_host_pressure_seconds_total"

INFINIBAND_PORT_CONGESTION_RATIO = "opsk_infiniband_port_congestion_ratio"
INFINIBAND_PORT_INFO = "opsk_infiniband_port_info"
INFINIBAND_PORT_LINK_DOWNED_TOTAL = "opsk_infiniband_port_link_downed_total"
INFINIBAND_PORT_RATE_BYTES_PER_SECOND = "opsk_infiniband_port_rate_bytes_per_second"
INFINIBAND_PORT_RECEIVED_BYTES_TOTAL = "opsk_infiniband_port_received_bytes_total"
INFINIBAND_PORT_STATE = "opsk_infiniband_port_state"
INFINIBAND_PORT_TRANSMITTED_BYTES_TOTAL = "opsk_infiniband_port_transmitted_bytes_total"

JOB_BAD_FILES = "opsk_job_bad_files"
JOB_GPU = "opsk_job_gpu"
JOB_INFO = "opsk_job_info"

KERNEL_LOG_READABLE = "opsk_kernel_log_readable"

NVSWITCH_SXID_ERRORS_TOTAL = "opsk_nvswitch_sxid_errors_total"
NVSWITCH_SXID_LAST_SEEN_TIMESTAMP_SECONDS = "opsk_nvswitch_sxid_last_seen_timestamp_seconds"

TRAINING_ITERATION = "opsk_training_iteration"
TRAINING_LAST_PROGRESS_TIMESTAMP_SECONDS = "opsk_training_last_progress_timestamp_seconds"
