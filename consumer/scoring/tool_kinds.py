"""Actions and look-ups: which tool calls change something, and which only read."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from itertools import pairwise

from consumer.scoring.session import AvailableTool, ToolCall


def _words(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


# Verbs are the last resort, where neither the profile nor the tool's server tells.
_ACTIONS = _words(
    "accept acknowledge activate add allocate annotate append apply approve archive assign "
    "attach backup ban block book buy cancel charge clear clone close commit configure connect "
    "copy cordon create deactivate decline decrease delete deploy destroy detach disable "
    "disconnect drain drop edit email enable enqueue escalate evict expire flush forward free "
    "generate grant import increase insert install invite issue kill label launch lock mark "
    "merge migrate modify move mute notify open order page patch pause pay post publish purchase "
    "purge push put quarantine reassign rebook reboot rebuild recreate redeploy refund register "
    "reject release reload remove rename renew reopen repair replace reply reschedule reserve "
    "reset resize resolve respond restart restore resume retry revert revoke rollback rotate "
    "save scale schedule send set shutdown silence snooze start stop store submit subscribe "
    "suspend switch taint terminate transfer trigger truncate unassign unblock uncordon undo "
    "uninstall unlock unmute unsubscribe update upgrade upload upsert write"
)
_READS = _words(
    "browse calculate check compare compute convert count describe diff display dump estimate "
    "examine explain fetch find get grep inspect list look lookup parse peek ping probe query "
    "read retrieve scan search select show summarize tail think trace validate verify view watch "
    "whois"
)
# What they run may change things, unless a later word says that it reads: `run_query`.
_RUNS = _words("call do exec execute invoke perform run")
# What is read, in a name without a verb: `pods_log`, `nodes_top`.
_READ_THINGS = _words(
    "details events health history info log logs metrics reputation stats status summary top usage"
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# Longer names are not kept: they would fill the memory.
_KEPT_CHARACTERS = 100
_JOINTS = frozenset({"and", "or"})


class ToolKinds:
    """Tells a session's actions from its look-ups.

    `actions`: names of tools (`tool` or `server.tool`) that the profile calls actions.
    """

    def __init__(self, available: Sequence[AvailableTool], actions: Collection[str]) -> None:
        self._actions = frozenset(actions)
        self._known: dict[str, bool | None] = {}
        self._read_only = {
            f"{tool.server}.{tool.name}": tool.read_only
            for tool in available
            if tool.read_only is not None
        }

    def changes(self, call: ToolCall) -> bool | None:
        """Whether the call is an action; None where nobody knows, and it counts as a look-up.

        The profile is asked first, then what the server says of its tool, then the tool's name.
        """
        name = call.name
        if name not in self._known:
            self._known[name] = self._changes(name, call.tool)
        return self._known[name]

    def _changes(self, name: str, tool: str) -> bool | None:
        if tool in self._actions or name in self._actions:
            return True
        read_only = self._read_only.get(name)
        if read_only is not None:
            return not read_only
        return (_kept_kind if len(tool) <= _KEPT_CHARACTERS else named_as_action)(tool)


def named_as_action(tool: str) -> bool | None:
    """What the verbs of a tool's name tell; None where there are none.

    The first verb decides; `get_or_create` changes something all the same.
    """
    words = [word.lower() for word in _WORD.findall(tool)]
    for n, word in enumerate(words):
        if word in _ACTIONS:
            return True
        if word in _RUNS:
            return _READS.isdisjoint(words[n:])
        if word in _READS:
            later = pairwise(words[n:])
            return any(one in _JOINTS and other in _ACTIONS for one, other in later)
    return None if _READ_THINGS.isdisjoint(words[1:]) else False


_kept_kind = lru_cache(maxsize=1024)(named_as_action)
