"""The border to LiteLLM, and a real LiteLLM proxy with the extension in it."""
