"""Accounts at servers as people meet them: the page of connections, the way to a sign-in and back, and news of it."""
