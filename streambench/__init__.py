"""streambench: an interactive stream workbench. Write a stream task, step it message by message, deploy it on Spark."""

__version__ = "0.1.0"
