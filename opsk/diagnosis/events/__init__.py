"""Detects hardware failures in observations, and states what to do about each."""
