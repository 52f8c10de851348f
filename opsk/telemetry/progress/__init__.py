"""How far and how fast is a training job, by the lines that it prints? One framework a file; ``registry`` has them all.

``stream.ProgressReader`` turns the bytes of a log into steps and events, ``tally.Tally`` those into medians, and
``follow.Follower`` reads a log that still grows. Nothing here needs more than the standard library: the exporter reads
logs with it too.
"""
