"""Measures what the GPUs, hosts and links of a kind of node reach, and compares it with the cost model."""
