"""The profiles in use: those of the files, with what was activated over HTTP in their place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import overload

from consumer.judge.panel import Judge
from consumer.pipeline import criteria_of
from consumer.scoring.criteria import Criteria
from consumer.scoring.profile import Profile, by_id, select


class ProfileBook(Sequence[Profile]):
    """In the order of their ids. A look at it is always a look at one consistent set."""

    def __init__(self, files: Sequence[Profile], judge: Judge) -> None:
        self.files = tuple(files)
        self._judge = judge
        self._used: tuple[Profile, ...] = ()
        self._hashes: dict[str, str] = {}
        self.use({})

    def use(self, activated: Mapping[str, Profile]) -> None:
        """Puts these, by their ids, in place of the files' or beside them."""
        used = {profile.id: profile for profile in self.files} | dict(activated)
        self._used = tuple(used[name] for name in sorted(used))
        self._hashes = {}

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

    def criteria_of(self, profile: Profile) -> Criteria:
        """What scores by this profile are made by."""
        return criteria_of(profile, self._judge)
