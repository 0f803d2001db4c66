# Made by dev/make_sync.py of ../_async/stored.py; do not edit.
"""What is stored outside of containers: files and skills, by the APIs that the hosted service has for them."""

from __future__ import annotations

import builtins
import mimetypes
import os
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from .._config import path
from ..results import OutputFile, Skill, SkillVersion, StoredFile, stored_file
from . import _io
from ._transport import Transport, Request

VERSION = {"anthropic-version": "2023-06-01"}  # of both APIs; the daemon refuses requests without one


def _pages(transport: Transport, where: str, headers: Mapping[str, str]) -> Generator[Any, None, None]:
    """Gives the items of a list, whichever of the two ways the API has to go on."""
    asked: dict[str, Any] = {"limit": 100}
    while True:
        page = transport.call(Request("GET", where, asked, headers=headers))
        items = page["data"]
        for item in items:
            yield item
        if page.get("next_page"):
            asked["page"] = page["next_page"]
        elif page.get("has_more") and items:
            asked["after_id"] = page.get("last_id") or items[-1]["id"]
        else:
            return


class StoredFiles:
    """Files that are stored outside of containers. `files=[id]` of a sandbox or a command puts them into $INPUT_DIR,
    and files that code leaves in $OUTPUT_DIR become stored ones."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def upload(self, file: str | os.PathLike[str] | BinaryIO | bytes, *, filename: str | None = None,
                     mime_type: str | None = None, expires_in_seconds: int | None = None) -> StoredFile:
        """Stores a file. A request whose connection breaks is not repeated: it might store the file twice.

        Args:
            file: A path, bytes, or a binary file.
            filename: Its name; the default is that of the path.
            mime_type: The default is the daemon's guess.
            expires_in_seconds: Remove it then, 3600 to 7776000; None keeps it.

        Raises:
            TooLargeError: It is larger than `info().max_file_bytes`.
            QuotaExceededError: There is no room.
        """
        if isinstance(file, (str, os.PathLike)):
            with Path(file).open("rb") as opened:
                return self.upload(opened, filename=filename or Path(file).name, mime_type=mime_type,
                                         expires_in_seconds=expires_in_seconds)
        name = filename or Path(str(getattr(file, "name", "file"))).name
        kind = mime_type or mimetypes.guess_type(name)[0]
        form: dict[str, Any] = {}
        if expires_in_seconds:
            form["expires_in_seconds"] = (None, str(expires_in_seconds))
        # The body of a form is sent from memory by the client, so a file is read here.
        content = file if isinstance(file, bytes) else _io.in_thread(file.read)
        form["file"] = (name, content, kind) if kind else (name, content)
        return stored_file(self._transport.call(Request("POST", "/v1/files", form=form, headers=VERSION)))

    def list(self) -> builtins.list[StoredFile]:
        """Lists stored files, newest first."""
        return [stored_file(f) for f in _pages(self._transport, "/v1/files", VERSION)]

    def get(self, id: str) -> StoredFile:
        """Describes a stored file."""
        return stored_file(self._transport.call(Request("GET", path("files", id), headers=VERSION)))

    def read(self, file: str | StoredFile | OutputFile) -> bytes:
        """Returns the content of a stored file."""
        request = Request("GET", path("files", _id(file), "content"), headers=VERSION)
        with self._transport.stream(request) as body:
            return b"".join([piece for piece in body])

    def download(self, file: str | StoredFile | OutputFile, local: str | os.PathLike[str]) -> Path:
        """Writes the content of a stored file to this machine, and returns where it is."""
        target = Path(local)
        if target.is_dir():
            target = target / Path((self.get(_id(file))).filename).name
        request = Request("GET", path("files", _id(file), "content"), headers=VERSION)
        with self._transport.stream(request) as body:
            with target.open("wb") as out:
                for piece in body:
                    _io.in_thread(out.write, piece)
        return target

    def delete(self, id: str) -> None:
        """Deletes a stored file."""
        self._transport.call(Request("DELETE", path("files", id), headers=VERSION))


def _id(file: str | StoredFile | OutputFile) -> str:
    return file if isinstance(file, str) else file.id if isinstance(file, StoredFile) else file.file_id


class Skills:
    """Skills: directories with a SKILL.md, for the containers of Messages requests."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(self, directory: str | os.PathLike[str], *, display_name: str | None = None) -> Skill:
        """Stores a directory that has a SKILL.md as a new skill.

        Raises:
            InvalidArgumentError: A file is refused; the error names it.
        """
        form = _form(Path(directory))
        if display_name:
            form.insert(0, ("display_name", (None, display_name)))
        return _skill(self._transport.call(Request("POST", "/v1/skills", form=form, headers=VERSION)))

    def add_version(self, id: str, directory: str | os.PathLike[str]) -> SkillVersion:
        """Stores a directory as the next version of a skill. Its name stays."""
        return _version(self._transport.call(Request(
            "POST", path("skills", id, "versions"), form=_form(Path(directory)), headers=VERSION)))

    def list(self) -> builtins.list[Skill]:
        """Lists skills: yours, newest first, then those that the daemon provides."""
        return [_skill(s) for s in _pages(self._transport, "/v1/skills", VERSION)]

    def versions(self, id: str) -> builtins.list[SkillVersion]:
        """Lists the versions of a skill, newest first."""
        return [_version(v) for v in _pages(self._transport, path("skills", id, "versions"), VERSION)]

    def get(self, id: str) -> Skill:
        """Describes a skill."""
        return _skill(self._transport.call(Request("GET", path("skills", id), headers=VERSION)))

    def read(self, id: str, version: str = "latest") -> bytes:
        """Returns the files of a version as a zip archive, in one directory of the skill's name."""
        if version == "latest":
            version = (self.versions(id))[0].id
        request = Request("GET", path("skills", id, "versions", version, "content"), headers=VERSION)
        with self._transport.stream(request) as body:
            return b"".join([piece for piece in body])

    def delete(self, id: str) -> None:
        """Deletes a skill with its versions."""
        self._transport.call(Request("DELETE", path("skills", id), headers=VERSION))


def _form(directory: Path) -> builtins.list[tuple[str, Any]]:
    root = directory.resolve()
    files = sorted(p for p in root.rglob("*") if p.is_file() or p.is_symlink())
    return [("files[]", (f"{root.name}/{p.relative_to(root).as_posix()}", p.read_bytes())) for p in files]


def _skill(answer: dict[str, Any]) -> Skill:
    return Skill(answer["id"], str(answer.get("display_name") or ""), str(_source(answer.get("source"))),
                 str(answer.get("latest_version_id") or answer.get("latest_version") or ""), answer)


def _source(source: Any) -> Any:
    return source.get("type") if isinstance(source, dict) else source  # pyright: ignore


def _version(answer: dict[str, Any]) -> SkillVersion:
    return SkillVersion(answer["id"], answer["skill_id"], answer["name"], answer["description"], answer)
