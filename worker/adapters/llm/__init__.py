"""LLM providers behind one port: the official SDKs over HTTP, without their own retries."""
