"""Probes, metrics, and the document that describes the calls."""

import re
from collections.abc import Iterator
from typing import Any, cast

import pytest
from tests.http.harness import Api, until

from regionquota.http.ledger_api import LedgerApi
from regionquota.http.quota_api import QuotaApi
from regionquota.http.reconcile_api import ReconcileApi
from regionquota.http.region_api import RegionApi
from regionquota.http.routes import reconciliation_routes, routes

ANY = type("Any", (), {"__getattr__": lambda _self, name: name})()
ROUTES = (
    *routes(cast("RegionApi", ANY), cast("QuotaApi", ANY), cast("LedgerApi", ANY)),
    *reconciliation_routes(cast("ReconcileApi", ANY)),
)
METRICS = {
    "regionquota_calls_total",
    "regionquota_call_seconds_bucket",
    "regionquota_batch_size_bucket",
    "regionquota_claims_total",
    "regionquota_sweeper_lag_seconds",
    "regionquota_unknown_reservations",
    "regionquota_unknown_age_seconds",
    "regionquota_slice_units",
    "regionquota_used_units",
    "regionquota_reserved_units",
    "regionquota_pool_units",
    "regionquota_agent_synchronised_seconds",
}


async def test_a_server_that_runs_is_alive(api: Api) -> None:
    reply = await api.get("/healthz")
    assert (200, {"status": "alive"}) == (reply.status, reply.body)


async def test_a_ready_server_says_what_it_found(api: Api) -> None:
    reply = await api.get("/readyz")
    assert (200, "ready", "answers") == (reply.status, reply.body["status"], reply.body["postgres"])
    assert 0 < reply.body["synchronised_revision"]


# -- metrics --


async def metrics(api: Api) -> dict[str, float]:
    lines = [line for line in (await api.get("/metrics")).text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


async def called(api: Api, operation: str, outcome: str) -> float:
    return (await metrics(api)).get(f'regionquota_calls_total{{operation="{operation}",outcome="{outcome}"}}', 0.0)


async def test_all_metrics_are_there_after_some_calls(api: Api, quota: str) -> None:
    await api.hold(quota)
    names: set[str] = set()

    async def complete() -> bool:
        names.clear()
        names.update(name.partition("{")[0] for name in await metrics(api))
        return names >= METRICS

    await until(complete)
    assert set() == METRICS - names


async def test_metrics_are_in_the_prometheus_text_format(api: Api) -> None:
    assert (await api.get("/metrics")).kind.startswith("text/plain; version=")


@pytest.mark.parametrize(
    ("amount", "outcome"), [(1, "201"), (99, "OVER_LIMIT"), (0, "400")], ids=["granted", "denied", "refused"]
)
async def test_each_call_is_counted_with_its_outcome(api: Api, quota: str, amount: int, outcome: str) -> None:
    before = await called(api, "reserve", outcome)
    await api.reserve(quota, amount)
    assert before + 1 == await called(api, "reserve", outcome)


async def test_tenants_and_ids_are_no_labels(api: Api, quota: str) -> None:
    await api.hold(quota, request_id="a-very-own-id")
    text = (await api.get("/metrics")).text
    assert quota not in text
    assert "a-very-own-id" not in text


async def test_paths_that_nobody_serves_are_no_labels(api: Api) -> None:
    await api.get("/no/such/path/4711")
    assert "4711" not in (await api.get("/metrics")).text


# -- the OpenAPI document --


@pytest.fixture
async def document(api: Api) -> dict[str, Any]:
    return dict((await api.get("/openapi.json")).body)


def references(part: object) -> Iterator[str]:
    if isinstance(part, dict):
        for name, value in part.items():
            if name == "$ref":
                yield value
            else:
                yield from references(value)
    elif isinstance(part, list):
        for value in part:
            yield from references(value)


async def test_the_document_is_openapi_3_1(document: dict[str, Any]) -> None:
    assert re.fullmatch(r"3\.1\.\d+", document["openapi"])
    assert {"title", "version"} <= document["info"].keys()


async def test_every_call_is_described(document: dict[str, Any]) -> None:
    described = {(method.upper(), path) for path, calls in document["paths"].items() for method in calls}
    assert {(route.method, route.path) for route in ROUTES} == described


async def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    found = list(references(document))
    assert found
    for reference in found:
        place: Any = document
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]
        assert isinstance(place, dict)


async def test_operation_ids_are_unique(document: dict[str, Any]) -> None:
    names = [call["operationId"] for calls in document["paths"].values() for call in calls.values()]
    assert len(set(names)) == len(names)


async def test_every_part_of_a_path_is_a_required_parameter(document: dict[str, Any]) -> None:
    for path, calls in document["paths"].items():
        for call in calls.values():
            found = {one["name"] for one in call["parameters"] if one["in"] == "path" and one["required"]}
            assert set(re.findall(r"{(\w+)}", path)) == found


async def test_the_query_of_a_search_is_described(document: dict[str, Any]) -> None:
    parameters = document["paths"]["/v1/reservations"]["get"]["parameters"]
    found = {(one["name"], one["required"]) for one in parameters}
    assert {(name, False) for name in ("tenant_id", "request_id", "state", "limit", "after")} == found


async def test_the_filters_of_usage_are_described(document: dict[str, Any]) -> None:
    parameters = document["paths"]["/v1/tenants/{tenant}/quotas"]["get"]["parameters"]
    found = {(one["name"], one["required"]) for one in parameters if one["in"] == "query"}
    assert {("resource", False), ("scope", False)} == found


async def test_every_answer_has_a_description(document: dict[str, Any]) -> None:
    for calls in document["paths"].values():
        for call in calls.values():
            for status, answer in call["responses"].items():
                assert re.fullmatch(r"[1-5]\d\d", status)
                assert answer["description"]


async def test_every_refusal_is_described_as_a_problem_document(document: dict[str, Any]) -> None:
    refusals = [
        answer
        for calls in document["paths"].values()
        for call in calls.values()
        for status, answer in call["responses"].items()
        if status >= "400"
    ]
    assert refusals
    assert {"application/problem+json"} == {kind for answer in refusals for kind in answer["content"]}


async def test_a_body_is_required_where_a_field_is(document: dict[str, Any]) -> None:
    required = {
        call["operationId"]: call["requestBody"]["required"]
        for calls in document["paths"].values()
        for call in calls.values()
        if "requestBody" in call
    }
    optional = {"commit", "release"}
    assert {name: name not in optional for name in required} == required


async def test_patterns_mean_the_same_to_other_languages(document: dict[str, Any]) -> None:
    patterns = re.findall(r"'pattern': '([^']*)'", str(document))
    assert patterns
    # ECMAScript reads \Z as the letter Z, and knows neither \A nor inline flags nor possessive quantifiers.
    for pattern in patterns:
        assert not re.search(r"\\+[AZz]|\(\?[aiLmsux]|\(\?P|[*+?]\+", pattern), pattern


@pytest.mark.parametrize("schema", ["ReserveBody", "AdjustBody", "LimitBody", "ExtendBody", "CommitBody", "BatchBody"])
async def test_bodies_are_described_as_closed(document: dict[str, Any], schema: str) -> None:
    described = document["components"]["schemas"][schema]
    assert described["additionalProperties"] is False
    assert set(described["required"]) <= described["properties"].keys()
