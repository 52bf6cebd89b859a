"""Tests of streambench.container.net."""
