"""Implements ``opsk throughput``."""
