"""`python -m bench_proxy`: the command line."""

from bench_proxy.cli import main

main(prog_name="bench-proxy")
