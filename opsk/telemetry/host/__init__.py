"""Reads processors, memory, disks, control groups and services of a node."""
