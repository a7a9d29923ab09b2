"""HTTP: the gate in front of LiteLLM's routes, replies in the client's format, and the routes under /bench."""
