"""A real Prometheus that watches processes of ours by the chart's rules."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import yaml

from consumer.demo.servers import HOST, EmbeddedServer
from tests.deploy.conftest import tool
from tests.deploy.places import ALERTS

JOB = "score-consumer"
_DURATION = re.compile(r"(?<=\[)(\d+)([smhd])(?=\])|(?<=offset )(\d+)([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
# What rules compare times of the product with. Not those of clocks and judges.
_LIMITS = {
    "process_start_time_seconds > 120": 120,
    "[15m]) < 300": 300,
    "scoring_outbox_oldest_seconds) > 120": 120,
    "scoring_requests_oldest_pending_seconds) > 900": 900,
}


def rules(times_as_quick: int) -> str:
    """The chart's rules; all their times divided by this."""

    def quicker(found: re.Match[str]) -> str:
        number, unit = found[1] or found[3], found[2] or found[4]
        return _shorter(int(number) * _SECONDS[unit], times_as_quick)

    text = ALERTS.read_text(encoding="utf-8")
    for limit, seconds in _LIMITS.items():
        assert limit in text, f"no rule says {limit!r} any more"
        text = text.replace(limit, limit.replace(f" {seconds}", f" {seconds / times_as_quick:g}"))
    content = yaml.safe_load(_DURATION.sub(quicker, text))
    for group in content["groups"]:
        group.pop("interval", None)
        for rule in group["rules"]:
            if wait := rule.get("for"):
                seconds = int(wait[:-1]) * _SECONDS[wait[-1]]
                rule["for"] = _shorter(seconds, times_as_quick)
    return yaml.safe_dump(content)


def _shorter(seconds: int, times_as_quick: int) -> str:
    return f"{max(1, round(seconds / times_as_quick))}s"


class Prometheus(EmbeddedServer):
    """It scrapes each second, and evaluates the rules as often."""

    name = "prometheus"

    def __init__(self, data_dir: Path, targets: Sequence[str], *, times_as_quick: int) -> None:
        data_dir.mkdir(parents=True, exist_ok=True)
        super().__init__(data_dir)
        self.url = f"http://{HOST}:{self.port}"
        self._config = self.data_dir / "prometheus.yaml"
        (self.data_dir / "rules.yaml").write_text(rules(times_as_quick), encoding="utf-8")
        scrape = {"job_name": JOB, "static_configs": [{"targets": list(targets)}]}
        settings = {
            "global": {
                "scrape_interval": "1s",
                "scrape_timeout": "1s",
                "evaluation_interval": "1s",
            },
            "rule_files": ["rules.yaml"],
            "scrape_configs": [scrape],
        }
        self._config.write_text(yaml.safe_dump(settings), encoding="utf-8")

    def _command(self) -> list[str]:
        return [
            tool("prometheus"),
            f"--config.file={self._config}",
            f"--storage.tsdb.path={self.data_dir / 'data'}",
            f"--web.listen-address={HOST}:{self.port}",
            "--log.level=warn",
        ]

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/-/ready", timeout=1).status_code == 200
        except httpx.HTTPError:
            return False

    async def query(self, expression: str) -> list[dict[str, Any]]:
        """What an instant query finds."""
        async with httpx.AsyncClient(base_url=self.url, timeout=10) as http:
            answer = await http.get("/api/v1/query", params={"query": expression})
        answer.raise_for_status()
        found: list[dict[str, Any]] = answer.json()["data"]["result"]
        return found

    async def firing(self) -> set[str]:
        """The names of the alerts that fire now."""
        found = await self.query('ALERTS{alertstate="firing"}')
        return {one["metric"]["alertname"] for one in found}

    async def fired(self, seconds: float) -> set[str]:
        """The names of all that fired within the last so many seconds."""
        found = await self.query(f'count_over_time(ALERTS{{alertstate="firing"}}[{seconds:.0f}s])')
        return {one["metric"]["alertname"] for one in found}
