"""What is trained, and how it is cut over GPUs: values only, no files, no framework knowledge."""
