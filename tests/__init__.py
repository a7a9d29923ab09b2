"""The tests of bench-proxy: run them from the root of the repository, so that `tests` is a package."""
