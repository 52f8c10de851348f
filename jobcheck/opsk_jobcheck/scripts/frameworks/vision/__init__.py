"""Reads trainings of images by programs that many users run as they are published."""
