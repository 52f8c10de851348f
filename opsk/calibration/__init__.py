"""Measures how far the cost model is from measured runs, and fits the parameters that bring it closest."""
