"""Compares network designs: the parts, the price and the power of a network, and the step times of models on it."""
