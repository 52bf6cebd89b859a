"""The view of containers on a whole terminal."""
