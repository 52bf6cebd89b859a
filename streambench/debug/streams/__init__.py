"""Streams by hand: messages are sent and read without a job, also those of a DataFrame."""
