"""Tests of streambench.container.job."""
