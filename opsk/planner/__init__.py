"""Where should ranks go, and which plan is best? Pure functions over topology, workload and the cost model."""
