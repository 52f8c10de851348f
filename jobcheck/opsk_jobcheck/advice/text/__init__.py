"""Renders the parts of the advice as labelled lines, each with a weight."""
