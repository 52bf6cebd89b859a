"""Tests of streambench.container.inputs.partitions."""
