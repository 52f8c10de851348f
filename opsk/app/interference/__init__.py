"""Finds who shares links with a job."""
