"""Who we are to the History Service: what it is sent, from the settings on."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fastapi import FastAPI, Request

from consumer.demo.world import served
from consumer.errors import ConfigError, HistoryUnavailable
from consumer.history import open_history
from consumer.settings import Settings, load_settings

HIDDEN = "s3cret"
Sent = list[dict[str, str]]


@pytest.fixture
async def history() -> AsyncIterator[tuple[str, Sent]]:
    """The address of a service that lists no sessions, and the headers of what it was asked."""
    sent: Sent = []
    app = FastAPI()

    @app.get("/api/v1/history/sessions")
    async def sessions(request: Request) -> dict[str, object]:
        sent.append(dict(request.headers))
        return {"sessions": [], "pagination": {"total_pages": 0}}

    async with served(app) as url:
        yield url, sent


async def asked(settings: Settings, times: int = 1) -> None:
    async with open_history(settings, {}) as service:
        for _ in range(times):
            await service.probe()


async def test_nobody_in_particular(
    history: tuple[str, Sent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HISTORY_URL", history[0])
    await asked(load_settings())
    assert "authorization" not in history[1][0]


@pytest.mark.parametrize(
    ("variable", "text", "header", "value"),
    [
        ("HISTORY_TOKEN", HIDDEN, "authorization", f"Bearer {HIDDEN}"),
        ("HISTORY_HEADER", f"X-Api-Key: {HIDDEN}", "x-api-key", HIDDEN),
        ("HISTORY_HEADER", f"Authorization: Api {HIDDEN}", "authorization", f"Api {HIDDEN}"),
    ],
)
@pytest.mark.parametrize("by_file", [False, True])
async def test_the_header_that_the_settings_name(
    history: tuple[str, Sent],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    variable: str,
    text: str,
    header: str,
    value: str,
    by_file: bool,
) -> None:
    if by_file:
        (tmp_path / "secret").write_text(f"{text}\n")
        variable, text = f"{variable}_FILE", str(tmp_path / "secret")
    monkeypatch.setenv("HISTORY_URL", history[0])
    monkeypatch.setenv(variable, text)

    await asked(load_settings(), times=2)

    assert [sent[header] for sent in history[1]] == [value, value]


async def test_a_token_that_is_renewed_in_its_file(
    history: tuple[str, Sent], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As Kubernetes does: another file takes the place of the link's. What is then unreadable
    leaves the last one.
    """
    path, old, new = tmp_path / "token", tmp_path / "old", tmp_path / "new"
    old.write_text("first\n")
    path.symlink_to(old)
    monkeypatch.setenv("HISTORY_URL", history[0])
    monkeypatch.setenv("HISTORY_TOKEN_FILE", str(path))

    async with open_history(load_settings(), {}) as service:
        await service.probe()
        new.write_text("other\n")
        os.utime(new, ns=(1, 1))
        (tmp_path / "link").symlink_to(new)
        (tmp_path / "link").replace(path)
        await service.probe()
        new.write_text("two words\n")
        await service.probe()
        path.unlink()
        await service.probe()

    bearers = [sent["authorization"] for sent in history[1]]
    assert bearers == ["Bearer first", "Bearer other", "Bearer other", "Bearer other"]


@pytest.mark.parametrize(
    "variables",
    [
        {"HISTORY_TOKEN": "two words"},
        {"HISTORY_TOKEN": f"{HIDDEN}\nX: y"},
        {"HISTORY_HEADER": HIDDEN},
        {"HISTORY_HEADER": f"{HIDDEN}:"},
        {"HISTORY_HEADER": f"a b: {HIDDEN}"},
        {"HISTORY_HEADER": f"X-Key: {HIDDEN}\nY: z"},
        {"HISTORY_TOKEN": "t", "HISTORY_HEADER": f"authorization: {HIDDEN}"},
        {"HISTORY_TOKEN": HIDDEN, "HISTORY_URL": "http://me:hunter2@h"},
        {"HISTORY_HEADER": f"authorization: {HIDDEN}", "HISTORY_URL": "http://me:hunter2@h"},
    ],
)
def test_what_can_t_be_sent_is_refused(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    with pytest.raises(ConfigError) as refused:
        load_settings()
    assert str(refused.value).count("HISTORY_") >= 1
    assert HIDDEN not in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("status", [401, 403])
async def test_who_is_not_let_in_is_told_what_to_set(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    app = FastAPI()

    @app.middleware("http")
    async def refuse(_: Request, __: object) -> object:
        from starlette.responses import JSONResponse

        return JSONResponse({"detail": "who are you?"}, status_code=status)

    async with served(app) as url:
        monkeypatch.setenv("HISTORY_URL", url)
        monkeypatch.setenv("HISTORY_TOKEN", HIDDEN)
        with pytest.raises(HistoryUnavailable, match="does not let us in; see HISTORY_TOKEN") as no:
            await asked(load_settings())
    assert HIDDEN not in str(no.value)
