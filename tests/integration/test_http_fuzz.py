"""Whatever is sent, as OpenAPI allows it and as it does not: never a 5xx, and always a reason.

The cases are schemathesis', made from the document that the API itself serves; the API is served
over a socket, on a real database and a real Kafka.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode

from consumer.api.limits import BodyLimit
from consumer.demo.world import served
from tests.integration.builders import request, scored
from tests.support.http_api import Api, serving
from tests.support.servers import KafkaServer
from tests.support.stand_ins import stand_ins
from tests.support.topics import Topics

RULES = "efficiency-simple"
CASES = 4  # of each operation, mode and kind of path
# A stream that ends when its reader likes: tests/integration/test_http_events.py.
ENDLESS = {"GET /api/v1/scoring/events"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fuzz:
    """Sends cases, and keeps what was answered."""

    url: str
    known: dict[str, Any]
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)

    def run(self, document: dict[str, Any]) -> None:
        for found in schemathesis.openapi.from_dict(document).get_all_operations():
            operation: Any = found.ok()  # type: ignore[union-attr]
            if operation.label in ENDLESS:
                continue
            for cases in self._strategies(operation):
                self._send(operation.label, cases)

    def _strategies(self, operation: Any) -> Iterator[Any]:
        """As allowed and as not; with made up ids, and with ids of what there is."""
        names = [parameter.name for parameter in operation.path_parameters]
        for mode in GenerationMode:
            if mode is GenerationMode.POSITIVE or operation.body or operation.query:
                yield operation.as_strategy(generation_mode=mode)
                if names:
                    there = {name: self.known[name] for name in names}
                    yield operation.as_strategy(generation_mode=mode, path_parameters=there)

    def _send(self, label: str, cases: Any) -> None:
        @settings(
            max_examples=CASES,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=cases)
        def send(case: Any) -> None:
            answer = case.call(base_url=self.url)
            self.statuses[label, answer.status_code] += 1
            told = (label, answer.status_code, answer.text, case.as_curl_command())
            assert answer.status_code < 500, told
            if answer.status_code >= 400:
                assert answer.headers["content-type"] == ["application/problem+json"], told
                assert answer.json()["detail"], told

        send()


@pytest.mark.timeout(300)  # hundreds of calls: on a busy machine they take their time
async def test_nothing_breaks_it(database: str, kafka: KafkaServer, topics: Topics) -> None:
    async with (
        stand_ins() as services,
        serving(
            database, kafka, topics, history_url=services.history_url, api_writes_per_minute=10**6
        ) as api,
        served(BodyLimit(api.app)) as url,
    ):
        fuzz = Fuzz(url=url, known=await _known(api))
        api.stopping.set()  # nobody waits for scores that nobody makes
        document = (await api.http.get("http://api/api/v1/openapi.json")).json()
        await asyncio.to_thread(fuzz.run, document)
    labels = {label for label, _ in fuzz.statuses}
    assert len(labels) >= 19
    reached = {label for label, status in fuzz.statuses if status < 300}
    assert len(reached) >= len(labels) - 4, labels - reached
    assert {status for _, status in fuzz.statuses} >= {200, 202, 404, 422}


async def _known(api: Api) -> dict[str, Any]:
    """Ids of what there is."""
    for profile in api.profiles.files:
        await api.store.register_profile(profile, by="config")
    made = await scored(api.store, request("s1"))
    batch = await api.http.post("/batches", json={"sessions": ["s1"]})
    return {
        "session_id": "s1",
        "score_id": str(made.score_id),
        "request_id": str(made.request_id),
        "profile_id": RULES,
        "version": 1,
        "batch_id": str(UUID(batch.json()["batch_id"])),
    }
