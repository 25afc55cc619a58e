"""`python -m regionquota`, and the `regionquota` script."""

import errno
import os
import signal
import sys

from regionquota.exit_status import INTERRUPTED

# gRPC's default makes children that are started while calls run crash before exec; to be said before its import.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")


def main() -> None:
    _open_what_is_closed()
    _heed_interrupts()
    try:
        from regionquota.cli import app  # noqa: PLC0415 - takes a second, in which there may be a Ctrl-C

        app(prog_name="regionquota")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OSError as error:
        if error.filename is not None or error.errno not in (errno.ENOSPC, errno.EBADF):
            raise
        # So that what is still in the buffer fails no more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(f"error: cannot write to standard output: {error.strerror}")


def _open_what_is_closed() -> None:
    """Or uvloop aborts, whose own files take these places. Writing output fails as before."""
    for number, mode in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


def _heed_interrupts() -> None:
    """What a script starts in the background is told to ignore SIGINT: nothing could end it in order then, not even
    SIGTERM, which is turned into one.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)


if __name__ == "__main__":
    main()
