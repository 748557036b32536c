"""Placeholder until the guard is built."""
