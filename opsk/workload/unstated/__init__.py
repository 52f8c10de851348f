"""Sizes that neither scripts nor programs state: what they usually are, and what they rarely exceed."""
