"""Every figure that is given for streambench's speed, measured in one run: ``python -m benchmarks``."""
