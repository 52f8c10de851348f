"""Computes which links a job shares with other jobs, and by how much that slows each of them."""
