"""What of the chart is made from other files: README's table, settings' schema, providers.

`python -m tests.deploy` writes them; a test says when that was forgotten.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, get_args

import yaml
from pydantic import SecretStr

from consumer.metrics import AGE_BUCKETS
from consumer.settings import Settings
from tests.deploy.places import CHART, CONFIG

README, SCHEMA = CHART / "README.md", CHART / "values.schema.json"
PROVIDERS = CHART / "files" / "providers.yaml"
TABLE_BEGINS = "<!-- Made from values.yaml by `python -m tests.deploy`. -->\n"

# The chart sets these itself, from values that say more; or they are for the consumer's tests only.
NOT_FOR_VALUES = {
    "failpoints", "http_host", "http_port", "run_mode", "scoring_config_dir", "tracing_enabled",
}  # fmt: skip
# Variables of scoring_config.yaml that stand for no other value.
READ_BY_CONFIGURATION = {"SCORING_ENABLED": {"type": "boolean"}}
# What of pydantic's schemas is also Helm's.
KEPT = ("type", "enum", "pattern", "minimum", "maximum", "exclusiveMinimum", "minLength")


def readme() -> str:
    """The chart's README as it should be: its own words, then the table of all values."""
    words = README.read_text(encoding="utf-8").partition(TABLE_BEGINS)[0]
    return words + TABLE_BEGINS + "\n" + values_table()


def schema() -> str:
    """The values' schema as it should be: what is written there, the settings and the bounds of
    the answers' histogram as they are.
    """
    written = json.loads(SCHEMA.read_text(encoding="utf-8"))
    written["definitions"]["settings"] = settings_schema()
    rules = written["properties"]["prometheusRule"]["properties"]
    rules["objectives"]["properties"]["seconds"] = {"enum": list(AGE_BUCKETS)}
    return json.dumps(written, indent=2) + "\n"


def providers() -> str:
    """The shipped providers, each with the variable of its key, as the chart should know them."""
    shipped = yaml.safe_load((CONFIG / "llm_providers.yaml").read_text(encoding="utf-8"))
    known = {name: {"api_key_env": told["api_key_env"]} for name, told in shipped.items()}
    head = "# Made from config/llm_providers.yaml by `python -m tests.deploy`.\n"
    return head + yaml.safe_dump(known, sort_keys=False)


def write() -> None:
    """Writes them all."""
    PROVIDERS.write_text(providers(), encoding="utf-8")
    README.write_text(readme(), encoding="utf-8")
    SCHEMA.write_text(schema(), encoding="utf-8")


def settings_schema() -> dict[str, Any]:
    """The settings that values may give, by environment variable, with the consumer's own limits.

    Secrets are not among them but for the file that they are read from.
    """
    known = Settings.model_json_schema()["properties"]
    properties: dict[str, Any] = {}
    for name in sorted(set(known) - NOT_FOR_VALUES):
        if _is_secret(name):
            properties[f"{name.upper()}_FILE"] = {"type": "string", "minLength": 1}
        else:
            properties[name.upper()] = _limits(known[name])
    properties |= READ_BY_CONFIGURATION
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _is_secret(name: str) -> bool:
    annotation = Settings.model_fields[name].annotation
    return SecretStr in {annotation, *get_args(annotation)}


def _limits(schema: dict[str, Any]) -> dict[str, Any]:
    """What Helm can check of one setting; an optional one is left out rather than null."""
    for choice in schema.get("anyOf", ()):
        if choice["type"] != "null":
            schema = choice
    return {key: schema[key] for key in KEPT if key in schema}


def values_table() -> str:
    """All values with their defaults and comments, as Markdown."""
    lines = ["| value | default | |", "|---|---|---|"]
    lines += [
        f"| `{path}` | `{json.dumps(default)}` | {told} |" for path, default, told in values()
    ]
    return "\n".join(lines) + "\n"


def values() -> Iterator[tuple[str, Any, str]]:
    """Path, default and comment of each value of values.yaml; without a comment it is ''.

    A map counts as one value unless something inside it has a comment of its own.
    """
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    yield from _values(yaml.compose(text), text.splitlines(), "")


def _values(node: Any, lines: list[str], prefix: str) -> Iterator[tuple[str, Any, str]]:
    for key, value in node.value:
        path = prefix + key.value
        if _explained_inside(value, lines):
            yield from _values(value, lines, path + ".")
        else:
            default = yaml.safe_load(yaml.serialize(value))
            yield path, default, _comment_above(key.start_mark.line, lines)


def _explained_inside(node: Any, lines: list[str]) -> bool:
    return (
        isinstance(node, yaml.MappingNode)
        and not node.flow_style
        and any(
            _comment_above(key.start_mark.line, lines) or _explained_inside(value, lines)
            for key, value in node.value
        )
    )


def _comment_above(line: int, lines: list[str]) -> str:
    words: list[str] = []
    while line > 0 and lines[line - 1].lstrip().startswith("#"):
        line -= 1
        words.insert(0, lines[line].lstrip("# "))
    return " ".join(words)
