"""Holds what share of their peak GPUs, links and kernels reach, as fitted and as published."""
