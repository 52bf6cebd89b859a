"""Comparisons of two tasks or configurations over the same messages."""
