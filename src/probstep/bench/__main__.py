"""`python -m probstep.bench` is the command `probstep`."""

from probstep.bench.cli import app

if __name__ == "__main__":
    app()
