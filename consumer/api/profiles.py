"""Profiles over HTTP: looking at them, storing versions, and saying which is used.

A version is stored first, and used once it is activated. An activated version is used in place of
the configuration's file of the same id, by all replicas, until another is activated or the file's
again.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from consumer.api.access import Caller, Scope, needs
from consumer.api.difference import differences
from consumer.api.ports import Ports, Row, Wired
from consumer.api.problems import Problem, shown
from consumer.api.values import PREFIX, ProfilePath
from consumer.scoring.profile import Profile, ProfileInvalid, parse_profile
from consumer.scoring.text import storable_json

router = APIRouter(prefix=PREFIX, tags=["profiles"])

Version = Annotated[int, Field(ge=1, le=2**31 - 1, strict=True)]
VersionPath = Annotated[int, Path(ge=1, le=2**31 - 1)]
VersionQuery = Annotated[int, Query(ge=1, le=2**31 - 1)]
Source = Literal["file", "activated"]


class Listed(BaseModel):
    """A profile as the list shows it; `version` and all below are null where it is not in use."""

    id: str
    newest_version: int
    version: int | None
    source: Source | None
    name: str | None
    method: str | None
    match_labels: list[str] | None
    criteria_hash: str | None


class Profiles(BaseModel):
    """All profiles, in use or stored only."""

    profiles: list[Listed]


class StoredVersion(BaseModel):
    """Who stored a version, and when. Files are stored by `config`."""

    version: int
    created_at: datetime
    created_by: str


class Activation(BaseModel):
    """Who had which version used, and when; null: that of the file again."""

    version: int | None
    activated_by: str
    created_at: datetime


class Shown(BaseModel):
    """A profile with all its defaults, and its past; `profile` is null where it is not in use."""

    id: str
    source: Source | None
    criteria_hash: str | None
    profile: dict[str, Any] | None
    versions: list[StoredVersion]
    activations: list[Activation]


class VersionContent(StoredVersion):
    """A stored version with all its defaults."""

    profile: dict[str, Any]


class Activate(BaseModel):
    """The version to be used; null: the file's."""

    model_config = ConfigDict(extra="forbid")

    version: Version | None


class Change(BaseModel):
    """One difference; null is what is not there."""

    place: str
    old: Any
    new: Any


class Diff(BaseModel):
    """How two versions differ, defaults included."""

    changes: list[Change]


@router.get("/profiles", dependencies=[needs(Scope.READ)])
async def list_profiles(wired: Wired) -> Profiles:
    """All profiles: which version is used, and where it comes from."""
    newest = {row["profile_id"]: row["version"] for row in await wired.profiles.known()}
    for profile_id in wired.criteria.ids:
        newest.setdefault(profile_id, 0)
    return Profiles(profiles=[_listed(name, newest[name], wired) for name in sorted(newest)])


@router.get("/profiles/{profile_id}", dependencies=[needs(Scope.READ)])
async def show(profile_id: ProfilePath, wired: Wired) -> Shown:
    """A profile as it is used now, its versions, and what was activated when and by whom."""
    return await _shown(profile_id, wired)


@router.get("/profiles/{profile_id}/versions/{version}", dependencies=[needs(Scope.READ)])
async def show_version(
    profile_id: ProfilePath, version: VersionPath, wired: Wired
) -> VersionContent:
    """One stored version."""
    row = await _version(profile_id, version, wired)
    content = await _full(row["content"])
    return VersionContent.model_validate({**row, "profile": content})


@router.get("/profiles/{profile_id}/diff", dependencies=[needs(Scope.READ)])
async def diff(
    profile_id: ProfilePath,
    wired: Wired,
    old: Annotated[VersionQuery, Query(alias="from")],
    new: Annotated[VersionQuery, Query(alias="to")],
) -> Diff:
    """How two stored versions differ."""
    before, after = [await _version(profile_id, version, wired) for version in (old, new)]
    found = differences(await _full(before["content"]), await _full(after["content"]))
    return Diff(changes=[Change(place=p, old=o, new=n) for p, o, n in found])


@router.put(
    "/profiles/{profile_id}",
    status_code=201,
    dependencies=[needs(Scope.ADMIN)],
    responses={200: {"model": StoredVersion, "description": "The newest version is the same"}},
)
async def store(
    profile_id: ProfilePath,
    content: Annotated[dict[str, Any], Body(description="As in a profile file.")],
    wired: Wired,
    caller: Caller,
    response: Response,
) -> StoredVersion:
    """Stores a new version, checked as files are; it is used once it is activated.

    `version` may be left out: the next one. 409 where it is not the next one.
    """
    versions = await wired.profiles.versions(profile_id)
    newest = versions[0]["version"] if versions else 0
    profile = await _parsed(profile_id, {"version": newest + 1, **content}, wired)
    if newest and await _is_newest(profile, newest, given="version" in content, wired=wired):
        response.status_code = 200
        return StoredVersion.model_validate(dict(versions[0]))
    if profile.version != newest + 1 or not await wired.profiles.add(profile, by=caller):
        raise Problem(
            409,
            "version_taken",
            f"the next version of {profile_id!r} is {newest + 1}, not {profile.version}",
            newest_version=newest,
        )
    return StoredVersion.model_validate(dict(await _version(profile_id, profile.version, wired)))


@router.post("/profiles/{profile_id}/activate", dependencies=[needs(Scope.ADMIN)])
async def activate(profile_id: ProfilePath, what: Activate, wired: Wired, caller: Caller) -> Shown:
    """Has a stored version used by all replicas, within about a second; `null`: the file's again.

    Scores already made stay what they are; those by another version are no longer under the
    current criteria.
    """
    if what.version is None:
        if not await wired.profiles.activations(profile_id):
            raise Problem(409, "not_activated", f"of {profile_id!r} nothing was ever activated")
    else:
        row = await _version(profile_id, what.version, wired)
        await _parsed(profile_id, row["content"], wired)
    await wired.profiles.activate(profile_id, what.version, by=caller)
    await wired.criteria.refresh_now()
    return await _shown(profile_id, wired)


async def _parsed(profile_id: str, content: dict[str, Any], wired: Ports) -> Profile:
    """The profile. Raises Problem 422 with everything that is wrong in it."""
    try:
        if storable_json(content) != content:
            raise ProfileInvalid(["text must hold neither U+0000 nor half a surrogate pair"])
        # A hundred patterns take seconds to compile.
        profile = await asyncio.to_thread(wired.criteria.checked, content)
        if profile.id != profile_id:
            raise ProfileInvalid([f"id: must be {profile_id!r}, as in the path"])
    except ProfileInvalid as error:
        problems = [shown(problem, limit=1000) for problem in error.problems]
        raise Problem(422, "invalid_profile", problems[0], errors=problems) from error
    except RecursionError as error:
        raise Problem(422, "invalid_profile", "it is nested too deeply") from error
    return profile


async def _is_newest(profile: Profile, newest: int, *, given: bool, wired: Ports) -> bool:
    """Whether the newest version is the same, so that nothing need be stored."""
    row = await _version(profile.id, newest, wired)
    try:
        known = await asyncio.to_thread(parse_profile, row["content"])
    except ProfileInvalid:  # stored by a version that knew more
        return False
    return (profile if given else profile.model_copy(update={"version": newest})) == known


async def _version(profile_id: str, version: int, wired: Ports) -> Row:
    row = await wired.profiles.version(profile_id, version)
    if row is None:
        raise Problem(
            404, "unknown_version", f"profile {profile_id!r} has no version {version} stored"
        )
    return row


async def _shown(profile_id: str, wired: Ports) -> Shown:
    versions = await wired.profiles.versions(profile_id)
    used = wired.criteria.by_id(profile_id)
    if not versions and used is None:
        known = ", ".join(wired.criteria.ids)
        raise Problem(
            404, "unknown_profile", f"there is no profile {profile_id!r}; in use are: {known}"
        )
    return Shown(
        id=profile_id,
        source=_source(profile_id, wired),
        criteria_hash=wired.criteria.hash_of(profile_id),
        profile=used.model_dump(mode="json") if used else None,
        versions=[StoredVersion.model_validate(dict(row)) for row in versions],
        activations=[
            Activation.model_validate(dict(row))
            for row in await wired.profiles.activations(profile_id)
        ],
    )


def _listed(profile_id: str, newest: int, wired: Ports) -> Listed:
    used = wired.criteria.by_id(profile_id)
    return Listed(
        id=profile_id,
        newest_version=newest or (used.version if used else 0),
        version=used.version if used else None,
        source=_source(profile_id, wired),
        name=used.name if used else None,
        method=used.method if used else None,
        match_labels=list(used.match_labels) if used else None,
        criteria_hash=wired.criteria.hash_of(profile_id),
    )


def _source(profile_id: str, wired: Ports) -> Source | None:
    if wired.criteria.by_id(profile_id) is None:
        return None
    return "activated" if wired.criteria.is_activated(profile_id) else "file"


async def _full(content: dict[str, Any]) -> dict[str, Any]:
    """With all defaults, where this version can read it."""
    try:
        profile = await asyncio.to_thread(parse_profile, content)
        return profile.model_dump(mode="json")
    except ProfileInvalid:
        return content
