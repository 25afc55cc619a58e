"""One gRPC channel to one etcd endpoint."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc

from regionquota.errors import ConfigError

LARGEST_MESSAGE: Final = 64 * 1024 * 1024
"""Received: a page of documents or a fragment of a watch. gRPC's own limit of 4 MiB is below what etcd may send."""

OPTIONS: Final = (
    ("grpc.max_receive_message_length", LARGEST_MESSAGE),
    # etcd answers calls pinged more often than every 5 s, or while idle, with "too many pings".
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 0),
    # Nothing repeats a write behind our back: what became of it must be read first.
    ("grpc.enable_retries", 0),
    # By default gRPC waits up to two minutes before it looks for a server that was away.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # A name with several addresses is used in turn, so that one sick member is not all there is.
    ("grpc.lb_policy_name", "round_robin"),
    # etcd is inside the network; a web proxy from the environment would get in between.
    ("grpc.enable_http_proxy", 0),
)


@dataclass(frozen=True, slots=True)
class Tls:
    """`ca` None trusts what the system trusts. `server_name` replaces the endpoint's host in the certificate check."""

    ca: bytes | None
    cert: bytes | None
    key: bytes | None
    server_name: str | None


def read_tls(ca_file: Path | None, cert_file: Path | None, key_file: Path | None, server_name: str | None) -> Tls:
    if (cert_file is None) != (key_file is None):
        raise ConfigError(f"etcd.cert_file and etcd.key_file go together, got {cert_file} and {key_file}")
    return Tls(_read("ca_file", ca_file), _read("cert_file", cert_file), _read("key_file", key_file), server_name)


def _read(name: str, path: Path | None) -> bytes | None:
    try:
        return None if path is None else path.read_bytes()
    except OSError as error:
        raise ConfigError(f"etcd.{name} cannot be read: {error}") from error


def open_channel(endpoint: str, tls: Tls) -> grpc.aio.Channel:
    """To be called in the loop that will use the channel. `endpoint` is `host:port`, IPv6 in brackets.

    etcd is spoken to in the clear only if the endpoint does not begin with https:// and no certificate is given.
    """
    scheme, _, address = endpoint.rpartition("://")
    target = f"dns:///{address}"
    if scheme != "https" and tls.ca is None and tls.cert is None:
        return grpc.aio.insecure_channel(target, options=OPTIONS)
    credentials = grpc.ssl_channel_credentials(tls.ca, tls.key, tls.cert)
    named = (("grpc.ssl_target_name_override", tls.server_name),) if tls.server_name is not None else ()
    return grpc.aio.secure_channel(target, credentials, options=(*OPTIONS, *named))
