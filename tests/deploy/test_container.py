"""Dockerfile and compose.yaml: there is no engine here, so what can be told without one."""

from __future__ import annotations

import asyncio
import re
import runpy
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import httpx
import yaml
from packaging.requirements import Requirement

from consumer.demo import judge_stand_in
from consumer.settings import Settings
from tests.deploy.conftest import run, tool
from tests.deploy.places import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
FINAL_STAGE = DOCKERFILE.rpartition("\nFROM ")[2]
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = [name for name, service in SERVICES.items() if service["image"].startswith("score-consumer")]
DRAIN_MARGIN_S = 10
DRIFT_DAYS = 28


def closure(roots: Iterator[Requirement]) -> set[str]:
    """The names of all that these packages need, themselves included."""
    found: set[str] = set()
    waiting = list(roots)
    while waiting:
        needed = waiting.pop()
        name = re.sub(r"[-_.]+", "-", needed.name).lower()
        if name not in found:
            found.add(name)
            waiting += list(required_by(name, needed.extras or {""}))
    return found


def required_by(name: str, extras: set[str]) -> Iterator[Requirement]:
    for line in metadata.requires(name) or ():
        one = Requirement(line)
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in extras):
            yield one


def test_hadolint_finds_nothing() -> None:
    run(tool("hadolint"), "--failure-threshold=style", str(ROOT / "Dockerfile"))


def test_the_image_runs_as_nobody_in_particular_and_tells_its_health() -> None:
    assert re.search(r"^USER 10001:10001$", FINAL_STAGE, re.MULTILINE)
    assert re.search(r"^HEALTHCHECK .*/healthz", FINAL_STAGE.replace("\\\n", ""), re.MULTILINE)
    assert 'org.opencontainers.image.version="${VERSION}"' in FINAL_STAGE
    assert "apt-get" not in DOCKERFILE


def test_what_only_the_build_needs_is_taken_out() -> None:
    build_in = (ROOT / "requirements" / "build.in").read_text(encoding="utf-8").split()
    needed = closure(required_by("score-consumer", {"", "otel"}))
    only_build = closure(Requirement(line) for line in build_in) - needed
    taken_out = re.search(r"uninstall --yes \\\n((?: +[a-z -]+\\?\n)+)", DOCKERFILE)
    assert taken_out is not None
    assert set(taken_out[1].replace("\\", "").split()) == only_build


def test_what_is_copied_is_sent_to_the_builder() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    sent = {line[1:] for line in ignored if line.startswith("!")}
    copied = {
        source
        for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE)
        for source in line.split()[:-1]
    }
    assert copied == sent
    assert all((ROOT / path).exists() for path in sent)


def test_compose_is_what_compose_takes() -> None:
    command = [tool("compose-check"), str(ROOT / "compose.yaml")]
    assert "stop_grace_period: 35s" in run(*command)


def test_the_consumer_knows_every_variable_of_compose() -> None:
    known = {name.upper() for name in Settings.model_fields}
    files = "".join(path.read_text() for path in (ROOT / "config").glob("*.yaml"))
    known |= set(re.findall(r"\$\{(\w+)", files)) | set(re.findall(r"api_key_env: (\w+)", files))
    for name in OURS:
        assert SERVICES[name]["environment"].keys() <= known


def test_services_of_ours_are_without_rights() -> None:
    assert set(OURS) == {"consumer", "migrate", "ask", "stand-ins"}
    for name in OURS:
        service = SERVICES[name]
        assert service["read_only"] is True
        assert service["tmpfs"] == ["/tmp"]  # noqa: S108  in the container
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]


def test_compose_gives_the_consumer_its_time() -> None:
    drain = Settings.model_fields["grace_seconds"].default
    assert SERVICES["consumer"]["stop_grace_period"] == f"{drain + DRAIN_MARGIN_S}s"
    assert "GRACE_SECONDS" not in SERVICES["consumer"]["environment"]


def test_compose_makes_the_topics_that_the_consumer_uses() -> None:
    script = SERVICES["topics"]["command"][0]
    found = re.search(r"for topic in (.*); do", script)
    assert found is not None
    fields = Settings.model_fields.items()
    assert set(found[1].split()) == {f.default for name, f in fields if name.startswith("topic_")}


def test_what_compose_mounts_exists() -> None:
    for service in SERVICES.values():
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0]
            assert (
                (ROOT / source).exists() if source.startswith(".") else source in COMPOSE["volumes"]
            )


def test_only_this_machine_reaches_the_ports() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_prometheus_remembers_as_long_as_the_drift_looks_back() -> None:
    command = " ".join(SERVICES["prometheus"]["command"])
    kept = re.search(r"retention\.time=(\d+)d", command)
    assert kept is not None
    assert int(kept[1]) > DRIFT_DAYS
    promtool = tool("promtool")
    run(
        promtool,
        "check",
        "config",
        "--syntax-only",
        str(ROOT / "deploy/prometheus/prometheus.yaml"),
    )


def test_stand_ins_serve_sessions_and_a_judge() -> None:
    app = runpy.run_path(str(ROOT / "deploy" / "compose" / "stand_ins.py"))["app"]
    environment = SERVICES["consumer"]["environment"]
    assert environment["LLM_MODEL"].endswith(f":-{judge_stand_in.MODEL}}}")
    history, judge = (
        environment[name].partition(":-")[2].removesuffix("}")
        for name in ("HISTORY_URL", "LLM_BASE_URL")
    )
    question = {"model": judge_stand_in.MODEL, "messages": [{"role": "user", "content": "?"}]}

    async def ask() -> tuple[httpx.Response, httpx.Response]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as client:
            return (
                await client.get(f"{history}/api/v1/history/sessions"),
                await client.post(f"{judge}/chat/completions", json=question),
            )

    sessions, verdict = asyncio.run(ask())
    assert sessions.json()["sessions"]
    assert verdict.json()["choices"]
