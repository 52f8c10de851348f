"""Describes GPUs, NICs, nodes and clusters; numbers come from ``catalog/*.toml``, each with its source."""
