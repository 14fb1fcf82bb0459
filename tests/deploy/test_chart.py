"""The Helm chart: what it renders, and what it refuses to render."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from consumer import __version__, config
from consumer.config import ProviderConfig
from consumer.errors import ConfigError
from consumer.settings import Settings, load_settings
from tests.deploy import generated
from tests.deploy.cases import (
    AGAINST_SCHEMA,
    CASES,
    KAFKA_ACCESS,
    KEDA,
    MONITORED,
    PROFILE,
    REFUSED,
    SPLIT,
)
from tests.deploy.conftest import KUBERNETES, LEAST, HelmTemplate, Objects, Render, run, tool
from tests.deploy.places import ALERTS, CHART, OPERATIONS

# Kinds of operators: their schemas are not Kubernetes' own.
OPERATORS = {"ExternalSecret", "KafkaTopic", "PrometheusRule", "ScaledObject", "ServiceMonitor"}
DRAIN_MARGIN_S = 10
SETTINGS = {name.upper() for name in Settings.model_fields}


def of_kind(objects: Objects, kind: str) -> Objects:
    return [one for one in objects if one["kind"] == kind]


def only(objects: Objects, kind: str) -> dict[str, Any]:
    (found,) = of_kind(objects, kind)
    return found


def pods(objects: Objects) -> Iterator[dict[str, Any]]:
    """The pod of each Deployment, Job and test."""
    for one in objects:
        if one["kind"] == "Pod":
            yield one
        elif one["kind"] in {"Deployment", "Job"}:
            yield one["spec"]["template"]


def environment(pod: dict[str, Any]) -> dict[str, str]:
    """Variables that are given by value."""
    variables = pod["spec"]["containers"][0]["env"]
    return {variable["name"]: variable["value"] for variable in variables if "value" in variable}


def from_secrets(pod: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Variables that are given by reference, to Secret and key."""
    variables = pod["spec"]["containers"][0]["env"]
    found = {v["name"]: v["valueFrom"]["secretKeyRef"] for v in variables if "valueFrom" in v}
    return {name: (reference["name"], reference["key"]) for name, reference in found.items()}


def roles_of(pod: dict[str, Any]) -> list[str]:
    (container,) = pod["spec"]["containers"]
    return str(container["args"][2]).split(",")


def selects(selector: dict[str, str], pod: dict[str, Any]) -> bool:
    labels: dict[str, str] = pod["metadata"]["labels"]
    return selector.items() <= labels.items()


@pytest.mark.parametrize("name", CASES)
def test_every_object_is_what_kubernetes_takes(name: str, render: Render) -> None:
    pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    objects = render(CASES[name])
    assert of_kind(objects, "Deployment")
    for one in objects:
        assert len(one["metadata"]["name"]) <= 63
        if one["kind"] not in OPERATORS:
            check_against_kubernetes(json.dumps(one))


@pytest.mark.parametrize("document", [generated.README, OPERATIONS], ids=lambda path: path.name)
def test_every_example_in_the_documents_renders(document: Path, render: Render) -> None:
    examples = re.findall(r"```yaml\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL)
    assert examples
    for example in examples:
        values = yaml.safe_load(textwrap.dedent(example))
        secrets = {**LEAST["secrets"], **values.pop("secrets", {})}
        assert of_kind(render({**values, "secrets": secrets}), "Deployment")


@lru_cache
def check_against_kubernetes(text: str) -> None:
    """Raises where this object breaks the API's schema, or has a field that is not in it."""
    validation = import_module("kubernetes_validate")
    validation.validate(json.loads(text), KUBERNETES, strict=True)


def test_every_operator_takes_its_objects(render: Render) -> None:
    node, crds = tool("node"), tool("crds")
    names = ("split and scaled", "scaled by lag alone", "external secrets", "monitored")
    objects = [one for name in names for one in render(CASES[name]) if one["kind"] in OPERATORS]
    assert {one["kind"] for one in objects} == OPERATORS - {"KafkaTopic"}  # nobody publishes it
    command = [node, str(Path(__file__).with_name("crds.mjs")), crds]
    run(*command, told=json.dumps(objects))
    broken = {**objects[0], "spec": {}}
    done = subprocess.run(
        command, input=json.dumps([broken]), text=True, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout[: len(broken["kind"])]) == (1, broken["kind"])


@pytest.mark.parametrize("name", CASES)
def test_every_pod_is_without_rights_and_ends_in_its_time(name: str, render: Render) -> None:
    objects = render(CASES[name])
    for pod in pods(objects):
        spec = pod["spec"]
        (container,) = spec["containers"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]
        volumes = {volume["name"] for volume in spec["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    for deployment in of_kind(objects, "Deployment"):
        pod = deployment["spec"]["template"]
        drain = float(environment(pod)["GRACE_SECONDS"])
        assert pod["spec"]["terminationGracePeriodSeconds"] >= drain + DRAIN_MARGIN_S


@pytest.mark.parametrize("name", CASES)
def test_selectors_find_the_pods_that_serve_and_no_others(name: str, render: Render) -> None:
    objects = render(CASES[name])
    serving = [one["spec"]["template"] for one in of_kind(objects, "Deployment")]
    services = {
        one["metadata"]["name"]: one["spec"]["selector"] for one in of_kind(objects, "Service")
    }
    all_of_them = services.pop(min(services))
    api = services.pop(min(services), None) if services else None
    assert [pod for pod in pods(objects) if selects(all_of_them, pod)] == serving
    with_api = [pod for pod in serving if "api" in roles_of(pod)]
    assert [pod for pod in pods(objects) if api and selects(api, pod)] == with_api
    for one in of_kind(objects, "Deployment") + of_kind(objects, "PodDisruptionBudget"):
        selector = one["spec"]["selector"]["matchLabels"]
        assert len([pod for pod in pods(objects) if selects(selector, pod)]) == 1
    for policy in of_kind(objects, "NetworkPolicy"):
        assert all(selects(policy["spec"]["podSelector"]["matchLabels"], p) for p in pods(objects))


@pytest.mark.parametrize("name", CASES)
def test_the_consumer_knows_every_variable_that_the_chart_sets(name: str, render: Render) -> None:
    known = SETTINGS | {f"{setting}_FILE" for setting in SETTINGS}
    known |= {"SCORING_LLM_PROVIDER", "SCORING_LLM_MODEL", "LLM_BASE_URL", "OPENAI_API_KEY"}
    known |= generated.READ_BY_CONFIGURATION.keys()
    known |= {"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_HEADERS", "OTEL_TRACES_SAMPLER"}
    for pod in pods(render(CASES[name])):
        given = environment(pod)
        assert given.keys() | from_secrets(pod).keys() <= known
        in_pod_only = {"KAFKA_SSL_CAFILE"}
        accepted = {n.lower(): given[n] for n in given.keys() & SETTINGS - in_pod_only}
        Settings.model_validate(accepted)


@pytest.mark.parametrize("name", REFUSED)
def test_contradictions_stop_the_render(
    name: str, refusal: Callable[[dict[str, Any]], str]
) -> None:
    values, message = REFUSED[name]
    assert message in refusal(values)


@pytest.mark.parametrize("given", KAFKA_ACCESS, ids=lambda given: "-".join(given.values()))
def test_the_chart_refuses_what_the_consumer_refuses_of_kafka(
    given: dict[str, str],
    helm_template: HelmTemplate,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = {name: __file__ if value == "file" else value for name, value in given.items()}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    try:
        load_settings()
        problems: list[str] = []
    except ConfigError as error:
        problems = error.problems
    secret = {name for name in given if f"{name}_FILE" in generated.settings_schema()["properties"]}
    values = {
        "settings": {name: value for name, value in given.items() if name not in secret},
        "secrets": {"existingSecret": "s", "env": {name: {} for name in secret}},
    }
    said = helm_template(values).stderr
    told = re.findall(r"  - (?:(?:settings|secrets\.env) lacks )?(KAFKA_\w+)", said)
    assert sorted(told) == sorted(problem.partition(":")[0] for problem in problems)


@pytest.mark.parametrize("name", AGAINST_SCHEMA)
def test_the_schema_refuses(name: str, refusal: Callable[[dict[str, Any]], str]) -> None:
    values, word = AGAINST_SCHEMA[name]
    said = refusal(values)
    assert "values don't meet the specifications of the schema" in said
    assert word.replace("/", ".") in said.replace("/", ".")  # Helm 3.18 and later write slashes


def test_the_notes_warn_of_what_is_allowed_and_seldom_meant(helm: str, tmp_path: Path) -> None:
    shutil.copytree(CHART, tmp_path, dirs_exist_ok=True)
    (tmp_path / "templates/NOTES.txt").rename(tmp_path / "files/NOTES.txt")  # not rendered there
    text = '{{ dict "notes" (tpl (.Files.Get "files/NOTES.txt") .) | toYaml }}'
    (tmp_path / "templates/notes.yaml").write_text(text, encoding="utf-8")

    def notes(**values: Any) -> str:
        (tmp_path / "mine.yaml").write_text(yaml.safe_dump({**LEAST, **values}), encoding="utf-8")
        shown = ("--show-only=templates/notes.yaml", f"--values={tmp_path / 'mine.yaml'}")
        version = f"--kube-version={KUBERNETES}"
        told = run(helm, "template", "scores", str(tmp_path), version, *shown)
        return str(yaml.safe_load(told)["notes"])

    limit = ProviderConfig.model_fields["max_concurrency"].default
    slots, too_many = {"WORKER_SLOTS": limit}, f"WORKER_SLOTS is {limit + 1}"
    judge = {
        "judge": {"provider": "openai"},
        "secrets": {"existingSecret": "s", "env": {"OPENAI_API_KEY": {}}},
    }
    few, many = notes(**judge, settings=slots), {"WORKER_SLOTS": limit + 1}
    assert "WORKER_SLOTS" not in few
    assert "KEDA" not in few
    told = notes(**judge, settings=many, autoscaling=KEDA)
    assert too_many in told
    assert "serviceMonitor.enabled is false: KEDA" in told
    rules_alone = notes(settings=many, autoscaling=KEDA, serviceMonitor={"enabled": True})
    assert "WORKER_SLOTS" not in rules_alone
    assert "KEDA" not in rules_alone


def test_all_contradictions_are_told_at_once(refusal: Callable[[dict[str, Any]], str]) -> None:
    said = refusal({"secrets": {}, "kafkaTopics": {"enabled": True}})
    assert "secrets.env.DATABASE_URL" in said
    assert "kafkaTopics.cluster" in said


def test_lint(helm: str) -> None:
    values = "--set=secrets.existingSecret=scores"
    run(helm, "lint", "--strict", f"--kube-version={KUBERNETES}", values, str(CHART))


def test_versions_and_defaults_are_the_consumers(render: Render) -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__
    deployment = only(render({}), "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"score-consumer:{__version__}"
    assert container["args"] == ["run", "--roles", "intake,worker,relay,api"]
    given = environment(deployment["spec"]["template"])
    computed = {"KAFKA_BOOTSTRAP_SERVERS", "HISTORY_URL", "SESSIONS_MAX_BYTES", "REPLICAS_WANTED"}
    for name in given.keys() - computed:
        assert given[name] == str(Settings.model_fields[name.lower()].default), name


@pytest.mark.parametrize(
    ("memory", "sessions"),
    [
        ("1Gi", 16_777_216),
        ("2048Mi", 39_146_837),
        ("1100M", 17_324_261),
        (1_200_000_000, 19_407_594),
    ],
)
def test_what_is_under_way_fits_the_memory(
    render: Render, memory: str | int, sessions: int
) -> None:
    """256 MiB for the process, and 48 times what sessions have."""
    deployment = only(render({"resources": {"limits": {"memory": memory}}}), "Deployment")
    assert environment(deployment["spec"]["template"])["SESSIONS_MAX_BYTES"] == str(sessions)


@pytest.mark.parametrize(
    "values",
    [
        {"resources": {"limits": {"memory": "768Mi"}}},
        {"settings": {"HISTORY_MAX_BYTES": 33_554_432}},
        {"settings": {"SESSIONS_MAX_BYTES": 50_000_000}},
    ],
)
def test_memory_that_is_too_little_for_sessions_is_refused(
    refusal: Callable[[dict[str, Any]], str], values: dict[str, Any]
) -> None:
    assert re.search(
        r"resources.limits.memory .* raise it to \d+Mi, or lower them", refusal(values)
    )


def test_one_deployment_for_each_role(render: Render) -> None:
    objects = render({"roles": SPLIT, "autoscaling": {"kind": "hpa"}})
    found = {one["metadata"]["name"]: one["spec"] for one in of_kind(objects, "Deployment")}
    assert set(found) == {f"scores-score-consumer-{name}" for name in SPLIT}
    worker, relay = found["scores-score-consumer-worker"], found["scores-score-consumer-relay"]
    assert "replicas" not in worker  # the autoscaler's
    assert relay["replicas"] == 1
    assert environment(worker["template"])["WORKER_SLOTS"] == "64"
    assert worker["template"]["spec"]["terminationGracePeriodSeconds"] == 101
    scaler = only(objects, "HorizontalPodAutoscaler")["spec"]
    assert scaler["scaleTargetRef"]["name"] == "scores-score-consumer-worker"


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({}, "2"),
        ({"replicas": 5}, "5"),
        ({"roles": SPLIT}, "5"),  # 2, 2 and 1
        ({"roles": {**SPLIT, "relay": None, "all": {"roles": ["relay"]}}}, "6"),
        ({"roles": SPLIT, "autoscaling": {"kind": "hpa", "minReplicas": 4}}, "7"),
        ({"replicas": 5, "settings": {"REPLICAS_WANTED": 3}}, "3"),
    ],
)
def test_each_process_knows_how_many_there_should_be(
    render: Render, values: dict[str, Any], wanted: str
) -> None:
    for deployment in of_kind(render(values), "Deployment"):
        assert environment(deployment["spec"]["template"])["REPLICAS_WANTED"] == wanted


def test_the_migration_comes_before_the_pods(render: Render) -> None:
    job = only(render(CASES["external secrets"]), "Job")
    secret = only(render(CASES["external secrets"]), "ExternalSecret")
    hooks = "helm.sh/hook"
    assert job["metadata"]["annotations"][hooks] == "pre-install,pre-upgrade"
    # Its secrets come before it, and stay when they are made anew.
    assert secret["metadata"]["annotations"][hooks] == "pre-install,pre-upgrade"
    assert int(secret["metadata"]["annotations"]["helm.sh/hook-weight"]) < 0
    assert secret["spec"]["target"]["creationPolicy"] == "Orphan"
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["migrate"]
    assert job["spec"]["template"]["spec"]["serviceAccountName"] == "default"


def test_secrets_come_by_reference(render: Render) -> None:
    objects = render(CASES["external secrets"])
    made = only(objects, "ExternalSecret")["spec"]
    held = {(made["target"]["name"], entry["secretKey"]) for entry in made["data"]}
    for pod in pods(objects):
        assert set(from_secrets(pod).values()) == held
    for pod in pods(render(CASES["Kafka with a password"])):
        assert from_secrets(pod) == {
            "DATABASE_URL": ("scores-db-app", "uri"),
            "KAFKA_SASL_USERNAME": ("scores-kafka", "user"),
            "KAFKA_SASL_PASSWORD": ("scores-kafka", "password"),
        }


@pytest.mark.parametrize("kind", ["Deployment", "Pod"])  # the pod is that of `helm test`
def test_the_consumer_loads_what_is_mounted(kind: str, render: Render, tmp_path: Path) -> None:
    prompt = {"judge_prompt": "{{SESSION_CONVERSATION}} {{OUTPUT_SCHEMA}}"}
    own = CASES["own configuration"]
    scoring = {**own["config"]["scoring"], **prompt}
    objects = render({**own, "config": {**own["config"], "scoring": scoring}})
    files = {one["metadata"]["name"]: one["data"] for one in of_kind(objects, "ConfigMap")}
    (pod,) = pods([only(objects, kind)])
    spec = pod["spec"]
    volumes = {v["name"]: v["configMap"]["name"] for v in spec["volumes"] if "configMap" in v}
    for mount in spec["containers"][0]["volumeMounts"]:
        content = files.get(volumes.get(mount["name"], ""), {})
        target = tmp_path / mount["mountPath"].removeprefix("/app/config").lstrip("/")
        if "subPath" in mount:
            target.write_text(content[mount["subPath"]], encoding="utf-8")
        else:
            for name, text in content.items():
                target.mkdir(exist_ok=True)
                (target / name).write_text(text, encoding="utf-8")
    loaded = config.load(tmp_path, environment(pod))
    assert [profile.id for profile in loaded.profiles] == ["mine"]
    assert [judge.name for judge in loaded.judges] == ["local"]


def test_changed_files_start_the_pods_anew(render: Render) -> None:
    def sums(values: dict[str, Any]) -> dict[str, str]:
        pod = only(render(values), "Deployment")["spec"]["template"]
        return dict(pod["metadata"]["annotations"])

    before = sums({"profiles": {"mine": PROFILE}})
    assert sums({"profiles": {"mine": PROFILE}, "replicas": 3}) == before
    profile = sums({"profiles": {"mine": {**PROFILE, "version": 2}}})
    assert {name for name in before if profile[name] != before[name]} == {"checksum/profiles"}
    prompt = sums({"profiles": {"mine": PROFILE}, "config": {"scoring": {"labels": {}}}})
    assert {name for name in before if prompt[name] != before[name]} == {"checksum/config"}


def test_topics_are_those_that_the_consumer_uses(render: Render) -> None:
    topics = {
        one["spec"]["topicName"]
        for one in of_kind(render({"kafkaTopics": {"enabled": True, "cluster": "c"}}), "KafkaTopic")
    }
    fields = Settings.model_fields.items()
    assert topics == {field.default for name, field in fields if name.startswith("topic_")}
    renamed = of_kind(render(CASES["topics"]), "KafkaTopic")
    names = {one["spec"]["topicName"]: one["metadata"]["name"] for one in renamed}
    assert names["Agents.quality_risk"] == "agents.quality-risk"


def test_who_comes_from_outside_reaches_the_api_alone(render: Render) -> None:
    objects = render(CASES["reached from outside"])
    outside = only(objects, "Ingress")["spec"]
    (rule,) = outside["rules"]
    (path,) = rule["http"]["paths"]
    assert (rule["host"], path["path"]) == ("scores.example", "/api")
    assert outside["tls"] == [{"hosts": ["scores.example"], "secretName": "scores-tls"}]
    target = path["backend"]["service"]["name"]
    (service,) = [s for s in of_kind(objects, "Service") if s["metadata"]["name"] == target]
    (pod,) = [pod for pod in pods(objects) if selects(service["spec"]["selector"], pod)]
    assert roles_of(pod) == ["relay", "api"]
    assert from_secrets(pod)["API_TOKENS"] == ("scores", "API_TOKENS")
    assert environment(pod)["API_CORS_ORIGINS"] == "https://dashboard.example"


def test_each_pod_is_scraped_once(render: Render) -> None:
    objects = render(MONITORED)
    selector = only(objects, "ServiceMonitor")["spec"]["selector"]["matchLabels"]
    found = [one for one in of_kind(objects, "Service") if selects(selector, one)]
    assert [one["metadata"]["name"] for one in found] == ["scores-score-consumer"]


def test_the_scaler_asks_for_what_the_consumer_tells(render: Render) -> None:
    scaled = only(render(CASES["split and scaled"]), "ScaledObject")["spec"]
    assert scaled["scaleTargetRef"] == {"name": "scores-score-consumer-worker"}
    age, lag = scaled["triggers"]
    ours = '{namespace="ns",job="scores-score-consumer"}'
    query = f"max(scoring_requests_oldest_pending_seconds{ours} >= 0)"
    assert age["metadata"]["query"] == query
    # A database that tells nothing is no reason to take workers away.
    assert age["metadata"]["ignoreNullValues"] == "false"
    assert lag["metadata"]["topic"] == Settings.model_fields["topic_score_requested"].default
    assert lag["metadata"]["consumerGroup"] == Settings.model_fields["kafka_group_id"].default
    assert lag["metadata"]["lagThreshold"] == "1000"


def rules_by_name(spec: dict[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    """The rules of this kind (alert or record) by their names."""
    rules = [rule for group in spec["groups"] for rule in group["rules"]]
    return {rule[kind]: rule for rule in rules if kind in rule}


def test_alerts_can_be_changed_and_left_out(render: Render) -> None:
    written = rules_by_name(yaml.safe_load(ALERTS.read_text()), "alert")
    found = rules_by_name(only(render(MONITORED), "PrometheusRule")["spec"], "alert")
    assert written.keys() - found.keys() == {"ScoringScoreDrift"}
    changed = found["ScoringBacklogOld"]
    assert (changed["for"], changed["labels"]) == ("20m", {"severity": "critical"})
    assert changed["expr"] == written["ScoringBacklogOld"]["expr"]
    runbook = "https://docs.example/runbooks#scoringbacklogold"
    assert changed["annotations"]["runbook_url"] == runbook
    same = found["ScoringOutboxStuck"]
    assert (same["expr"], same["for"]) == (written[same["alert"]]["expr"], "5m")


def test_dashboards_arrive_as_they_are_written(render: Render) -> None:
    (held,) = of_kind(render(MONITORED), "ConfigMap")
    files = {f"score-consumer-{p.name}": p for p in (CHART / "files/dashboards").glob("*.json")}
    assert held["data"].keys() == files.keys()
    for name, path in files.items():
        assert json.loads(held["data"][name]) == json.loads(path.read_text())


def test_every_value_is_explained() -> None:
    assert [path for path, _, comment in generated.values() if not comment] == []


def test_what_is_generated_is_written_anew() -> None:
    hint = "run `python -m tests.deploy`"
    assert generated.README.read_text(encoding="utf-8") == generated.readme(), hint
    assert generated.SCHEMA.read_text(encoding="utf-8") == generated.schema(), hint
    assert generated.PROVIDERS.read_text(encoding="utf-8") == generated.providers(), hint


def test_the_schema_names_every_value() -> None:
    """What is missing there could be misspelt without a word."""
    schema = json.loads(generated.SCHEMA.read_text(encoding="utf-8"))
    for path, _, _ in generated.values():
        node = schema
        for part in path.split("."):
            node = schema["definitions"]["settings"] if "$ref" in node else node
            assert node.get("properties", {}).get(part) or "additionalProperties" in node, path
            node = node.get("properties", {}).get(part, {})
