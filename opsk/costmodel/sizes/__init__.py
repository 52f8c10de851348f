"""Computes parameters, FLOP and the shares of a model that a plan splits."""
