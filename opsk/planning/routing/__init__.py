"""Computes which links the traffic of a job uses."""
