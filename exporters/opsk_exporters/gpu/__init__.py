"""Exports the metrics of NVIDIA and AMD GPUs."""
