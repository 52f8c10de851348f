"""Simulates the devices of a node: GPUs, HCAs, sensors and jobs that use them."""
