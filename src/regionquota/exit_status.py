"""Imports nothing of ours, so that it is there before anything else can be interrupted."""

from typing import Final

INTERRUPTED: Final = 130
"""After Ctrl-C, as shells have it: 128 and the number of the signal."""
