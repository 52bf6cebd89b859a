"""Recordings: what a container read and did, in one file that can be opened and run again."""

from streambench.recording.recording import Recording

__all__ = ["Recording"]
