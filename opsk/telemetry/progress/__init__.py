"""Parses the progress of training jobs from the lines that they print.

``frameworks.formats`` lists the lines of most frameworks as a table; those with content of their own have a module, and
``frameworks.registry`` lists all. ``stream.ProgressReader`` turns the bytes of a log into steps and events,
``runs.Tally`` computes medians of those, and ``follow.Follower`` reads a growing log. Only the standard library is
needed: the exporter reads logs with it too.
"""
