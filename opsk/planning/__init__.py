"""Searches plans and placements, remaps jobs, and predicts interference."""
