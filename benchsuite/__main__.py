"""`python -m benchsuite` is the command `benchsuite`."""

from benchsuite.cli import main

if __name__ == "__main__":
    main()
