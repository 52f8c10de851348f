"""Builds views of a fabric, the rail × node matrix and the tree of tiers, as values that any medium can draw."""
