"""Every figure that is told of streambench's speed, measured in one run: ``python -m benchmarks``."""
