"""Exports the metrics of RDMA ports."""
