"""Exports the metrics of a node's processors, memory, disks and network."""
