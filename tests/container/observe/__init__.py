"""Tests of streambench.container.observe."""
