"""Records what the advisor did: the audit log, and the store through a queue."""
