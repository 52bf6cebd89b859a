"""Tests of streambench.container.outputs."""
