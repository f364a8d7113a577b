"""The command `probstep`, also as `python -m probstep.bench`."""


def main() -> None:
    """Run the command line, or say what to install for it."""
    try:
        from probstep.bench.cli import app
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("probstep"):
            raise
        text = f"The command `probstep` needs {error.name}. Run: pip install 'probstep[bench]'"
        raise SystemExit(text) from None
    app()


if __name__ == "__main__":
    main()
