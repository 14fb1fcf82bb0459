"""Stored profile versions, and which of them were activated, by whom and when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from consumer.edges.postgres.tables import Tables
from consumer.scoring.profile import Profile

Row = Mapping[str, Any]


class StoredProfiles(Tables):
    """See api.ports.Profiles and profiles.Activations."""

    async def known(self) -> list[Row]:
        """Each stored profile with its newest version."""
        return [dict(row) for row in await self._fetch("known_profiles")]

    async def versions(self, profile_id: str) -> list[Row]:
        """All versions of a profile, the newest first."""
        return [dict(row) for row in await self._fetch("profile_versions", profile_id)]

    async def version(self, profile_id: str, version: int) -> Row | None:
        """One version, with its content."""
        return await self._one("profile_version", profile_id, version)

    async def add(self, profile: Profile, *, by: str) -> bool:
        """Keeps a version; False where there is one of this number, whatever is in it."""
        found = await self._fetch("add_profile", profile.id, profile.version, profile.body(), by)
        return bool(found)

    async def activate(self, profile_id: str, version: int | None, *, by: str) -> None:
        """Has this version used in place of the file's; None: the file's again."""
        await self._fetch("activate_profile", profile_id, version, by)

    async def activations(self, profile_id: str) -> list[Row]:
        """What was activated of a profile, the newest first."""
        return [dict(row) for row in await self._fetch("profile_activations", profile_id)]

    async def mark(self) -> int:
        """Changes whenever something is activated."""
        (row,) = await self._fetch("activation_mark")
        return int(row["mark"])

    async def activated(self) -> dict[str, Any]:
        """The contents in use in place of files, by their profiles' ids."""
        found = await self._fetch("activated_profiles")
        return {row["profile_id"]: row["content"] for row in found}
