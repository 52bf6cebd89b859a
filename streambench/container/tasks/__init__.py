"""Task instances and the handles that user code gets."""
