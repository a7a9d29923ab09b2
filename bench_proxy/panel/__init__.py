"""One request to several models: who sits, how the seats run, what the caller reads."""
