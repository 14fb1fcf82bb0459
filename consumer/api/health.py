"""What probes and Prometheus ask: /healthz, /readyz, /metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from consumer import metrics
from consumer.api.problems import Problem, answer
from consumer.loops import Heartbeat

# As old as a figure may be.
FIGURES_KEPT_S = 10.0


@dataclass(slots=True)
class Health:
    """What the loops last found. `waiting_for` maps what is not ready to the reason."""

    heartbeats: list[Heartbeat] = field(default_factory=list)
    waiting_for: dict[str, str] = field(default_factory=dict)
    # Ticks when the database's figures were read.
    figures: Heartbeat = field(default_factory=lambda: Heartbeat("read", limit_s=FIGURES_KEPT_S))

    def ready(self, name: str) -> None:
        """This part is ready."""
        self.waiting_for.pop(name, None)
        metrics.READY.labels(name).set(1)

    def not_ready(self, name: str, reason: str) -> None:
        """This part is not ready, and why."""
        self.waiting_for[name] = reason
        metrics.READY.labels(name).set(0)

    @property
    def dead(self) -> Sequence[Heartbeat]:
        """Loops that have been silent for too long."""
        return [heartbeat for heartbeat in self.heartbeats if not heartbeat.alive]


PROBES = frozenset({"/healthz", "/readyz", "/metrics"})


@dataclass(slots=True)
class Front:
    """Probes at any time; all other paths go to the API, once there is one. `serves_api`: there
    will be.
    """

    probes: ASGIApp
    serves_api: bool
    api: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in PROBES:
            await self.probes(scope, receive, send)
        elif self.api is not None:
            await self.api(scope, receive, send)
        else:
            await answer(self._why_not)(scope, receive, send)

    @property
    def _why_not(self) -> Problem:
        if self.serves_api:
            return Problem(503, "starting", "the API waits for Postgres; see /readyz")
        return Problem(404, "not_found", "this process serves no API: it has not the role api")


def probes(health: Health) -> Starlette:
    """What tells how the process is. Bare Starlette: FastAPI would be a quarter of the start."""

    async def healthz(_: Request) -> Response:
        """Liveness: does every loop show signs of life?"""
        loops = {beat.name: round(beat.age_s, 1) for beat in health.heartbeats}
        dead = [beat.name for beat in health.dead]
        return JSONResponse(
            {"alive": not dead, "dead": dead, "loop_age_seconds": loops},
            status_code=503 if dead else 200,
        )

    async def readyz(_: Request) -> Response:
        """Readiness: Postgres, that it can be written, migrations, Kafka."""
        ready = not health.waiting_for
        return JSONResponse(
            {"ready": ready, "waiting_for": health.waiting_for}, status_code=200 if ready else 503
        )

    async def prometheus(_: Request) -> Response:
        for beat in health.heartbeats:
            metrics.LOOP_AGE_SECONDS.labels(beat.name).set(beat.age_s)
        metrics.FIGURES_AGE_SECONDS.set(health.figures.age_s)
        if not health.figures.alive:
            metrics.forget_figures()
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    routes = {"/healthz": healthz, "/readyz": readyz, "/metrics": prometheus}
    return Starlette(routes=[Route(path, answer) for path, answer in routes.items()])
