"""Finds which jobs run on a node, on which GPUs, and where they write."""
