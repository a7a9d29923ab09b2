"""Everything that touches LiteLLM. Its facts cross this border once, into our types."""
