"""Finds what a job can do after a part of the machine failed, and what each option costs."""
