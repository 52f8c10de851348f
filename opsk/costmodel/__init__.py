"""Predicts the memory, time and energy of plans with one vectorised model: a table of plans in, a table out."""
