"""What probes and Prometheus ask: /healthz, /readyz, /metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from consumer import __version__, metrics
from consumer.loops import Heartbeat


@dataclass(slots=True)
class Health:
    """What the loops last found. `waiting_for` maps what is not ready to the reason."""

    heartbeats: list[Heartbeat] = field(default_factory=list)
    waiting_for: dict[str, str] = field(default_factory=dict)

    def ready(self, name: str) -> None:
        """This part is ready."""
        self.waiting_for.pop(name, None)

    def not_ready(self, name: str, reason: str) -> None:
        """This part is not ready, and why."""
        self.waiting_for[name] = reason

    @property
    def dead(self) -> Sequence[Heartbeat]:
        """Loops that have been silent for too long."""
        return [heartbeat for heartbeat in self.heartbeats if not heartbeat.alive]


def api(health: Health) -> FastAPI:
    """The HTTP application."""
    app = FastAPI(title="Score consumer", version=__version__, docs_url="/docs")

    @app.get("/healthz", summary="Liveness: does every loop show signs of life?")
    async def healthz() -> JSONResponse:
        loops = {beat.name: round(beat.age_s, 1) for beat in health.heartbeats}
        dead = [beat.name for beat in health.dead]
        return JSONResponse(
            {"alive": not dead, "dead": dead, "loop_age_seconds": loops},
            status_code=503 if dead else 200,
        )

    @app.get("/readyz", summary="Readiness: Postgres, migrations, Kafka.")
    async def readyz() -> JSONResponse:
        ready = not health.waiting_for
        return JSONResponse(
            {"ready": ready, "waiting_for": health.waiting_for}, status_code=200 if ready else 503
        )

    @app.get("/metrics", summary="Prometheus metrics.", response_class=Response)
    async def prometheus() -> Response:
        for beat in health.heartbeats:
            metrics.LOOP_AGE_SECONDS.labels(beat.name).set(beat.age_s)
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    return app
