"""Collects the evidence of a failed job: on its nodes as soon as it ends, from all sources when a report is written.

Nothing is imported here: collectors run on every node next to jobs, and need none of the modules that read evidence.
"""
