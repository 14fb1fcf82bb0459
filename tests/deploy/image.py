"""The Dockerfile without an engine: its steps, one after the other, on a throw-away copy of this
machine in place of `python:slim`. Overlayfs keeps what they write apart; nothing here is changed.

Needs Linux and root. What comes out is run as Docker would: with the image's environment, as its
user, without rights, on a root that can't be written but for /tmp.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.deploy.places import ROOT

UNSHARE = ("unshare", "--mount", "--propagation=private", "sh", "-ec")
RIGHTLESS = "setpriv --clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs"
# How pip reaches its registry is this machine's matter, not the image's.
PASSED_ON = re.compile(r"PIP_\w+|\w+_proxy|\w+_PROXY|SSL_CERT_FILE")
BASE = {"PATH": f"{sys.base_prefix}/bin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}


def reason_not_to() -> str | None:
    """Why it can't be done here; None where it can."""
    tools = ("unshare", "setpriv", "chroot", "mount")
    if missing := [name for name in tools if shutil.which(name) is None]:
        return f"there is no {missing[0]}"
    if os.geteuid() != 0:
        return "only root mounts file systems"
    tried = subprocess.run([*UNSHARE, "true"], capture_output=True, text=True, check=False)
    return f"mounts are not allowed here: {tried.stderr.strip()}" if tried.returncode else None


@dataclass(slots=True)
class Stage:
    """One FROM: what it says of the process to come, and its steps as a shell does them."""

    folder: Path
    environment: dict[str, str] = field(default_factory=lambda: dict(BASE))
    workdir: str = "/"
    user: str = "0:0"
    health: list[str] = field(default_factory=list)
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)

    @property
    def root(self) -> Path:
        return self.folder / "root"

    def mounted(self, options: str = "") -> str:
        """A script that mounts the stage's file system."""
        places = " ".join(
            shlex.quote(str(self.folder / name)) for name in ("root", "upper", "work")
        )
        layers = f"lowerdir=/,upperdir={self.folder}/upper,workdir={self.folder}/work"
        return (
            f"mkdir -p {places}\n"
            f"mount -t overlay overlay -o {shlex.quote(layers)} {self.root}\n"
            # Python may be in somebody's home, which others may not enter.
            f"for place in {' '.join(map(str, Path(sys.base_prefix).parents))}; do"
            f" chmod o+x {self.root}$place; done\n"
            f"mount --bind /proc {self.root}/proc\nmount --rbind /dev {self.root}/dev\n"
            + (f"mount -o remount,{options} {self.root}\n" if options else "")
        )

    def take(self, word: str, rest: str, stages: Mapping[str, Stage]) -> None:
        """One instruction."""
        if word == "RUN":
            self.steps.append(self._inside(rest, os.environ))
        elif word == "COPY":
            self.steps += self._copies(rest.split(), stages)
        elif word == "WORKDIR":
            self.workdir = rest
            self.steps.append(f"mkdir -p {self.root}{rest}")
        elif word == "ENV":
            for name, value in re.findall(r"(\w+)=(\S+)", rest):
                self.environment[name] = value.replace("$PATH", self.environment["PATH"])
        elif word not in {"ARG", "LABEL", "EXPOSE"}:
            self._is_told(word, rest)

    def _is_told(self, word: str, rest: str) -> None:
        """One instruction about the process to come."""
        match word:
            case "USER":
                self.user = rest
            case "HEALTHCHECK":
                self.health = json.loads(rest.partition("CMD ")[2])
            case "ENTRYPOINT":
                self.entrypoint = json.loads(rest)
            case "CMD":
                self.command = json.loads(rest)
            case _:
                raise ValueError(f"{word}: an instruction that is not known here")

    def _inside(self, command: str, environment: Mapping[str, str]) -> str:
        given = {n: v for n, v in environment.items() if PASSED_ON.fullmatch(n)} | self.environment
        pairs = " ".join(shlex.quote(f"{name}={value}") for name, value in given.items())
        script = shlex.quote(f"cd {self.workdir}; {command}")
        return f"chroot {self.root} env -i {pairs} sh -ec {script}"

    def _copies(self, words: list[str], stages: Mapping[str, Stage]) -> Iterator[str]:
        source_root = ROOT
        if words[0].startswith("--from="):
            source_root = stages[words.pop(0).removeprefix("--from=")].root
        *sources, target = words
        place = self.root / (target if target.startswith("/") else f"{self.workdir}/{target}")[1:]
        for source in sources:
            origin = source_root / source.lstrip("/")
            # A folder's content is copied, a file by its name or into a folder.
            is_folder = source_root != ROOT or origin.is_dir()
            parent = place if is_folder or target.endswith("/") else place.parent
            yield f"mkdir -p {parent}"
            yield f"cp -a {origin}{'/.' if is_folder else ''} {place}"

    def run(self, environment: Mapping[str, str], *command: str) -> subprocess.Popen[bytes]:
        """The image as a container: its entrypoint with this command, or else its own."""
        return self.start(environment, [*self.entrypoint, *(command or self.command)])

    def start(
        self, environment: Mapping[str, str], command: Sequence[str]
    ) -> subprocess.Popen[bytes]:
        """A program of the image. What it says is in the file `said` of the folder."""
        given = {**self.environment, **environment}
        pairs = " ".join(shlex.quote(f"{name}={value}") for name, value in given.items())
        user, group = self.user.split(":")
        script = (
            f"{self.mounted('ro')}mount -t tmpfs tmpfs {self.root}/tmp\n"  # noqa: S108  its own
            f"exec chroot {self.root} {RIGHTLESS} --reuid={user} --regid={group}"
            f" env -i -C {self.workdir} {pairs} {shlex.join(command)}"
        )
        with (self.folder / "said").open("ab") as said:
            return subprocess.Popen([*UNSHARE, script], stdout=said, stderr=said)


def build(folder: Path) -> Stage:
    """The Dockerfile's last stage, built. Raises CalledProcessError with what a step said."""
    stages: dict[str, Stage] = {}
    stage = Stage(folder)
    for word, rest in instructions((ROOT / "Dockerfile").read_text(encoding="utf-8")):
        if word == "FROM":
            name = rest.partition(" AS ")[2] or "final"
            stage = stages[name] = Stage(folder / name)
        else:
            stage.take(word, rest, stages)
    script = "".join(f"{one.mounted()}{chr(10).join(one.steps)}\n" for one in stages.values())
    subprocess.run([*UNSHARE, script], check=True, capture_output=True, text=True)
    return stage


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """The instructions of a Dockerfile; those before the first FROM are for Docker."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    for line in joined[joined.index("FROM ") :].splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            yield word, rest.strip()
