"""`python -m worker` is `attribution-worker`."""

from worker.cli import main

if __name__ == "__main__":
    main()
