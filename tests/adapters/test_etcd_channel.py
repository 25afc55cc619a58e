"""How etcd is reached: addresses and certificates."""

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from regionquota.adapters.etcd import EtcdClient
from regionquota.core.quota import QuotaKey
from regionquota.embedded import Child, free_ports
from regionquota.embedded.install import etcd_program
from regionquota.errors import ConfigError, EtcdUnavailable

CPU = QuotaKey("acme", "vcpu")


@dataclass
class Certificates:
    ca: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def issue(directory: Path, name: str, ca: Path, usage: str) -> tuple[Path, Path]:
    """A certificate for etcd.internal, which no name server knows."""
    cert, key = directory / f"{name}.pem", directory / f"{name}.key"
    openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"),
        *("-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:etcd.internal"),
        *("-addext", f"extendedKeyUsage={usage}"),
        *("-CA", str(ca), "-CAkey", str(ca.with_suffix(".key")), "-out", str(cert), "-keyout", str(key)),
    )
    return cert, key


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl on PATH")
    directory = tmp_path_factory.mktemp("certificates")
    ca = directory / "ca.pem"
    openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"),
        *("-subj", "/CN=test authority", "-out", str(ca), "-keyout", str(ca.with_suffix(".key"))),
    )
    server = issue(directory, "server", ca, "serverAuth,clientAuth")
    client = issue(directory, "client", ca, "clientAuth")
    return Certificates(ca, *server, *client)


async def run_etcd(directory: Path, *client_urls: str, options: tuple[str, ...] = ()) -> Child:
    """Returns at once: whoever asks must be ready to ask again."""
    (peer_port,) = free_ports(1)
    peer, clients = f"http://127.0.0.1:{peer_port}", ",".join(client_urls)
    child = Child(
        "etcd",
        [
            *(str(etcd_program()), "--data-dir", str(directory / "etcd"), "--log-level", "warn"),
            *("--listen-client-urls", clients, "--advertise-client-urls", clients, "--listen-peer-urls", peer),
            *("--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"),
            *options,
        ],
        output=directory / "etcd.log",
    )
    await child.start()
    return child


async def answers(client: EtcdClient, within_s: float = 10) -> bool:
    async with client:
        try:
            async with asyncio.timeout(within_s):
                while True:
                    try:
                        return (0, None) == await client.allocations.read(CPU)
                    except EtcdUnavailable:
                        await asyncio.sleep(0.05)
        except TimeoutError:
            return False


@pytest.fixture(scope="module")
async def port(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[int]:
    """Of an etcd that listens to IPv4 and IPv6, in the clear."""
    (port,) = free_ports(1)
    urls = (f"http://127.0.0.1:{port}", f"http://[::1]:{port}")
    child = await run_etcd(tmp_path_factory.mktemp("clear"), *urls)
    yield port
    await child.stop(5)


@pytest.mark.parametrize("address", ["127.0.0.1:{}", "localhost:{}", "[::1]:{}", "http://127.0.0.1:{}"])
async def test_an_endpoint_may_be_an_address_or_a_name(port: int, address: str) -> None:
    assert await answers(EtcdClient.connect([address.format(port)]))


async def test_a_web_proxy_in_the_environment_is_passed_by(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    assert await answers(EtcdClient.connect([f"127.0.0.1:{port}"]))


async def test_subprocesses_start_while_calls_are_under_way(port: int) -> None:
    async def read_for_ever(client: EtcdClient) -> None:
        while True:
            await client.allocations.list()

    async with EtcdClient.connect([f"127.0.0.1:{port}"], timeout_s=10) as client:
        readers = [asyncio.create_task(read_for_ever(client)) for _ in range(4)]
        codes = []
        for _ in range(50):
            child = Child("true", ["true"], output=lambda _: None)
            await child.start()
            codes.append(await child.wait())
        for reader in readers:
            reader.cancel()
        await asyncio.wait(readers)
    assert [0] * 50 == codes


@pytest.fixture(scope="module")
async def tls_port(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> AsyncIterator[int]:
    """Of an etcd that speaks only to clients with a certificate."""
    (port,) = free_ports(1)
    options = (
        *("--cert-file", str(certificates.server), "--key-file", str(certificates.server_key)),
        *("--trusted-ca-file", str(certificates.ca), "--client-cert-auth"),
    )
    child = await run_etcd(tmp_path_factory.mktemp("tls"), f"https://127.0.0.1:{port}", options=options)
    yield port
    await child.stop(5)


async def test_etcd_and_client_prove_who_they_are(tls_port: int, certificates: Certificates) -> None:
    client = EtcdClient.connect(
        [f"127.0.0.1:{tls_port}"],
        ca_file=certificates.ca,
        cert_file=certificates.client,
        key_file=certificates.client_key,
        server_name="etcd.internal",
    )
    assert await answers(client)


async def test_a_server_with_another_name_is_not_spoken_to(tls_port: int, certificates: Certificates) -> None:
    client = EtcdClient.connect(
        [f"127.0.0.1:{tls_port}"],
        ca_file=certificates.ca,
        cert_file=certificates.client,
        key_file=certificates.client_key,
    )
    assert not await answers(client, within_s=1)


async def test_a_server_that_nobody_known_vouches_for_is_not_spoken_to(
    tls_port: int, certificates: Certificates
) -> None:
    client = EtcdClient.connect(
        [f"https://127.0.0.1:{tls_port}"],
        cert_file=certificates.client,
        key_file=certificates.client_key,
        server_name="etcd.internal",
    )
    assert not await answers(client, within_s=1)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"etcd\.ca_file cannot be read: .*missing\.pem"):
        EtcdClient.connect(["127.0.0.1:2379"], ca_file=tmp_path / "missing.pem")


def test_a_certificate_needs_its_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"etcd\.cert_file and etcd\.key_file go together"):
        EtcdClient.connect(["127.0.0.1:2379"], cert_file=tmp_path / "client.pem")
