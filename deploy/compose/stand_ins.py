"""The demo's History Service and judge stand-in, for compose.yaml: sample sessions, and verdicts
that were prepared for them. HISTORY_URL and SCORING_LLM_PROVIDER put your own in their place.
"""

# ruff: noqa: INP001  a program that uvicorn loads, no package
from starlette.applications import Starlette
from starlette.routing import Mount

from consumer.demo import history_service, judge_stand_in, sample_sessions

sessions = sample_sessions.load()
app = Starlette(
    routes=[
        Mount("/judge", judge_stand_in.app(sessions)),
        Mount("/", history_service.app(sessions)),
    ]
)
