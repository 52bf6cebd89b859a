"""Recordings opened as sessions: replays, tests made of them, the fewest messages that fail."""
