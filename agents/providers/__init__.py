"""Chat models: the protocol, the OpenAI-compatible provider, its assembler and dialects."""
