"""Reads NVIDIA GPUs through NVML."""
