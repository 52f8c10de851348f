"""Counts parameters, FLOP and shares of a model that a plan splits."""
