"""`python -m regionquota`, and the `regionquota` script."""

import os
import sys

from regionquota.exit_status import INTERRUPTED

# gRPC's default makes children that are started while calls run crash before exec; to be said before its import.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")


def main() -> None:
    try:
        from regionquota.cli import app  # noqa: PLC0415 - takes a second, in which there may be a Ctrl-C

        app(prog_name="regionquota")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
