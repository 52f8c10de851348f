"""Implements `opsk throughput`."""
