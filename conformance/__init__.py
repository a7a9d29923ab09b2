"""Who translates a request into chat completions, decided by trying: `make conformance` writes `docs/formats.md`."""
