"""Computes the share of a job's time that it trains, and the value of spare nodes."""
