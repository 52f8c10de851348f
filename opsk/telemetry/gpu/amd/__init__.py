"""Reads AMD GPUs through sysfs."""
