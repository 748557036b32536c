"""What a chat costs: figures of the running product, beside the same work done directly (`python -m benchmarks`)."""
