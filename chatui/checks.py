"""Numbered start-up checks: a misconfiguration is an error that says what to set."""
