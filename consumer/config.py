"""The configuration files: scoring, providers, profiles. Everything wrong is told at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from consumer.errors import ConfigError
from consumer.scoring.profile import Profile, ProfileInvalid, by_id, describe, parse_profile
from consumer.scoring.prompt import template_problems
from consumer.substitution import SubstitutionError, substitute_in

PROMPT_SUFFIX = "_prompt"


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PriceOverride(_Strict):
    """USD per million tokens, for a model that the price list does not know."""

    input_per_million: float = Field(ge=0, allow_inf_nan=False)
    output_per_million: float = Field(ge=0, allow_inf_nan=False)


class ProviderConfig(_Strict):
    """One judge of llm_providers.yaml."""

    type: Literal["openai"]
    base_url: str = Field(pattern=r"^https?://")
    api_key_env: str | None = None
    model: str = Field(min_length=1)
    context_window: int = Field(default=128_000, ge=1024)
    max_output_tokens: int = Field(default=8192, ge=256)
    timeout_s: float = Field(default=120, gt=0, le=600)
    price: PriceOverride | None = None


class _Scoring(_Strict):
    enabled: bool = True
    llm_provider: str = ""
    llm_model: str = ""


class _ScoringFile(_Strict):
    scoring: _Scoring = _Scoring()
    labels: dict[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeConfig:
    """The chosen judge. `api_key` never leaves the edge that sends it."""

    name: str
    provider: ProviderConfig
    model: str
    api_key: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What the files say, checked. `judge` is None where no provider is chosen."""

    enabled: bool
    judge: JudgeConfig | None
    labels: Mapping[str, str]
    prompts: Mapping[str, str]
    profiles: tuple[Profile, ...]


def load(folder: Path, environment: Mapping[str, str]) -> Config:
    """The configuration in this folder. Raises ConfigError with every problem of every file."""
    problems: list[str] = []
    raw = _read(folder / "scoring_config.yaml", problems)
    prompts = {name: raw.pop(name) for name in [*raw] if name.endswith(PROMPT_SUFFIX)}
    scoring = _parse(_ScoringFile, "scoring_config.yaml", raw, environment, problems)
    problems += _prompt_problems(prompts)
    profiles = load_profiles(folder / "profiles", problems)
    problems += _profile_problems(profiles, prompts)
    judge = _judge(folder, scoring.scoring, environment, problems) if scoring else None
    if problems or scoring is None:
        raise ConfigError(problems)
    return Config(
        enabled=scoring.scoring.enabled,
        judge=judge,
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
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        problems.append(f"{path}: {error.strerror or error}")
        return {}
    except (yaml.YAMLError, ValueError) as error:  # ValueError: not UTF-8, or a 13th month
        problems.append(f"{path.name}: not valid YAML: {' '.join(str(error).split())}")
        return {}
    if not isinstance(raw, dict):
        problems.append(f"{path.name}: must be a mapping of keys to values")
        return {}
    if wrong := [key for key in raw if not isinstance(key, str)]:
        problems.append(f"{path.name}: keys must be text, not {wrong}; write them in quotes")
        return {}
    return raw


ModelT = TypeVar("ModelT", bound=BaseModel)


def _parse(
    model: type[ModelT], name: str, raw: Any, environment: Mapping[str, str], problems: list[str]
) -> ModelT | None:
    try:
        return model.model_validate(substitute_in(raw, environment))
    except SubstitutionError as error:
        problems += [f"{name}: environment variable {v} is not set" for v in error.missing]
        problems += [f"{name}: {text}" for text in error.malformed]
    except ValidationError as error:
        problems += [f"{name}: {describe(problem)}" for problem in error.errors()]
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


def _judge(
    folder: Path, scoring: _Scoring, environment: Mapping[str, str], problems: list[str]
) -> JudgeConfig | None:
    """The chosen provider. The others' variables need not be set."""
    raw = _read(folder / "llm_providers.yaml", problems)
    chosen = scoring.llm_provider
    if not chosen:
        return None
    if chosen not in raw:
        problems.append(
            f"SCORING_LLM_PROVIDER: {chosen!r} is not in llm_providers.yaml; "
            f"there are: {', '.join(raw)}"
        )
        return None
    name = f"llm_providers.yaml: {chosen}"
    provider = _parse(ProviderConfig, name, raw[chosen], environment, problems)
    if provider is None:
        return None
    key = environment.get(provider.api_key_env, "") if provider.api_key_env else ""
    if provider.api_key_env and not key:
        problems.append(f"{name}: api_key_env: {provider.api_key_env} is not set")
    return JudgeConfig(
        name=chosen, provider=provider, model=scoring.llm_model or provider.model, api_key=key
    )
