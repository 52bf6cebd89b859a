"""``python -m streambench``: the command line."""

from streambench.cli.entry import main

if __name__ == "__main__":
    main()
