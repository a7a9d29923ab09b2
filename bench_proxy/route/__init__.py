"""Route mode: one model of a collection, picked by its record, for a conversation with tools."""
