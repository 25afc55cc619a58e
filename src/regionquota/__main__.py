"""`python -m regionquota`, and the `regionquota` script."""

import os

# gRPC's default makes children that are started while calls run crash before exec; to be said before its import.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from regionquota.cli import app


def main() -> None:
    app(prog_name="regionquota")


if __name__ == "__main__":
    main()
