"""The session: interactive control of a container, one ability per module."""
