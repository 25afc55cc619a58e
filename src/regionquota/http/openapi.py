"""The OpenAPI 3.1 document, generated from the routes and the bodies that they decode."""

import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Final

import msgspec

from regionquota.http.routes import Route

_SAYS: Final = {
    200: "Done",
    201: "Granted",
    207: "One answer for each",
    304: "As the ETag that the caller knows says",
    404: "Unknown quota or reservation",
    409: "A known id with other content, a newer version, or a state that forbids it",
    429: "Denied; Retry-After says when to come back",
}
_ALWAYS: Final = {
    400: "Bad input: `field` names what, `detail` says what it takes",
    413: "The body is too large",
    503: "Postgres or etcd does not answer; Retry-After says when to come back",
}
_PROBLEM: Final = {
    "type": "object",
    "description": "RFC 9457 problem details",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "field": {"type": "string"},
        "reason": {"type": "string"},
    },
}


def document(routes: Sequence[Route], title: str) -> dict[str, Any]:
    bodies = [route.body for route in routes if route.body is not None]
    _, schemas = msgspec.json.schema_components(bodies, ref_template="#/components/schemas/{name}")
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version("regionquota")},
        "paths": paths,
        "components": {"schemas": {**schemas, "Problem": _PROBLEM}},
    }


def _operation(route: Route) -> dict[str, Any]:
    said = {status: _SAYS[status] for status in route.statuses} | _ALWAYS
    operation: dict[str, Any] = {
        "operationId": route.operation,
        "summary": route.says,
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in re.findall(r"{(\w+)}", route.path)
        ]
        + [
            {"name": name, "in": "query", "required": required, "schema": {"type": "string"}}
            for name, required in route.query.items()
        ],
        "responses": {str(status): _response(status, text) for status, text in sorted(said.items())},
    }
    if route.body is not None:
        schema = {"$ref": f"#/components/schemas/{route.body.__name__}"}
        operation["requestBody"] = {
            "required": any(one.required for one in msgspec.structs.fields(route.body)),
            "content": {"application/json": {"schema": schema}},
        }
    return operation


def _response(status: int, text: str) -> dict[str, Any]:
    if status == 304:
        return {"description": text}
    if status < 400:
        return {"description": text, "content": {"application/json": {"schema": {"type": "object"}}}}
    problem = {"$ref": "#/components/schemas/Problem"}
    return {"description": text, "content": {"application/problem+json": {"schema": problem}}}
