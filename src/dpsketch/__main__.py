"""``python -m dpsketch`` is the command line."""

from dpsketch.cli import main

if __name__ == "__main__":
    main()
