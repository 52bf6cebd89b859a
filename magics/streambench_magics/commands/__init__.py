"""The commands of ``%stream``: their arguments, and one module for each group of them."""
