"""Finds failures, lost time and lost goodput in what was observed of jobs and nodes."""
