"""`python -m rebalancer`."""

from rebalancer.cli.main import main

if __name__ == "__main__":
    main()
