"""A simulated site whose GPUs, links and software are not as the cost model expects."""
