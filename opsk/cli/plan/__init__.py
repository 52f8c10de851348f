"""The parts of ``opsk plan``: what it asks, how it searches, and how the answer is shown."""
