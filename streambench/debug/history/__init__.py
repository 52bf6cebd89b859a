"""The history of a session: everything needed to go back, in blocks of messages with undo records."""
