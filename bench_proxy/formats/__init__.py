"""The API formats: how each reads a request and writes a panel, its stream, its errors."""
