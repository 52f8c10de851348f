"""Compares what was predicted of jobs before they ran with what was measured of them, and sums it up."""
