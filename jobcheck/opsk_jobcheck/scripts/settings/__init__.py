"""Reads flags and configuration files, and collects the values found in them."""
