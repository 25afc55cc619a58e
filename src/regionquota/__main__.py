"""`python -m regionquota`, and the `regionquota` script."""

from regionquota.cli import app


def main() -> None:
    app(prog_name="regionquota")


if __name__ == "__main__":
    main()
