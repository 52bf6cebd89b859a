"""Crash simulation: a restart from the last commit, compared with what was done."""
