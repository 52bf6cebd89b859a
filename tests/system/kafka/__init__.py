"""Tests of streambench.container.kafka."""
