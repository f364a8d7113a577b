"""Download data sets: `python -m probstep.bench.data mnist cifar10 --data-dir data`."""

import argparse
import sys

from .catalog import CATALOG, get_files
from .download import download_files


def main(arguments: list[str] | None = None) -> None:
    """Download each data set named on the command line."""
    parser = argparse.ArgumentParser(prog="python -m probstep.bench.data", description=__doc__)
    parser.add_argument("names", nargs="+", help=", ".join(CATALOG), metavar="NAME")
    parser.add_argument("--data-dir", help="default: PROBSTEP_DATA, else ~/.cache/probstep")
    options = parser.parse_args(arguments)
    try:
        for name in options.names:
            folder = download_files(get_files(name), options.data_dir)
            sys.stdout.write(f"{name}: {folder}\n")
    except (OSError, ValueError) as error:
        parser.exit(1, f"{error}\n")


if __name__ == "__main__":
    main()
