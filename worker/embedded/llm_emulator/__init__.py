"""A server on 127.0.0.1 that behaves like OpenAI's and Anthropic's APIs, limits, faults and bill included.

`emulator.LlmEmulator` runs it inside a test, `attribution-worker llm-emulator` as a process of its own.
"""
