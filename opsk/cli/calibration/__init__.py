"""Implements `opsk calibrate` and `opsk validate`."""
