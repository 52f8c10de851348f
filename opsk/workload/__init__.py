"""Defines the model that is trained and the plan that distributes it over GPUs, and fills in framework defaults."""
