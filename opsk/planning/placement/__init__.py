"""Places the ranks of a job on nodes and GPUs."""
