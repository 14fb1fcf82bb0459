"""The configuration files: scoring, providers, profiles. Everything wrong is told at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from consumer.addresses import http_address
from consumer.environment import from_files
from consumer.errors import ConfigError
from consumer.files import MIB, read_bytes
from consumer.limits.breaker import OPEN_S
from consumer.scoring.profile import (
    ModelName,
    Printable,
    Profile,
    ProfileInvalid,
    ProviderName,
    Seat,
    by_id,
    describe,
    parse_profile,
)
from consumer.scoring.prompt import template_problems
from consumer.substitution import SubstitutionError, substitute_in, variables

MAX_FILE_BYTES = 4 * MIB
PROMPT_SUFFIX = "_prompt"
# Whoever writes a key here, where none belongs, does not find it in the logs.
_SECRETIVE = "llm_providers.yaml"


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


_Number = Annotated[float, Field(allow_inf_nan=False)]


class PriceOverride(_Strict):
    """USD per million tokens, for a model that the price list does not know."""

    input_per_million: _Number = Field(ge=0, le=1_000_000)
    output_per_million: _Number = Field(ge=0, le=1_000_000)


class ProviderConfig(_Strict):
    """One judge of llm_providers.yaml. Limits are this process's; the cap is all replicas'."""

    type: Literal["openai", "gemini", "anthropic"]
    base_url: str
    api_key_env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    model: Annotated[str, Field(min_length=1, max_length=255), Printable]
    context_window: int = Field(default=128_000, ge=1024, le=100_000_000)
    max_output_tokens: int = Field(default=8192, ge=256, le=10_000_000)
    timeout_s: float = Field(default=120, ge=1, le=600)
    dialect: Literal["json_schema", "json_object", "none"] = "json_schema"
    max_concurrency: int = Field(default=64, ge=1, le=4096)
    requests_per_minute: _Number | None = Field(default=None, ge=0.01, le=10_000_000)
    # Of the smallest context one call a minute.
    tokens_per_minute: _Number | None = Field(default=None, ge=1000, le=10_000_000_000)
    breaker_open_s: float = Field(default=OPEN_S, ge=0.1, le=3600)
    daily_cap_usd: _Number | None = Field(default=None, ge=0, le=1_000_000_000)
    price: PriceOverride | None = None

    @field_validator("base_url")
    @classmethod
    def _is_an_address(cls, url: str) -> str:
        return http_address(url, credentials=False)  # the key is sent in their place

    @model_validator(mode="after")
    def _answer_fits_context(self) -> Self:
        if self.max_output_tokens * 2 > self.context_window:
            raise ValueError(
                f"max_output_tokens {self.max_output_tokens} leaves less than half of "
                f"context_window {self.context_window} for the prompt"
            )
        return self


class _Scoring(_Strict):
    enabled: bool = True
    llm_provider: ProviderName = ""
    llm_model: ModelName = ""


class _ScoringFile(_Strict):
    scoring: _Scoring = _Scoring()
    labels: dict[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeConfig:
    """A provider that is used, and its models by seat, as profiles write them.

    `api_key` never leaves the edge that sends it.
    """

    name: str
    provider: ProviderConfig
    models: Mapping[Seat, str]
    api_key: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What the files say, checked. No judges where no provider is chosen."""

    enabled: bool
    judges: tuple[JudgeConfig, ...]
    labels: Mapping[str, str]
    prompts: Mapping[str, str]
    profiles: tuple[Profile, ...]


def load(
    folder: Path, environment: Mapping[str, str], *, more_profiles: Sequence[Profile] = ()
) -> Config:
    """The configuration in this folder, with the judges that more profiles name.

    Raises ConfigError with every problem of every file.
    """
    problems: list[str] = []
    raw = _read(folder / "scoring_config.yaml", problems)
    prompts = {name: raw.pop(name) for name in [*raw] if name.endswith(PROMPT_SUFFIX)}
    scoring = _parse(_ScoringFile, "scoring_config.yaml", raw, environment, problems)
    problems += _prompt_problems(prompts)
    profiles = load_profiles(folder / "profiles", problems)
    asking = (*profiles, *(profile for profile in more_profiles if profile not in profiles))
    problems += _profile_problems(asking, prompts)
    judges = _judges(folder, scoring.scoring, asking, environment, problems) if scoring else ()
    if problems or scoring is None:
        raise ConfigError(problems)
    return Config(
        enabled=scoring.scoring.enabled,
        judges=judges,
        labels=scoring.labels,
        prompts=prompts,
        profiles=profiles,
    )


def load_profiles(folder: Path, problems: list[str]) -> tuple[Profile, ...]:
    """The profiles of a folder, in the order of their ids; problems are added to the list."""
    profiles: dict[str, Profile] = {}
    found = len(problems)
    for path in sorted(folder.glob("*.y*ml")):
        profile = load_profile(path, problems)
        if profile is None:
            continue
        if profile.id in profiles:
            problems.append(f"{path.name}: id: profile {profile.id!r} exists already")
        profiles[profile.id] = profile
    if not profiles and len(problems) == found:
        problems.append(f"{folder}: there is no profile (*.yaml)")
    # By id, not by file name: which profile is chosen must not depend on what files are called.
    return tuple(profiles[name] for name in sorted(profiles))


def load_profile(path: Path, problems: list[str]) -> Profile | None:
    """One profile, or None with its problems added to the list."""
    found = len(problems)
    raw = _read(path, problems)
    if len(problems) > found:
        return None
    try:
        return parse_profile(raw)
    except ProfileInvalid as error:
        problems += [f"{path.name}: {problem}" for problem in error.problems]
        return None


def desk_profile(name: str, folder: Path, problems: list[str]) -> Profile | None:
    """A profile by its file or, among the configured ones, by its id."""
    if name.endswith((".yaml", ".yml")):
        return load_profile(Path(name), problems)
    profiles = load_profiles(folder / "profiles", problems)
    found = by_id(profiles, name)
    if found is None and not problems:
        known = ", ".join(profile.id for profile in profiles)
        problems.append(f"--profile: there is no {name!r}; there are: {known}")
    return found


def load_labels(folder: Path) -> Mapping[str, str]:
    """The labels by alert type. Raises ConfigError."""
    problems: list[str] = []
    raw = _read(folder / "scoring_config.yaml", problems)
    labels = _parse(
        _ScoringFile, "scoring_config.yaml", {"labels": raw.get("labels", {})}, {}, problems
    )
    if problems or labels is None:
        raise ConfigError(problems)
    return labels.labels


def _read(path: Path, problems: list[str]) -> dict[str, Any]:
    try:
        raw = yaml.safe_load(read_bytes(path, MAX_FILE_BYTES).decode())
        _refuse_endless(raw, set(), set())
    except OSError as error:
        problems.append(f"{path}: {error.strerror or error}")
        return {}
    # ValueError: not UTF-8, or a 13th month. RecursionError: nested too deeply.
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problems.append(f"{path.name}: not valid YAML: {_why(path.name, error)}")
        return {}
    if not isinstance(raw, dict):
        problems.append(f"{path.name}: must be a mapping of keys to values")
        return {}
    if wrong := [key for key in raw if not isinstance(key, str)]:
        problems.append(f"{path.name}: keys must be text, not {wrong}; write them in quotes")
        return {}
    return raw


def _refuse_endless(value: Any, within: set[int], done: set[int]) -> None:
    """Raises ValueError where a value holds itself, by its alias; RecursionError for a deep one."""
    if not isinstance(value, dict | list) or id(value) in done:
        return
    if id(value) in within:
        raise ValueError("a value holds itself")
    within.add(id(value))
    for inner in value.values() if isinstance(value, dict) else value:
        _refuse_endless(inner, within, done)
    within.discard(id(value))
    done.add(id(value))


def _why(name: str, error: Exception) -> str:
    """What is wrong, or only where, for the reason may show the line."""
    if name != _SECRETIVE:
        return " ".join(str(error).split())
    mark = getattr(error, "problem_mark", None)
    return f"see line {mark.line + 1}" if mark else "it can't be read"


ModelT = TypeVar("ModelT", bound=BaseModel)


def _parse(
    model: type[ModelT], name: str, raw: Any, environment: Mapping[str, str], problems: list[str]
) -> ModelT | None:
    shows = not name.startswith(_SECRETIVE)
    try:
        files = from_files(variables(raw), environment, problems)
        return model.model_validate(substitute_in(raw, {**environment, **files}))
    except SubstitutionError as error:
        problems += [f"{name}: environment variable {v} is not set" for v in error.missing]
        hidden = "a ${NAME} or ${NAME:-default} is not closed or no name"
        problems += [f"{name}: {text if shows else hidden}" for text in error.malformed]
    except ValidationError as error:
        told = error.errors(include_input=shows)
        problems += [f"{name}: {describe(problem)}" for problem in told]
    return None


def _prompt_problems(prompts: Mapping[str, Any]) -> list[str]:
    return [
        f"scoring_config.yaml: {name}: {problem}"
        for name, prompt in prompts.items()
        for problem in (
            template_problems(prompt) if isinstance(prompt, str) else ["must be a text"]
        )
    ]


def _profile_problems(profiles: tuple[Profile, ...], prompts: Mapping[str, Any]) -> list[str]:
    known = ", ".join(prompts) or "none"
    return [
        f"profile {p.id}: judge.prompt: there is no {p.judge.prompt!r} in scoring_config.yaml; "
        f"there are: {known}"
        for p in profiles
        if p.needs_judge and p.judge.prompt not in prompts
    ]


def _judges(
    folder: Path,
    scoring: _Scoring,
    profiles: tuple[Profile, ...],
    environment: Mapping[str, str],
    problems: list[str],
) -> tuple[JudgeConfig, ...]:
    """The providers that are used. The others' variables need not be set."""
    raw = _read(folder / "llm_providers.yaml", problems)
    used: dict[str, list[Seat]] = {}
    for seat, place in _seats(profiles).items():
        name = seat.provider or scoring.llm_provider
        if name in raw:
            used.setdefault(name, []).append(seat)
        elif name and (seat.provider or seat == Seat()):
            problems.append(
                f"{place}: {name!r} is not in llm_providers.yaml; there are: {', '.join(raw)}"
            )
    judges = (
        _judge(name, raw[name], seats, scoring, environment, problems)
        for name, seats in used.items()
    )
    return tuple(judge for judge in judges if judge is not None)


def _seats(profiles: tuple[Profile, ...]) -> dict[Seat, str]:
    """Every judge that is named, the default one first, and the place that names it."""
    named = {Seat(): "SCORING_LLM_PROVIDER"}
    for profile in profiles:
        for seat in profile.judge.seats if profile.needs_judge else ():
            named.setdefault(seat, f"profile {profile.id}: judge.provider")
    return named


def _judge(
    name: str,
    raw: Any,
    seats: list[Seat],
    scoring: _Scoring,
    environment: Mapping[str, str],
    problems: list[str],
) -> JudgeConfig | None:
    place = f"llm_providers.yaml: {name}"
    provider = _parse(ProviderConfig, place, raw, environment, problems)
    if provider is None:
        return None
    key = _api_key(provider.api_key_env, place, environment, problems)
    chosen = scoring.llm_model if name == scoring.llm_provider else ""
    models = {seat: seat.model or chosen or provider.model for seat in seats}
    return JudgeConfig(name=name, provider=provider, models=models, api_key=key)


def _api_key(
    name: str | None, place: str, environment: Mapping[str, str], problems: list[str]
) -> str:
    """The variable's text, or the file's that NAME_FILE names."""
    if name is None:
        return ""
    found = len(problems)
    files = from_files([name], environment, problems)
    key = files.get(name) or environment.get(name, "")
    if not key and len(problems) == found:
        problems.append(f"{place}: api_key_env: {name} is not set")
    if not (key.isascii() and key.isprintable()):  # no header takes it
        problems.append(f"{place}: api_key_env: {name} must be printable ASCII, in one line")
    return key
