"""Linking accounts by OAuth, against a real authorization server."""
