"""Answers the submit hooks: a warm process with workers, caches, a policy and an audit log."""
