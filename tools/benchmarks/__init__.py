"""What tools/bench.py measures, one module per command."""
