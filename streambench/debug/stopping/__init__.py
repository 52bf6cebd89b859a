"""Stopping: moments, conditions, breakpoints and interrupts."""
