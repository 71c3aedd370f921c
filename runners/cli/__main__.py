"""`python -m runners.cli`."""

from runners.cli.main import main

if __name__ == "__main__":
    main()
