"""The HTTP API under `/api/v1/`, plain asynchronous views behind one door: see `docs/reference/http-api.md`."""
