"""Mistakes that are told where they are made: before any server is asked, by the name of the argument."""

from regionquota.client.answers import Reservation


def check_reservation(given: object) -> None:
    """Raises `TypeError`."""
    if isinstance(given, Reservation):
        return
    if isinstance(getattr(given, "reservation", None), Reservation):
        remedy = "give its .reservation"
    elif isinstance(given, str):
        remedy = "an id alone does not do, find(tenant_id, request_id) answers the Reservation"
    else:
        remedy = "give what reserve has answered, or find(tenant_id, request_id)"
    raise TypeError(f"reservation must be a Reservation, got {_shown(given)}: {remedy}")


def check_text(name: str, given: object) -> None:
    """Raises `TypeError`."""
    if not isinstance(given, str):
        raise TypeError(f"{name} must be a str, got {_shown(given)}")


def check_integer(name: str, given: object, least: int) -> None:
    """Raises `TypeError` or `ValueError`."""
    if not isinstance(given, int) or isinstance(given, bool):
        raise TypeError(f"{name} must be an int, got {_shown(given)}")
    if given < least:
        raise ValueError(f"{name} must be {least} or more, got {given}")


def _shown(given: object) -> str:
    return "None" if given is None else f"{type(given).__name__} {given!r}"[:100]
