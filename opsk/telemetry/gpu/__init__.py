"""Reads GPUs through NVML, nvidia-smi and sysfs."""
