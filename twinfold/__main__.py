"""`python -m twinfold`."""

from twinfold.cli import main

if __name__ == "__main__":
    main()
