"""Requests that nobody means well, sent to a real proxy, and what every reply to one must be."""
