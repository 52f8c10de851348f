"""Reads counters of InfiniBand ports and switches."""
