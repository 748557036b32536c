"""The OpenAI-compatible door: `/v1/models` and `/v1/chat/completions`, where a model is an agent of the key's owner."""
