"""Tests of streambench.system."""
