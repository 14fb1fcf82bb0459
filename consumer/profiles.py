"""The profiles in use: those of the files, with what was activated over HTTP in their place.

An activation is a row in the database, so that it outlives restarts and holds for all replicas;
each looks for new ones about once a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, overload

import structlog

from consumer.judge.panel import Judge
from consumer.pipeline import criteria_of
from consumer.scoring.criteria import Criteria
from consumer.scoring.profile import Profile, ProfileInvalid, Seat, by_id, parse_profile, select

log = structlog.get_logger()


class Activations(Protocol):
    """What was activated. Raises NotReachable."""

    async def mark(self) -> int:
        """Changes whenever something is activated."""

    async def activated(self) -> Mapping[str, Any]:
        """The contents in use in place of files, by their profiles' ids."""


class CriteriaKept(Protocol):
    """Where criteria are kept by their hash."""

    async def register_criteria(self, criteria: Criteria) -> None:
        """Keeps a criteria definition, once."""


class ProfileBook(Sequence[Profile]):
    """In the order of their ids. A look at it is always a look at one consistent set."""

    def __init__(
        self,
        files: Sequence[Profile],
        judge: Judge,
        *,
        activations: Activations,
        kept: CriteriaKept,
    ) -> None:
        self.files = tuple(files)
        self._judge = judge
        self._activations, self._kept = activations, kept
        self._activated: frozenset[str] = frozenset()
        self._used: tuple[Profile, ...] = ()
        self._hashes: dict[str, str] = {}
        self._mark: int | None = None
        self.use({})

    async def refresh_now(self) -> None:
        """Uses what is activated by now. What this version can't use is left out, and logged."""
        mark = await self._activations.mark()
        if mark == self._mark:
            return
        activated: dict[str, Profile] = {}
        for name, content in (await self._activations.activated()).items():
            try:
                profile = await asyncio.to_thread(self.checked, content)
            except ProfileInvalid as error:
                log.error("activated_profile_unusable", profile=name, error=str(error))
                continue
            await self._kept.register_criteria(self.criteria_of(profile))
            activated[name] = profile
        self.use(activated)
        self._mark = mark
        log.info("profiles_in_use", activated={n: p.version for n, p in activated.items()})

    def checked(self, raw: Any) -> Profile:
        """A profile that can be used here. Raises ProfileInvalid."""
        profile = parse_profile(raw)
        if problems := list(self._problems(profile)) if profile.needs_judge else []:
            raise ProfileInvalid(problems)
        return profile

    def _problems(self, profile: Profile) -> Iterator[str]:
        """Judges are opened at the start: those that the files name."""
        if self._judge.prompts and profile.judge.prompt not in self._judge.prompts:
            known = ", ".join(self._judge.prompts)
            yield f"judge.prompt: there is no {profile.judge.prompt!r}; there are: {known}"
        for seat in profile.judge.seats:
            if seat != Seat() and seat not in self._judge.members:
                known = ", ".join(f"{s.provider}/{s.model}" for s in self._judge.members)
                yield (
                    f"judge: {seat.provider}/{seat.model} is not open; the default judge and "
                    f"those that profile files name are: {known or 'none'}"
                )

    def use(self, activated: Mapping[str, Profile]) -> None:
        """Puts these, by their ids, in place of the files' or beside them."""
        used = {profile.id: profile for profile in self.files} | dict(activated)
        self._used = tuple(used[name] for name in sorted(used))
        self._hashes = {}
        self._activated = frozenset(activated)

    def is_activated(self, profile_id: str) -> bool:
        """Whether it is used in place of a file, or beside them."""
        return profile_id in self._activated

    @overload
    def __getitem__(self, index: int) -> Profile: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Profile]: ...
    def __getitem__(self, index: int | slice) -> Profile | Sequence[Profile]:
        return self._used[index]

    def __len__(self) -> int:
        return len(self._used)

    def __iter__(self) -> Iterator[Profile]:
        return iter(self._used)

    @property
    def ids(self) -> tuple[str, ...]:
        """Every profile's id."""
        return tuple(profile.id for profile in self._used)

    def by_id(self, profile_id: str) -> Profile | None:
        """The profile of this id."""
        return by_id(self._used, profile_id)

    def for_label(self, label: str) -> Profile | None:
        """The profile that sessions with this label are scored by."""
        return select(self._used, label)

    def hash_of(self, profile_id: str) -> str | None:
        """The criteria hash that a new score by this profile would have."""
        if profile_id not in self._hashes and (profile := self.by_id(profile_id)):
            self._hashes[profile_id] = self.criteria_of(profile).hash
        return self._hashes.get(profile_id)

    def most_usd(self, profile: Profile, tokens: int | None) -> float | None:
        """What judging a session of so many tokens costs at most; None where that is unknown."""
        return self._judge.most_usd(profile, tokens)

    def criteria_of(self, profile: Profile) -> Criteria:
        """What scores by this profile are made by."""
        return criteria_of(profile, self._judge)
