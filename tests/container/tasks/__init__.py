"""Tests of streambench.container.tasks."""
