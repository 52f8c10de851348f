"""Queries Prometheus and puts its answers into readings."""
