"""schemathesis against the served OpenAPI v3 documents: whatever it makes up, the answer is right and the server lives.

For every operation of every document, requests that the schema allows and requests that it forbids. What is checked of
each answer: it is no 5xx, it is of a type and shape that the document promises, and what the schema forbids is refused.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi import checks

from netloom.model.kind import Kind
from netloom.model.registry import CUSTOM_RESOURCE_DEFINITION, KINDS
from tests.front.serving import Serving, serving

pytestmark = pytest.mark.slow

EXAMPLES = 2
CHECKS: Any = [
    not_a_server_error,
    checks.response_schema_conformance,
    checks.content_type_conformance,
    checks.negative_data_rejection,
]


@pytest.fixture(scope="module")
def running(credentials: Path) -> Iterator[Serving]:
    with serving(credentials) as server:
        yield server


@pytest.mark.parametrize("mode", list(GenerationMode), ids=str)
@pytest.mark.parametrize("kind", list(KINDS), ids=lambda kind: kind.name)
def test_every_operation_stands_what_is_made_up(running: Serving, kind: Kind, mode: GenerationMode) -> None:
    place = f"apis/{kind.api_version}" if kind.group else f"api/{kind.version}"
    document = running.get(f"/openapi/v3/{place}").json
    # Watches answer without end; the same collections are tried by listing them.
    paths = {path: item for path, item in document["paths"].items() if kind.plural in path.split("/")}
    document["paths"] = {path: item for path, item in paths.items() if "/watch/" not in path}
    schema: Any = schemathesis.openapi.from_dict(document)
    problems: list[str] = []
    tried = 0
    with requests.Session() as session:
        session.verify = str(running.folder / "ca.crt")
        session.headers["Authorization"] = "Bearer admin-token"
        for result in schema.get_all_operations():
            problems += _tried(result.ok(), mode, f"https://127.0.0.1:{running.port}", session)
            tried += 1
    assert not problems, "\n\n".join(problems)
    assert tried >= (
        2 if kind is CUSTOM_RESOURCE_DEFINITION else 8 if kind.has_status else 7
    )  # Definitions are read-only.
    assert running.get("/readyz").code == 200


def _tried(operation: Any, mode: GenerationMode, url: str, session: requests.Session) -> list[str]:
    """Return what went wrong with some requests for one operation."""
    problems: list[str] = []

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def run(case: Any) -> None:
        if case.query:
            case.query.pop("watch", None)
        response = case.call(base_url=url, session=session, timeout=120, verify=session.verify)
        if response.status_code == 504 and b"ResourceVersionTooLarge" in response.content:
            return  # As kube-apiserver answers for a revision that has not come.
        try:
            case.validate_response(response, checks=CHECKS)
        except FailureGroup as found:
            said = [str(error) for error in found.exceptions]
            problems.extend(f"{operation.method.upper()} {operation.path}: {text}" for text in said if _matters(text))

    run()
    return problems


def _matters(text: str) -> bool:
    """Whether a complaint is one: Kubernetes ignores query parameters and headers that it does not know."""
    named = [line for line in text.splitlines() if line.startswith("  - ")]
    strange = [line for line in named if line.startswith(("  - header", "  - query: violates `additionalProperties`"))]
    return not named or named != strange
