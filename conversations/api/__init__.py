"""The HTTP API under `/api/v1/`: plain asynchronous views behind one door; `docs/reference/http-api.md` describes it."""
