"""Completion and help in cells."""
