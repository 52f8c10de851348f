"""Learns a site from its store and its measured nodes, and publishes what was learned."""
