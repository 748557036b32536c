"""A notes server with accounts of its own, so that signing in by OAuth can be seen without an account anywhere else."""
