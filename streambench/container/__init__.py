"""The container: the event loop and what it drives."""
