"""Measures the cost model: speed, accuracy, and fits to published kernel benchmarks."""
