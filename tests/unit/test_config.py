"""The configuration files: what they say, and that everything wrong is told at once."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from consumer.config import (
    Config,
    JudgeConfig,
    PriceOverride,
    ProviderConfig,
    desk_profile,
    load,
    load_labels,
    load_profile,
)
from consumer.errors import ConfigError
from consumer.resources import resource
from consumer.scoring.profile import Seat, parse_profile
from tests.unit.bounds import Number, numbers
from tests.unit.builders import TEMPLATE, judged, profile, raw_profile, ruled

PROVIDER = {"type": "openai", "base_url": "https://llm.example/v1", "model": "small"}
FILES = ("scoring_config.yaml", "llm_providers.yaml")
NAN, INF = float("nan"), float("inf")
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a folder that loads; each argument replaces or adds a file (None: leaves it out)."""

    def write_files(files: Mapping[str, Any] | None = None) -> Path:
        folder = tmp_path / "config"
        contents = {
            "scoring_config.yaml": {"judge_prompt": TEMPLATE},
            "llm_providers.yaml": {"main": PROVIDER},
            "profiles/review.yaml": raw_profile(),
            **(files or {}),
        }
        for name, content in contents.items():
            if content is None:
                continue
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            text = content if isinstance(content, str) else yaml.safe_dump(content)
            path.write_bytes(text.encode("utf-8", "surrogateescape"))
        return folder

    return write_files


def scoring(**changes: Any) -> dict[str, Any]:
    return {"judge_prompt": TEMPLATE, **changes}


def problems(folder: Path, environment: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as error:
        load(folder, environment or {})
    assert str(error.value) == "\n".join(f"- {problem}" for problem in error.value.problems)
    return error.value.problems


def chosen(config: Config) -> JudgeConfig:
    """The only judge."""
    (judge,) = config.judges
    return judge


def default_model(config: Config) -> str:
    return chosen(config).models[Seat()]


# --- What ships --------------------------------------------------------------------------------


def test_the_shipped_files_load_without_any_variable() -> None:
    config = load(resource("config"), {})
    assert (config.enabled, config.judges, dict(config.labels)) == (True, (), {})
    assert {"alert-investigation", "efficiency-simple"} <= {p.id for p in config.profiles}
    assert "judge_prompt" in config.prompts


@pytest.mark.parametrize("whole", [False, True], ids=["body", "every field"])
def test_a_stored_profile_is_read_back_as_it_was(whole: bool) -> None:
    for shipped in load(resource("config"), {}).profiles:
        stored = shipped.model_dump(mode="json") if whole else shipped.body()
        assert parse_profile(stored) == shipped


def test_a_variable_may_be_in_a_file(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.write_text("mine\n")
    environment = {"SCORING_LLM_PROVIDER": "openai", "OPENAI_API_KEY": "k"}
    judge = chosen(load(resource("config"), environment | {"SCORING_LLM_MODEL_FILE": str(model)}))
    assert judge.models == {Seat(): "mine"}
    with pytest.raises(ConfigError, match="SCORING_LLM_MODEL is set as well"):
        load(
            resource("config"),
            environment | {"SCORING_LLM_MODEL": "x", "SCORING_LLM_MODEL_FILE": str(model)},
        )


def test_the_shipped_files_take_their_variables() -> None:
    environment = {"DEFAULT_LLM_PROVIDER": "openai", "OPENAI_API_KEY": "k", "SCORING_ENABLED": "no"}
    config = load(resource("config"), environment)
    assert config.enabled is False
    judge = chosen(config)
    assert (judge.name, judge.models, judge.api_key) == ("openai", {Seat(): "gpt-4o"}, "k")
    assert judge.provider.base_url == "https://api.openai.com/v1"
    environment |= {
        "SCORING_LLM_PROVIDER": "openai-compatible",
        "SCORING_LLM_MODEL": "mine",
        "LLM_API_KEY": "other",
        "LLM_BASE_URL": "http://llm.example/v1",
    }
    judge = chosen(load(resource("config"), environment))
    assert (judge.name, judge.models[Seat()]) == ("openai-compatible", "mine")
    assert judge.api_key == "other"
    assert judge.provider.base_url == "http://llm.example/v1"


# --- The judge ---------------------------------------------------------------------------------


def test_without_a_provider_there_is_no_judge(write: Write) -> None:
    config = load(write(), {})
    assert config.judges == ()
    assert config.enabled is True


def test_the_chosen_provider(write: Write) -> None:
    provider = PROVIDER | {
        "api_key_env": "MAIN_KEY",
        "price": {"input_per_million": 1, "output_per_million": 2.5},
    }
    files = {
        "scoring_config.yaml": scoring(scoring={"llm_provider": "main"}),
        "llm_providers.yaml": {"main": provider},
    }
    judge = chosen(load(write(files), {"MAIN_KEY": "secret"}))
    assert (judge.name, judge.models, judge.api_key) == ("main", {Seat(): "small"}, "secret")
    assert judge.provider.price == PriceOverride(input_per_million=1, output_per_million=2.5)
    assert (judge.provider.context_window, judge.provider.max_output_tokens) == (128_000, 8192)
    assert (judge.provider.timeout_s, judge.provider.breaker_open_s) == (120, 30)
    assert (judge.provider.dialect, judge.provider.max_concurrency) == ("json_schema", 64)
    limits = judge.provider
    assert limits.requests_per_minute is limits.tokens_per_minute is limits.daily_cap_usd is None


SMALLEST = {
    "context_window": 1024,
    "max_output_tokens": 256,
    "timeout_s": 1,
    "breaker_open_s": 0.1,
    "dialect": "none",
    "max_concurrency": 1,
    "requests_per_minute": 0.01,
    "tokens_per_minute": 1000,
    "daily_cap_usd": 0,
    "price": {"input_per_million": 0, "output_per_million": 0},
}


def test_the_smallest_provider(write: Write) -> None:
    files = {
        "scoring_config.yaml": scoring(scoring={"llm_provider": "main"}),
        "llm_providers.yaml": {"main": PROVIDER | SMALLEST},
    }
    provider = chosen(load(write(files), {})).provider
    assert provider.model_dump() == PROVIDER | SMALLEST | {"api_key_env": None}


@pytest.mark.parametrize("kind", ["openai", "gemini", "anthropic"])
def test_the_kinds_of_providers(write: Write, kind: str) -> None:
    files = {
        "scoring_config.yaml": scoring(scoring={"llm_provider": "main"}),
        "llm_providers.yaml": {"main": PROVIDER | {"type": kind}},
    }
    assert chosen(load(write(files), {})).provider.type == kind


def test_a_model_of_the_scoring_file_comes_before_the_provider_s(write: Write) -> None:
    files = {
        "scoring_config.yaml": scoring(scoring={"llm_provider": "main", "llm_model": "${BIG}"})
    }
    assert default_model(load(write(files), {"BIG": "big"})) == "big"
    assert default_model(load(write(files), {"BIG": ""})) == "small"


def test_a_model_of_the_scoring_file_is_printable(write: Write) -> None:
    files = {"scoring_config.yaml": scoring(scoring={"llm_model": "${BIG}"})}
    (problem,) = problems(write(files), {"BIG": "big\n"})
    assert problem == "scoring_config.yaml: scoring.llm_model: must be printable, in one line"


def test_a_provider_without_a_key(write: Write) -> None:
    files = {"scoring_config.yaml": scoring(scoring={"llm_provider": "main"})}
    assert chosen(load(write(files), {})).api_key == ""


@pytest.mark.parametrize("environment", [{}, {"MAIN_KEY": ""}])
def test_a_missing_key_is_told_by_its_variable(write: Write, environment: dict[str, str]) -> None:
    files = {
        "scoring_config.yaml": scoring(scoring={"llm_provider": "main"}),
        "llm_providers.yaml": {"main": PROVIDER | {"api_key_env": "MAIN_KEY"}},
    }
    expected = ["llm_providers.yaml: main: api_key_env: MAIN_KEY is not set"]
    assert problems(write(files), environment) == expected


def test_the_key_is_not_shown(write: Write) -> None:
    files = {
        "scoring_config.yaml": scoring(scoring={"llm_provider": "main"}),
        "llm_providers.yaml": {"main": PROVIDER | {"api_key_env": "MAIN_KEY"}},
    }
    config = load(write(files), {"MAIN_KEY": "sk-secret"})
    assert chosen(config).api_key == "sk-secret"
    assert "sk-secret" not in f"{config!r} {config}"


def test_an_unknown_provider_names_the_known(write: Write) -> None:
    files = {
        "scoring_config.yaml": scoring(scoring={"llm_provider": "mian"}),
        "llm_providers.yaml": {"main": PROVIDER, "other": PROVIDER},
    }
    assert problems(write(files)) == [
        "SCORING_LLM_PROVIDER: 'mian' is not in llm_providers.yaml; there are: main, other"
    ]


def test_what_other_providers_lack_does_not_matter(write: Write) -> None:
    other = PROVIDER | {"base_url": "${NOT_SET}", "api_key_env": "NOT_SET", "type": "unknown"}
    files = {
        "scoring_config.yaml": scoring(scoring={"llm_provider": "main"}),
        "llm_providers.yaml": {"other": other, "main": PROVIDER},
    }
    assert chosen(load(write(files), {})).name == "main"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"type": "bard"}, "type: Input should be 'openai', 'gemini' or 'anthropic'"),
        ({"base_url": "llm.example"}, "base_url: must begin with http:// or https://"),
        ({"base_url": "http://me:secret@h"}, "base_url: must have no user and no password"),
        ({"base_url": "http://h/v1?k=secret"}, "base_url: must have no query and no fragment"),
        ({"base_url": "http://h:secret"}, "base_url: must name a host, and a port from 1"),
        ({"model": ""}, "model: String should have at least 1 character"),
        ({"model": "gpt\n4"}, "model: must be printable, in one line"),
        ({"model": "m" * 256}, "model: String should have at most 255 characters"),
        ({"dialect": "xml"}, "dialect: Input should be 'json_schema', 'json_object' or 'none'"),
        ({"requests_per_minute": INF}, "requests_per_minute: Input should be a finite number"),
        ({"tokens_per_minute": INF}, "tokens_per_minute: Input should be a finite number"),
        ({"daily_cap_usd": INF}, "daily_cap_usd: Input should be a finite number"),
        (
            {"context_window": 8191, "max_output_tokens": 4096},
            "max_output_tokens 4096 leaves less than half of context_window 8191 for the prompt",
        ),
        ({"api_key": "sk-1"}, "api_key: Extra inputs are not permitted"),
        (
            {"price": {"input_per_million": NAN, "output_per_million": 1}},
            "price.input_per_million: Input should be ",
        ),
        (
            {"price": {"input_per_million": INF, "output_per_million": 1}},
            "price.input_per_million: Input should be a finite number",
        ),
        (
            {"price": {"input_per_million": 1, "output_per_million": -0.1}},
            "price.output_per_million: Input should be greater than or equal to 0",
        ),
        (
            {"price": {"input_per_million": 1, "output_per_million": INF}},
            "price.output_per_million: Input should be a finite number",
        ),
    ],
)
def test_a_wrong_provider_is_refused(write: Write, change: dict[str, Any], told: str) -> None:
    files = {
        "scoring_config.yaml": scoring(scoring={"llm_provider": "main"}),
        "llm_providers.yaml": {"main": PROVIDER | change},
    }
    (problem,) = problems(write(files))
    assert problem.startswith(f"llm_providers.yaml: main: {told}")
    assert "secret" not in problem


@pytest.mark.parametrize("number", numbers(ProviderConfig), ids=lambda number: number.name)
def test_a_number_of_a_provider_beyond_its_bounds_is_refused(write: Write, number: Number) -> None:
    told = f"{number.name}: Input should be "
    for value, allowed in number.beyond:
        test_a_wrong_provider_is_refused(write, {number.name: value}, f"{told}{allowed}")


@pytest.mark.parametrize(
    "change",
    [
        {"api_key": "sk-1"},
        {"api_key_env": "sk-1"},
        {"api_key_env": "${sk-1"},
        {"model": ["sk-1"]},
        {"price": "sk-1"},
        "sk-1",
    ],
)
def test_no_value_of_a_provider_is_shown(write: Write, change: Any) -> None:
    wrong = PROVIDER | change if isinstance(change, dict) else change
    files = {
        "scoring_config.yaml": scoring(scoring={"llm_provider": "main"}),
        "llm_providers.yaml": {"main": wrong},
    }
    (problem,) = problems(write(files))
    assert problem.startswith("llm_providers.yaml: main: ")
    assert "sk-1" not in problem


@pytest.mark.parametrize("line", ["key: 'sk-1", "key: sk-1: x", "key: *sk-1", "key: !sk-1 x"])
def test_no_line_of_the_providers_is_shown(write: Write, line: str) -> None:
    files = {"llm_providers.yaml": f"main: {{}}\n{line}\n"}
    (problem,) = problems(write(files))
    assert problem.startswith("llm_providers.yaml: not valid YAML: see line ")
    assert "sk-1" not in problem


@pytest.mark.parametrize("text", ["a: &a {b: *a}", "a: &a [*a]", "a: " + "[" * 2000])
@pytest.mark.parametrize("name", [*FILES, "profiles/review.yaml"])
def test_what_holds_itself_or_is_too_deep_is_told_by_its_file(
    write: Write, name: str, text: str
) -> None:
    found = [p for p in problems(write({name: text})) if p.startswith(Path(name).name)]
    (problem,) = found
    assert problem.startswith(f"{Path(name).name}: not valid YAML: ")


@pytest.mark.parametrize("key", ["sk-1\n", "sk\r\n-1", "sk-\u00e9", "sk-\x7f", "\tsk"])
def test_a_key_that_no_header_takes_is_refused_by_name(write: Write, key: str) -> None:
    files = {
        "scoring_config.yaml": scoring(scoring={"llm_provider": "main"}),
        "llm_providers.yaml": {"main": PROVIDER | {"api_key_env": "MAIN_KEY"}},
    }
    (problem,) = problems(write(files), {"MAIN_KEY": key})
    told = "api_key_env: MAIN_KEY must be printable ASCII, in one line"
    assert problem == f"llm_providers.yaml: main: {told}"


def test_a_provider_must_be_a_mapping(write: Write) -> None:
    files = {
        "scoring_config.yaml": scoring(scoring={"llm_provider": "main"}),
        "llm_providers.yaml": {"main": "https://llm.example"},
    }
    (problem,) = problems(write(files))
    assert problem.startswith("llm_providers.yaml: main: Input should be a valid dictionary")


# --- Judges of profiles ------------------------------------------------------------------------


def reviewed_by(**choice: Any) -> dict[str, Any]:
    """The files where the only profile names its judge, and the default one is called main."""
    return {
        "scoring_config.yaml": scoring(scoring={"llm_provider": "main", "llm_model": "big"}),
        "llm_providers.yaml": {
            "main": PROVIDER,
            "other": PROVIDER | {"model": "other-small", "api_key_env": "OTHER_KEY"},
            "unused": PROVIDER | {"api_key_env": "NOT_SET"},
        },
        "profiles/review.yaml": raw_profile(judge=choice),
    }


ENVIRONMENT = {"OTHER_KEY": "other's"}


def test_a_profile_s_own_provider_is_used_next_to_the_default(write: Write) -> None:
    main, other = load(write(reviewed_by(provider="other")), ENVIRONMENT).judges
    assert (main.name, main.models, main.api_key) == ("main", {Seat(): "big"}, "")
    assert (other.name, other.api_key) == ("other", "other's")
    assert other.models == {Seat(provider="other"): "other-small"}


def test_without_a_default_provider_a_profile_s_own_is_used(write: Write) -> None:
    files = reviewed_by(provider="other") | {"scoring_config.yaml": scoring()}
    assert chosen(load(write(files), ENVIRONMENT)).models == {Seat(provider="other"): "other-small"}


def test_a_profile_may_name_its_model_only(write: Write) -> None:
    judge = chosen(load(write(reviewed_by(model="huge")), ENVIRONMENT))
    assert judge.models == {Seat(): "big", Seat(model="huge"): "huge"}
    # Without a provider there is nobody to ask it of: profiles of rules work on.
    files = reviewed_by(model="huge") | {"scoring_config.yaml": scoring()}
    assert load(write(files), ENVIRONMENT).judges == ()


def test_every_member_of_a_panel_has_its_model(write: Write) -> None:
    seats = [{"provider": "other"}, {"provider": "main"}, {"provider": "other", "model": "huge"}]
    main, other = load(write(reviewed_by(panel=seats)), ENVIRONMENT).judges
    assert main.models == {Seat(): "big", Seat(provider="main"): "big"}
    assert other.models == {
        Seat(provider="other"): "other-small",
        Seat(provider="other", model="huge"): "huge",
    }


def test_a_profile_s_missing_key_is_told(write: Write) -> None:
    told = ["llm_providers.yaml: other: api_key_env: OTHER_KEY is not set"]
    assert problems(write(reviewed_by(provider="other"))) == told


def test_a_profile_s_unknown_provider_is_told_with_the_profile(write: Write) -> None:
    seats = [{"provider": "mian"}, {"provider": "main"}]
    assert problems(write(reviewed_by(panel=seats)), ENVIRONMENT) == [
        (
            "profile review: judge.provider: 'mian' is not in llm_providers.yaml; "
            "there are: main, other, unused"
        )
    ]


def test_a_profile_of_rules_needs_no_provider(write: Write) -> None:
    rules = raw_profile(method="heuristic", criteria=[ruled()], judge={"provider": "mian"})
    files = reviewed_by() | {"profiles/review.yaml": rules}
    assert chosen(load(write(files), {})).name == "main"


def test_the_judges_of_more_profiles_are_there_too(write: Write) -> None:
    more = profile(id="mine", judge={"provider": "other"})
    folder = write(reviewed_by())
    config = load(folder, ENVIRONMENT, more_profiles=[more])
    assert [judge.name for judge in config.judges] == ["main", "other"]
    assert [p.id for p in config.profiles] == ["review"]
    with pytest.raises(
        ConfigError, match=r"profile mine: judge\.prompt: there is no 'long_prompt'"
    ):
        load(
            folder, ENVIRONMENT, more_profiles=[profile(id="mine", judge={"prompt": "long_prompt"})]
        )


# --- Prompts and labels ------------------------------------------------------------------------


def test_prompts_are_not_substituted(write: Write) -> None:
    prompt = TEMPLATE + " ${NOT_SET} $$ ${"
    config = load(write({"scoring_config.yaml": scoring(judge_prompt=prompt)}), {})
    assert config.prompts == {"judge_prompt": prompt}


def test_every_key_that_ends_in_prompt_is_one(write: Write) -> None:
    files = {
        "scoring_config.yaml": scoring(short_prompt=TEMPLATE),
        "profiles/review.yaml": raw_profile(judge={"prompt": "short_prompt"}),
    }
    assert list(load(write(files), {}).prompts) == ["judge_prompt", "short_prompt"]


def test_unusable_prompts_are_told_by_name(write: Write) -> None:
    files = {
        "scoring_config.yaml": scoring(
            judge_prompt="{{OUTPUT_SCHEMA}} {{SESSION}}", other_prompt=["a list"]
        )
    }
    first, second, third = problems(write(files))
    assert first.startswith("scoring_config.yaml: judge_prompt: unknown placeholder {{SESSION}}; ")
    assert second == "scoring_config.yaml: judge_prompt: lacks {{SESSION_CONVERSATION}}"
    assert third == "scoring_config.yaml: other_prompt: must be a text"


def test_a_profile_s_prompt_must_exist(write: Write) -> None:
    files = {"profiles/review.yaml": raw_profile(judge={"prompt": "long_prompt"})}
    told = "profile review: judge.prompt: there is no {} in scoring_config.yaml; there are: {}"
    assert problems(write(files)) == [told.format("'long_prompt'", "judge_prompt")]
    without = {"scoring_config.yaml": {"labels": {}}, "profiles/review.yaml": raw_profile()}
    assert problems(write(without)) == [told.format("'judge_prompt'", "none")]


def test_a_profile_of_rules_needs_no_prompt(write: Write) -> None:
    rules = raw_profile(method="heuristic", criteria=[ruled()])
    files = {"scoring_config.yaml": {"labels": {}}, "profiles/review.yaml": rules}
    assert load(write(files), {}).prompts == {}


def test_labels_by_alert_type(write: Write) -> None:
    files = {"scoring_config.yaml": scoring(labels={"BuildFailed": "${LABEL:-code}"})}
    assert load(write(files), {}).labels == {"BuildFailed": "code"}
    assert load(write(files), {"LABEL": "ci"}).labels == {"BuildFailed": "ci"}


# --- Profiles ----------------------------------------------------------------------------------


def test_the_order_of_profiles_is_that_of_their_ids(write: Write) -> None:
    files = {
        "profiles/review.yaml": raw_profile(id="c"),
        "profiles/a.yaml": raw_profile(id="b"),
        "profiles/z.yml": raw_profile(id="a"),
        "profiles/notes.txt": "not a profile",
    }
    assert [p.id for p in load(write(files), {}).profiles] == ["a", "b", "c"]


def test_two_profiles_of_one_id_are_refused(write: Write) -> None:
    files = {"profiles/same.yaml": raw_profile(), "profiles/other.yaml": raw_profile(id="other")}
    assert problems(write(files)) == ["same.yaml: id: profile 'review' exists already"]


def test_a_folder_without_profiles_is_told(write: Write) -> None:
    folder = write({"profiles/review.yaml": None})
    expected = f"{folder / 'profiles'}: there is no profile (*.yaml)"
    assert problems(folder) == [expected]
    # Whatever else is wrong.
    assert expected in problems(write({"scoring_config.yaml": "[", "profiles/review.yaml": None}))


def test_variables_are_not_replaced_in_profiles(write: Write) -> None:
    files = {"profiles/review.yaml": raw_profile(name="${NOT_SET}")}
    assert load(write(files), {}).profiles[0].name == "${NOT_SET}"


def test_a_profile_from_a_file_of_its_own(write: Write) -> None:
    told: list[str] = ["earlier"]
    loaded = load_profile(write() / "profiles" / "review.yaml", told)
    assert loaded is not None
    assert (loaded.id, told) == ("review", ["earlier"])
    assert load_profile(write() / "nobody.yaml", told) is None
    assert len(told) == 2


# --- At one's desk ------------------------------------------------------------------------------


def test_a_desk_s_profile_by_its_file_or_its_id(write: Write) -> None:
    folder = write({"profiles/other.yml": raw_profile(id="other")})
    told: list[str] = []
    for name in ("other", str(folder / "profiles" / "other.yml")):
        found = desk_profile(name, folder, told)
        assert found is not None
        assert found.id == "other"
    assert told == []


def test_an_unknown_desk_profile_names_the_known(write: Write) -> None:
    folder, told = write({"profiles/other.yaml": raw_profile(id="other")}), list[str]()
    assert desk_profile("vibes", folder, told) is None
    assert told == ["--profile: there is no 'vibes'; there are: other, review"]
    told.clear()
    assert desk_profile(str(folder / "vibes.yaml"), folder, told) is None
    assert told == [f"{folder / 'vibes.yaml'}: No such file or directory"]


def test_a_desk_profile_that_may_be_in_a_broken_file_is_not_called_unknown(write: Write) -> None:
    told: list[str] = []
    assert desk_profile("vibes", write({"profiles/vibes.yaml": "id: ["}), told) is None
    (problem,) = told
    assert problem.startswith("vibes.yaml: not valid YAML")


def test_labels_alone(write: Write) -> None:
    labels = {"BuildFailed": "${LABEL:-code}"}
    rest = scoring(labels=labels, scoring={"enabled": "${NOT_SET}"})
    assert load_labels(write({"scoring_config.yaml": rest})) == {"BuildFailed": "code"}
    assert load_labels(write({"scoring_config.yaml": scoring()})) == {}


@pytest.mark.parametrize("content", ["[", {"labels": {"A": 1}}, {"labels": ["A"]}, None])
def test_labels_that_cannot_be_read_are_told(write: Write, content: Any) -> None:
    with pytest.raises(ConfigError, match=r"scoring_config\.yaml"):
        load_labels(write({"scoring_config.yaml": content}))


# --- What is wrong is told ---------------------------------------------------------------------


def test_everything_wrong_in_all_files_is_told_at_once(write: Write) -> None:
    files = {
        "scoring_config.yaml": scoring(
            judge_prompt="{{OUTPUT_SCHEMA}}",
            scoring={"enabled": "perhaps", "llm_provider": "main"},
            labels={"A": 1},
        ),
        "profiles/a.yaml": raw_profile(id="a", version=0, criteria=[judged(weight=0)]),
        "profiles/b.yaml": "[not, a, mapping]",
        "profiles/c.yaml": "id: [",
    }
    found = problems(write(files))
    assert [problem.split(": ")[:2] for problem in found] == [
        ["scoring_config.yaml", "scoring.enabled"],
        ["scoring_config.yaml", "labels.A"],
        ["scoring_config.yaml", "judge_prompt"],
        ["a.yaml", "version"],
        ["a.yaml", "criteria.0.weight"],
        ["b.yaml", "must be a mapping of keys to values"],
        ["c.yaml", "not valid YAML"],
    ]


def test_every_missing_variable_is_told(write: Write) -> None:
    files = {
        "scoring_config.yaml": scoring(
            scoring={"llm_provider": "${ONE}", "llm_model": "${TWO} ${"}, labels={"A": "${ONE}"}
        )
    }
    one, two, malformed = problems(write(files))
    assert one == "scoring_config.yaml: environment variable ONE is not set"
    assert two == "scoring_config.yaml: environment variable TWO is not set"
    assert malformed.startswith("scoring_config.yaml: ")
    assert "${TWO} ${" in malformed


def test_the_provider_s_missing_variables_come_with_its_name(write: Write) -> None:
    files = {
        "scoring_config.yaml": scoring(scoring={"llm_provider": "main"}),
        "llm_providers.yaml": {"main": PROVIDER | {"base_url": "${ONE}", "model": "${TWO}"}},
        "profiles/review.yaml": raw_profile(version=0),
    }
    version, one, two = problems(write(files))
    assert version.startswith("review.yaml: version: ")
    assert one == "llm_providers.yaml: main: environment variable ONE is not set"
    assert two == "llm_providers.yaml: main: environment variable TWO is not set"


def test_missing_files_are_told(write: Write) -> None:
    folder = write({"scoring_config.yaml": None, "llm_providers.yaml": None})
    told = problems(folder)
    missing = [f"{folder / name}: No such file or directory" for name in FILES]
    assert [problem for problem in told if "No such file" in problem] == missing


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: [", "not valid YAML: "),
        ("a: b: c", "not valid YAML: "),
        ("a: \udcff", "not valid YAML: "),
        ("a: 2024-13-45", "not valid YAML: "),
        ("a: !!python/object:os.system {}", "not valid YAML: "),
        ("", "must be a mapping of keys to values"),
        ("- a", "must be a mapping of keys to values"),
        ("text", "must be a mapping of keys to values"),
        ("1: a", "keys must be text, not [1]; write them in quotes"),
        ("on: a", "keys must be text, not [True]; write them in quotes"),
    ],
)
@pytest.mark.parametrize("name", [*FILES, "profiles/review.yaml"])
def test_what_is_no_mapping_in_yaml_is_told_by_file(
    write: Write, name: str, text: str, told: str
) -> None:
    found = [p for p in problems(write({name: text})) if p.startswith(Path(name).name)]
    (problem,) = found
    assert problem.startswith(f"{Path(name).name}: {told}")
    assert "\n" not in problem


@pytest.mark.parametrize("key", ["scorign", "label", "prompt"])
def test_a_misspelt_key_is_refused(write: Write, key: str) -> None:
    (problem,) = problems(write({"scoring_config.yaml": scoring(**{key: {}})}))
    assert problem.startswith(f"scoring_config.yaml: {key}: Extra inputs are not permitted")
