"""Makes hard logs: real messages of many programs in multi-rank logs with labels, wraps, colours and scary warnings."""
