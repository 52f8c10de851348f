"""Finds mistakes of a job that need no prediction: each check is a function from the job's facts to a finding."""
