"""Finds the jobs that share links with a job."""
