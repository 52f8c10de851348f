"""Shows how good predictions have been at this site: reads the store, compares, and builds the answer."""
