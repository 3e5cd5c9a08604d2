"""The benchmarks, one file a subject; `scripts/bench.py` runs them."""
