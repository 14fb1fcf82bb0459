"""Who may do what, and in whose name. Off by default: then a proxy in front decides.

With tokens set (`API_TOKENS`), each call needs `Authorization: Bearer <token>` of a token that has
the route's scope. The tokens themselves are known nowhere here, only their SHA-256.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Request

from consumer.api.problems import Problem
from consumer.api.tokens import Scope, Token
from consumer.limits.rate import RateLimiter

__all__ = ["Caller", "Gate", "Scope", "caller", "needs"]

NOBODY = "api-client"
MAX_NAME = 255
# A caller that is forgotten begins with a full bucket; a thousand at a time are told apart.
MAX_CALLERS = 1000


@dataclass(slots=True, kw_only=True)
class Gate:
    """Lets callers in. Without tokens everyone may do everything. The rate is each caller's own, in
    this process, for whatever is not just reading.
    """

    tokens: Sequence[Token] = ()
    writes_per_minute: float = 600
    _limiters: OrderedDict[str, RateLimiter] = field(default_factory=OrderedDict)

    def admit(self, request: Request, scope: Scope) -> None:
        """Raises Problem 401, 403 or 429. Notes the token's name for `caller`."""
        if self.tokens:
            token = self._token(request)
            if not token.scopes & {scope, Scope.ADMIN}:
                has = ", ".join(sorted(token.scopes))
                raise Problem(
                    403, "forbidden", f"this needs scope {scope}; token {token.name!r} has {has}"
                )
            request.state.token = token.name
        if scope is not Scope.READ:
            self._charge(_who(request))

    def _token(self, request: Request) -> Token:
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        digest = hashlib.sha256(given.strip().encode()).hexdigest()
        # All are compared, each in the same time: how long it takes tells nothing.
        found = [t for t in self.tokens if hmac.compare_digest(t.sha256, digest)]
        if kind.lower() != "bearer" or not found:
            raise Problem(
                401,
                "unauthorized",
                "needs Authorization: Bearer with a token that is known here",
                headers={"www-authenticate": "Bearer"},
            )
        return found[0]

    def _charge(self, who: str) -> None:
        limiter = self._limiters.pop(who, None) or RateLimiter(self.writes_per_minute)
        self._limiters[who] = limiter
        if len(self._limiters) > MAX_CALLERS:
            self._limiters.popitem(last=False)
        if wait_s := limiter.try_acquire():
            raise Problem(
                429,
                "too_many_requests",
                f"more than {self.writes_per_minute:g} changes a minute by one caller",
                headers={"retry-after": str(int(wait_s) + 1)},
            )


def _who(request: Request) -> str:
    """Whose rate it is: the token's, else the forwarded user's, else the address'."""
    host = request.client.host if request.client else ""
    name = forwarded(request)
    return getattr(request.state, "token", None) or (f"user {name}" if name else host)


def forwarded(request: Request) -> str | None:
    """The user that the proxy in front names. Raises Problem 400 for a name that is none."""
    for header in ("x-forwarded-user", "x-forwarded-email"):
        if raw := request.headers.get(header, "").strip():
            name = _decoded(raw)
            if len(name) > MAX_NAME or not name.isprintable():
                raise Problem(
                    400,
                    "invalid_user",
                    f"{header}: at most {MAX_NAME} characters, none of them control characters",
                )
            return name
    return None


def _decoded(raw: str) -> str:
    """Servers read headers as Latin-1; names are sent in UTF-8 as well."""
    try:
        return raw.encode("latin-1").decode()
    except UnicodeError:
        return raw


def caller(request: Request) -> str:
    """In whose name something is done, as scores and overrides keep it."""
    return forwarded(request) or getattr(request.state, "token", None) or NOBODY


def needs(scope: Scope) -> Any:
    """The dependency of routes that need this scope."""

    async def check(request: Request) -> None:
        request.app.state.gate.admit(request, scope)

    return Depends(check)


async def _caller(request: Request) -> str:
    return caller(request)


Caller = Annotated[str, Depends(_caller)]
