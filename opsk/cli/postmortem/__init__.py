"""``opsk postmortem``: explains why a job failed, with the evidence."""
