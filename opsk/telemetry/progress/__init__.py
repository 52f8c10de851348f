"""Parses the progress of training jobs from the lines that they print.

Each framework has a module; ``registry`` lists them. ``stream.ProgressReader`` turns the bytes of a log into steps and
events, ``tally.Tally`` computes medians of those, and ``follow.Follower`` reads a growing log. Only the standard
library is needed: the exporter reads logs with it too.
"""
