"""Files in a container."""

from __future__ import annotations

import builtins
import os
import tarfile
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from .._config import path as api_path
from .._wire import decode, decode_list
from ..errors import ConnectionFailedError, NotFoundError, from_json
from ..types import FileEvent, FileInfo, FoundLines
from . import _io
from ._transport import AsyncTransport, Request

User = str | None


class AsyncFiles:
    """Files in a container. A path is absolute, or relative to /workspace, where commands begin.

    `user` is who accesses the file: user (default), root, or another name or UID of the container, and a group or GID
    after a colon. Its rights are those that the container's kernel gives it.
    """

    def __init__(self, transport: AsyncTransport, container: str) -> None:
        self._transport = transport
        self._container = container

    def _path(self, what: str) -> str:
        return api_path("containers", self._container, "fs", what)

    async def read(self, path: str, *, user: User = None) -> bytes:
        """Returns the content of a file.

        Raises:
            NotFoundError: There is no such file.
            InvalidArgumentError: It is a directory.
        """
        async with aclosing(self.stream(path, user=user)) as body:
            return b"".join([piece async for piece in body])

    async def stream(self, path: str, *, user: User = None) -> AsyncGenerator[bytes, None]:
        """Gives the content of a file piece by piece. It raises what read does."""
        async with self._transport.stream(Request("GET", self._path("content"), {"path": path, "as": user})) as body:
            async for piece in body:
                yield piece

    async def read_text(self, path: str, *, user: User = None) -> str:
        """Returns the content of a file in UTF-8."""
        return (await self.read(path, user=user)).decode()

    async def write(self, path: str, data: str | bytes | BinaryIO, *, mode: int | None = None,
                    user: User = None) -> FileInfo:
        """Writes a file, whole or not at all, and makes its directories.

        Args:
            path: Where.
            data: A text in UTF-8, bytes, or a binary file, which is read from where it stands to its end.
            mode: Permission bits. None is 0o644 for a new file; an old one keeps its own.
            user: Whose file it will be.
        """
        content: bytes | Callable[[], AsyncIterator[bytes]]
        repeat = True
        if isinstance(data, (str, bytes)):
            content = data.encode() if isinstance(data, str) else data
        else:
            content, repeat = _reader(data)
        return decode(FileInfo, await self._transport.call(Request(
            "PUT", self._path("content"), {"path": path, "as": user, "mode": mode if mode is None else f"{mode:04o}"},
            content=content, headers={"Content-Type": "application/octet-stream"}, repeat=repeat)))

    async def append(self, path: str, data: str | bytes, *, user: User = None) -> FileInfo:
        """Writes at the end of a file. It is not repeated if the connection breaks: some of it may be there."""
        return decode(FileInfo, await self._transport.call(Request(
            "PATCH", self._path("content"), {"path": path, "as": user, "append": True},
            content=data.encode() if isinstance(data, str) else data,
            headers={"Content-Type": "application/octet-stream"}, repeat=False)))

    async def put(self, local: str | os.PathLike[str], path: str | None = None, *, user: User = None) -> None:
        """Copies a file or a directory of this machine into the container.

        Args:
            local: What to copy. The content of a directory is copied, with its permissions and links.
            path: Where it will be; None is the same name in /workspace.
            user: Whose files they will be.
        """
        source = Path(local)
        target = source.resolve().name if path is None else path
        if source.is_dir():
            with tempfile.TemporaryFile() as archive:
                await _io.in_thread(_pack, source, archive)
                content, _ = _reader(archive)
                await self._transport.call(Request(
                    "PUT", self._path("tar"), {"path": target, "as": user}, content=content,
                    headers={"Content-Type": "application/x-tar"}))
            return
        with source.open("rb") as file:
            await self.write(target, file, mode=source.stat().st_mode & 0o777, user=user)

    async def get(self, path: str, local: str | os.PathLike[str] | None = None, *, user: User = None) -> Path:
        """Copies a file or a directory of the container to this machine.

        Args:
            path: What to copy.
            local: Where it will be; None is the same name in the working directory.
            user: Who reads it. Files that the user may not read are left out of a directory.

        Returns:
            Where it is. A file is there whole or not at all.
        """
        target = Path(path.rstrip("/").rsplit("/", 1)[-1] if local is None else local)
        info = await self.stat(path, user=user)
        if info.type == "directory":
            with tempfile.TemporaryFile() as archive:
                await self._receive(Request("GET", self._path("tar"), {"path": path, "as": user}), archive)
                archive.seek(0)
                await _io.in_thread(_unpack, archive, target)
            return target
        if target.is_dir():
            target = target / path.rstrip("/").rsplit("/", 1)[-1]
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".berth-", delete=False) as part:
            try:
                await self._receive(Request("GET", self._path("content"), {"path": path, "as": user}), part)
                part.close()
                os.chmod(part.name, int(info.mode, 8) & 0o777 | 0o600)
                os.replace(part.name, target)
            except BaseException:
                os.unlink(part.name)
                raise
        return target

    async def _receive(self, request: Request, file: Any) -> None:
        """Writes an answer to a file, from its beginning if the connection broke."""
        retry = self._transport.retry(repeat=True)
        while True:
            try:
                async with self._transport.stream(request) as body:
                    async for piece in body:
                        await _io.in_thread(file.write, piece)
                return
            except ConnectionFailedError as e:
                pause = retry.delay(e)
                if pause is None:
                    raise
            file.seek(0)
            file.truncate()
            await _io.sleep(pause)

    async def list(self, path: str = ".", *, depth: int = 1, user: User = None) -> builtins.list[FileInfo]:
        """Lists a directory, sorted by the bytes of names, each directory before what is in it.

        Args:
            path: The directory; the default is /workspace.
            depth: How many levels of directories.
            user: Who lists.
        """
        out: list[FileInfo] = []
        after: str | None = None
        while True:
            page: dict[str, Any] = await self._transport.get(
                self._path("list"), path=path, depth=depth, after=after, **{"as": user})
            out += decode_list(FileInfo, page["data"])
            after = page.get("next_after")
            if not after:
                return out

    async def find(self, path: str = ".", *, name: str | Iterable[str] | None = None,
                   exclude: str | Iterable[str] | None = None, type: str | None = None, ignore_case: bool = False,
                   min_size: int | None = None, max_size: int | None = None, modified_after: datetime | None = None,
                   modified_before: datetime | None = None, depth: int | None = None,
                   user: User = None) -> builtins.list[FileInfo]:
        """Finds entries below a directory.

        Args:
            path: The directory; the default is /workspace.
            name: Globs, such as `*.py` or `src/**/*.ts`; one without a slash is compared with the name alone.
            exclude: Globs of what to leave out.
            type: file, directory, symlink or other.
            ignore_case: Compare names without case.
            min_size: Of files, in bytes.
            max_size: Of files, in bytes.
            modified_after: Of the last change.
            modified_before: Of the last change.
            depth: How many levels of directories; None is all.
            user: Who searches. Directories that the user may not read are skipped.
        """
        out: list[FileInfo] = []
        after: str | None = None
        while True:
            page: dict[str, Any] = await self._transport.get(
                self._path("find"), path=path, name=_several(name), exclude=_several(exclude), type=type,
                ignore_case=ignore_case, min_size=min_size, max_size=max_size, modified_after=modified_after,
                modified_before=modified_before, depth=depth, after=after, **{"as": user})
            out += decode_list(FileInfo, page["data"])
            after = page.get("next_after")
            if not after:
                return out

    async def grep(self, pattern: str, path: str = ".", *, fixed: bool = False, ignore_case: bool = False,
                   name: str | Iterable[str] | None = None, exclude: str | Iterable[str] | None = None,
                   lines_before: int | None = None, lines_after: int | None = None, max_matches: int | None = None,
                   depth: int | None = None, user: User = None) -> FoundLines:
        """Finds lines in files.

        Args:
            pattern: A regular expression of RE2 for one line.
            path: A directory, or one file; the default is /workspace.
            fixed: The pattern is the text itself.
            ignore_case: Compare without case.
            name: Globs of the files.
            exclude: Globs of what to leave out.
            lines_before: Lines of context, up to 20.
            lines_after: Lines of context, up to 20.
            max_matches: End after so many lines, 1,000 by default and 10,000 at most.
            depth: How many levels of directories; None is all.
            user: Who searches.
        """
        return decode(FoundLines, await self._transport.get(
            self._path("grep"), path=path, pattern=pattern, fixed=fixed, ignore_case=ignore_case, name=_several(name),
            exclude=_several(exclude), lines_before=lines_before, lines_after=lines_after, max_matches=max_matches,
            depth=depth, **{"as": user}))

    async def stat(self, path: str, *, user: User = None) -> FileInfo:
        """Describes a file. A link at the end of the path is not followed.

        Raises:
            NotFoundError: There is no such file.
        """
        return decode(FileInfo, await self._transport.get(self._path("stat"), path=path, **{"as": user}))

    async def exists(self, path: str, *, user: User = None) -> bool:
        """Says whether there is such a file, directory or link."""
        try:
            await self.stat(path, user=user)
        except NotFoundError:
            return False
        return True

    async def mkdir(self, path: str, *, user: User = None) -> None:
        """Makes a directory and its parents. One that exists is no error."""
        await self._transport.post(self._path("mkdir"), _named(path=path, as_=user), repeat=True)

    async def move(self, source: str, target: str, *, user: User = None) -> None:
        """Renames a file or a directory."""
        await self._transport.post(self._path("move"), _named(from_=source, to=target, as_=user))

    async def remove(self, path: str, *, recursive: bool = False, user: User = None) -> None:
        """Removes a file, or with recursive a directory and what is in it. Links are removed, not followed."""
        await self._transport.delete(self._path("content"), path=path, recursive=recursive, **{"as": user})

    async def watch(self, path: str = ".", *, recursive: bool = False, entries: bool = False,
                    user: User = None) -> AsyncWatch:
        """Follows the changes in a directory. Those after the return of this call are told.

        Args:
            path: The directory; the default is /workspace.
            recursive: Also watch the directories below, and those that are made later.
            entries: Events have the file's description in `entry`.
            user: Who watches.
        """
        watch = AsyncWatch(self._transport, Request("GET", self._path("watch"), {
            "path": path, "recursive": recursive, "entries": entries, "as": user}))
        await watch.begin()
        return watch


class AsyncWatch:
    """Changes in a directory, as they come: create, write, remove, rename (the old name) and chmod.

    An event of the type `overflow` says that some were missed, as while the connection was broken: list again. It ends
    when the directory is removed or renamed, or with close.
    """

    def __init__(self, transport: AsyncTransport, request: Request) -> None:
        self._transport = transport
        self._request = request
        self._events = self._follow()

    async def begin(self) -> None:
        """Waits until the watch holds."""
        await anext(self._events)

    async def _follow(self) -> AsyncGenerator[FileEvent, None]:
        retry = self._transport.retry(repeat=True)
        again = False
        while True:
            try:
                async with aclosing(self._transport.events(self._request)) as events:
                    async for event in events:
                        retry.reset()
                        if event.data["type"] == "error":
                            raise from_json(event.data["error"])
                        change = decode(FileEvent, event.data)
                        if change.type == "start" and again:
                            change.type = "overflow"
                        yield change
                        if change.type == "remove" and not change.name:
                            return
                raise self._transport.broken("the watch")
            except ConnectionFailedError as e:
                pause = retry.delay(e)
                if pause is None:
                    raise
                again = True
                await _io.sleep(pause)

    def __aiter__(self) -> AsyncIterator[FileEvent]:
        return self._events

    async def __anext__(self) -> FileEvent:
        return await anext(self._events)

    async def __aenter__(self) -> AsyncWatch:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Ends the watch."""
        await self._events.aclose()


def _several(value: str | Iterable[str] | None) -> list[str] | None:
    return [value] if isinstance(value, str) else None if value is None else [*value]


def _named(**fields: str | None) -> dict[str, str]:
    return {k.rstrip("_"): v for k, v in fields.items() if v is not None}


def _reader(file: BinaryIO) -> tuple[Callable[[], AsyncIterator[bytes]], bool]:
    """Returns a function that gives the file from where it stands now, and whether it can do so again."""
    repeat = file.seekable()
    start = file.tell() if repeat else 0

    def begin() -> AsyncIterator[bytes]:
        if repeat:
            file.seek(start)
        return _io.pieces(file)

    return begin, repeat


def _pack(source: Path, archive: Any) -> None:
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for entry in sorted(source.iterdir()):
            tar.add(entry, entry.name)
    archive.seek(0)


def _unpack(archive: Any, target: Path) -> None:
    """Unpacks an archive. Names and links that lead out of the target are refused, since code wrote them."""
    target.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=archive, mode="r:") as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extractall(target, filter="data")
            return
        root = target.resolve()
        for member in tar:
            to = (root / member.name).resolve()
            if not (member.isreg() or member.isdir()) or root not in (to, *to.parents):
                raise tarfile.TarError(f"{member.name!r} is not unpacked: this version of Python cannot check it")
            tar.extract(member, root)
