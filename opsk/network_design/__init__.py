"""What would another network do? Parts, price and power of a network, and the steps of models on it."""
