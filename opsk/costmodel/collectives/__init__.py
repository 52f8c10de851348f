"""Computes the time of collectives by algorithm, on one or several levels, on several kinds of networks."""
