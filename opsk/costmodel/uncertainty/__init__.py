"""Computes the ranges of predictions and the chance that a job fits."""
