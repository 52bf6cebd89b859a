"""The past of a session: replicas of its container that repeat what the history recorded."""
