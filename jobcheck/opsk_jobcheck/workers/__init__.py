"""Analyses scripts in worker processes, and keeps the state of the cluster up to date for them."""
