# Made by dev/make_sync.py of ../_async/resources.py; do not edit.
"""Thin calls for what the daemon has besides containers."""

from __future__ import annotations

import builtins
import io
import os
import tarfile
from collections.abc import Generator, Iterator, Callable, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Literal

from .._config import path
from .._retry import new_key
from .._wire import body, decode, decode_list
from ..errors import ConnectionFailedError, from_json
from ..types import (
    Approval, Build, BuildEvent, FeedEvent, Image, ImageLine, Key, KeyAndSecret, KeyStatus, NewWebhook, Quota,
    QuotaChange, Snapshot, Tool, ToolConfiguration, ToolRun, Webhook,
)
from . import _io
from ._transport import Transport, Request

LONG = 3600.0  # seconds without a line for which a pull, an import or a push may be silent


class _Part:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport


class Snapshots(_Part):
    """Snapshots of all containers of the key's owner."""

    def list(self, *, labels: Mapping[str, str] | None = None) -> builtins.list[Snapshot]:
        """Lists snapshots, newest first; with labels those that have all of them."""
        pages = self._transport.pages(
            "/v1/snapshots", label=[f"{k}={v}" for k, v in (labels or {}).items()], limit=1000)
        with closing(pages) as listed:
            return [decode(Snapshot, s) for s in listed]

    def get(self, ref: str) -> Snapshot:
        """Describes the snapshot with this ID or name."""
        return decode(Snapshot, self._transport.get(path("snapshots", ref)))

    def delete(self, ref: str) -> None:
        """Removes a snapshot. Containers that were made of it stay."""
        self._transport.delete(path("snapshots", ref))

    def export(self, ref: str, local: str | os.PathLike[str], *, name: str | None = None) -> Path:
        """Writes a snapshot to this machine as an OCI image archive.

        Args:
            ref: ID or name.
            local: The file.
            name: Name of the image in the archive.
        """
        target = Path(local)
        request = Request("GET", path("snapshots", ref, "archive"), {"name": name}, timeout=LONG)
        with self._transport.stream(request) as content:
            with target.open("wb") as out:
                for piece in content:
                    _io.in_thread(out.write, piece)
        return target

    def commit(self, ref: str, name: str | None = None) -> Image:
        """Makes an image of a snapshot. It needs an admin key."""
        return _image(self._transport, Request(
            "POST", path("snapshots", ref, "image"), json=body(name=name), timeout=LONG), None)


def _image(transport: Transport, request: Request, on_progress: Callable[[ImageLine], Any] | None) -> Image:
    """Reads lines of progress up to the image."""
    with closing(transport.lines(request)) as lines:
        for line in lines:
            if "error" in line:
                raise from_json(line["error"])
            if "image" in line:
                return decode(Image, line["image"])
            _io.invoke(on_progress, decode(ImageLine, line))
    raise transport.broken("the image was complete")


class Images(_Part):
    """Images that containers are made of. All but list need an admin key."""

    def list(self) -> builtins.list[Image]:
        """Lists images."""
        return decode_list(Image, (self._transport.get("/v1/images"))["data"])

    def pull(self, ref: str, *, on_progress: Callable[[ImageLine], Any] | None = None) -> Image:
        """Pulls an image from a registry, such as debian:12."""
        return _image(self._transport, Request(
            "POST", "/v1/images/pull", json={"ref": ref}, timeout=LONG, repeat=True), on_progress)

    def push(self, name: str, ref: str | None = None, *,
                   on_progress: Callable[[ImageLine], Any] | None = None) -> Image:
        """Pushes an image to a registry; ref is its name there."""
        return _image(self._transport, Request(
            "POST", "/v1/images/push", json=body(name=name, ref=ref), timeout=LONG, repeat=True), on_progress)

    def load(self, archive: str | os.PathLike[str], name: str | None = None, *,
                   on_progress: Callable[[ImageLine], Any] | None = None) -> Image:
        """Imports an OCI or Docker archive of this machine."""
        with Path(archive).open("rb") as file:
            return _image(self._transport, Request(
                "POST", "/v1/images/import", {"name": name}, content=_again(file), timeout=LONG,
                headers={"Content-Type": "application/x-tar"}), on_progress)

    def build(self, context: str | os.PathLike[str] | bytes, name: str, *, dockerfile: str | None = None,
                    target: str | None = None, build_args: Mapping[str, str] | None = None,
                    labels: Mapping[str, str] | None = None, no_cache: bool = False, pull: bool = False,
                    network: str | None = None, allow: Sequence[str] | None = None, cpus: float | None = None,
                    memory_bytes: int | None = None, timeout_seconds: int | None = None,
                    on_event: Callable[[BuildEvent], Any] | None = None) -> Image:
        """Builds a Dockerfile. The build ends when this call does.

        Args:
            context: A directory, or the content of a tar archive.
            name: Of the image.
            dockerfile: Path in the context; the default is Dockerfile.
            target: The stage to build.
            build_args: Values of ARG.
            labels: Labels of the image.
            no_cache: Run each step anew.
            pull: Look for newer base images.
            network: none, allowlist or open: what RUN may reach.
            allow: Hosts that RUN may reach.
            cpus: Of a step.
            memory_bytes: Of a step.
            timeout_seconds: Of the build.
            on_event: Called with each step and with what it prints.

        Raises:
            BerthError: A step failed; the message has the line of the Dockerfile.
        """
        content = context if isinstance(context, bytes) else _io.in_thread(_pack, Path(context))
        request = Request("POST", "/v1/images/build", {
            "name": name, "dockerfile": dockerfile, "target": target, "no_cache": no_cache, "pull": pull,
            "build_arg": [f"{k}={v}" for k, v in (build_args or {}).items()],
            "label": [f"{k}={v}" for k, v in (labels or {}).items()], "network": network, "allow": [*(allow or [])],
            "cpus": cpus, "memory_bytes": memory_bytes, "timeout_seconds": timeout_seconds,
        }, content=content, headers={"Content-Type": "application/x-tar"})
        with closing(self._transport.events(request)) as events:
            for event in events:
                if event.data["type"] == "error":
                    raise from_json(event.data["error"])
                told = decode(BuildEvent, event.data)
                _io.invoke(on_event, told)
                if told.image is not None:
                    return told.image
        raise self._transport.broken("the build did")

    def remove(self, name: str) -> None:
        """Removes the name of an image. Containers keep theirs."""
        self._transport.delete("/v1/images", ref=name)


def _again(file: BinaryIO) -> Callable[[], Iterator[bytes]]:
    def begin() -> Iterator[bytes]:
        file.seek(0)
        return _io.pieces(file)

    return begin


def _pack(directory: Path) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for entry in sorted(directory.iterdir()):
            tar.add(entry, entry.name)
    return out.getvalue()


class Builds(_Part):
    """Builds of images that wait or run. They need an admin key."""

    def list(self) -> builtins.list[Build]:
        """Lists the builds of the key."""
        answer = self._transport.get("/v1/images/builds")
        return decode_list(Build, answer.get("data", answer.get("builds")))  # builds: of an older daemon

    def cancel(self, id: str) -> None:
        """Cancels a build."""
        self._transport.delete(path("images", "builds", id))


class Keys(_Part):
    """API keys. All but self need an admin key."""

    def create(self, name: str | None = None, *, owner: str | None = None, admin: bool | None = None,
                     expires_in_seconds: int | None = None,
                     quota: Quota | Mapping[str, Any] | None = None) -> KeyAndSecret:
        """Creates a key. Only this answer has its secret.

        Args:
            name: For people, at most 128 bytes.
            owner: Whose things are made with it; the default is the owner of the asking key.
            admin: May make keys, and change what concerns the whole daemon.
            expires_in_seconds: Up to ten years; None is never.
            quota: sessions, cpu_seconds_per_day, storage_bytes, requests_per_second and burst.
        """
        return decode(KeyAndSecret, self._transport.post("/v1/keys", body(
            name=name, owner=owner, admin=admin, expires_in_seconds=expires_in_seconds, quota=quota)))

    def list(self) -> builtins.list[Key]:
        """Lists keys, newest first, including revoked ones."""
        return decode_list(Key, (self._transport.get("/v1/keys"))["data"])

    def self(self) -> KeyStatus:
        """Describes the key of this client, and what it uses of its quota."""
        return decode(KeyStatus, self._transport.get("/v1/keys/self"))

    def get(self, id: str) -> KeyStatus:
        """Describes a key, and what it uses of its quota."""
        return decode(KeyStatus, self._transport.get(path("keys", id)))

    def update(self, id: str, *, name: str | None = None,
                     quota: QuotaChange | Mapping[str, Any] | None = None) -> Key:
        """Changes what is given. A bound of 0 is removed."""
        return decode(Key, self._transport.patch(path("keys", id), body(name=name, quota=quota)))

    def revoke(self, id: str) -> None:
        """Revokes a key for good and at once."""
        self._transport.delete(path("keys", id))


class Webhooks(_Part):
    """URLs that events are posted to."""

    def create(self, url: str, *, types: Sequence[str] | None = None, container_id: str | None = None,
                     description: str | None = None) -> NewWebhook:
        """Has events posted to a URL from now on. Only this answer has the secret that verifies signatures.

        Args:
            url: http or https, at a public address unless the operator allows others.
            types: Such as exec.ended; with a dot at the end, all that begin so. None is all.
            container_id: Only events of this container.
            description: For people, at most 1,000 bytes.
        """
        return decode(NewWebhook, self._transport.post("/v1/webhooks", body(
            url=url, types=types, container_id=container_id, description=description)))

    def list(self) -> builtins.list[Webhook]:
        """Lists webhooks."""
        return decode_list(Webhook, (self._transport.get("/v1/webhooks"))["data"])

    def get(self, id: str) -> Webhook:
        """Describes a webhook, with its last 20 attempts."""
        return decode(Webhook, self._transport.get(path("webhooks", id)))

    def update(self, id: str, *, url: str | None = None, types: Sequence[str] | None = None,
                     enabled: bool | None = None) -> Webhook:
        """Changes what is given. Enabling continues with the first event that was not delivered."""
        return decode(Webhook, self._transport.patch(path("webhooks", id), body(
            url=url, types=types, enabled=enabled)))

    def delete(self, id: str) -> None:
        """Deletes a webhook."""
        self._transport.delete(path("webhooks", id))


class Events(_Part):
    """What happens to containers, commands, files and approvals."""

    def list(self, *, container: str | None = None, types: Sequence[str] | None = None,
                   owner: str | None = None, since: datetime | None = None, after: str | None = None,
                   limit: int | None = None) -> builtins.list[FeedEvent]:
        """Returns one page of events, oldest first: the newest ones, or those from a time or behind an event.

        Args:
            container: ID of a container.
            types: Such as exec.ended; with a dot at the end, all that begin so.
            owner: For admins; others see their own.
            since: From this time on.
            after: Behind the event with this ID.
            limit: Length of the page.
        """
        answer = self._transport.get(
            "/v1/events", container=container, type=[*(types or [])], owner=owner, since=since, after=after,
            limit=limit)
        return decode_list(FeedEvent, answer["data"])

    def follow(self, *, container: str | None = None, types: Sequence[str] | None = None,
                     owner: str | None = None, since: datetime | None = None,
                     after: str | None = None) -> Generator[FeedEvent, None, None]:
        """Gives events as they come, without an end. None is missed over a broken connection or a restart of the
        daemon; one of the type `gap` says that some are no longer kept.

        Args:
            container: ID of a container.
            types: Such as exec.ended; with a dot at the end, all that begin so.
            owner: For admins; others see their own.
            since: Begin with those from this time on. None and no after: with the next event.
            after: Begin behind the event with this ID.
        """
        retry = self._transport.retry(repeat=True)
        while True:
            query = {"container": container, "type": [*(types or [])], "owner": owner, "after": after,
                     "since": None if after else since}
            try:
                with closing(self._transport.events(Request("GET", "/v1/events", query))) as events:
                    for event in events:
                        retry.reset()
                        after = event.id or after
                        yield decode(FeedEvent, event.data)
                raise self._transport.broken("the events")
            except ConnectionFailedError as e:
                pause = retry.delay(e)
                if pause is None:
                    raise
                _io.sleep(pause)


class Approvals(_Part):
    """What waits for a person: calls of tools by code, runs of stored tools, connections of containers."""

    def list(self, *, kind: Literal["network", "tool_call", "tool_run"] | None = None,
                   container: str | None = None) -> builtins.list[Approval]:
        """Lists what waits, newest first."""
        pages = self._transport.pages("/v1/approvals", kind=kind, container=container)
        with closing(pages) as listed:
            return [decode(Approval, a) for a in listed]

    def get(self, id: str) -> Approval:
        """Describes an approval."""
        return decode(Approval, self._transport.get(path("approvals", id)))

    def approve(self, id: str, *, scope: Literal["once", "life"] | None = None) -> Approval:
        """Approves.

        Args:
            id: Of the approval.
            scope: Of connections: once (default), or life, which adds host and port to the container's network.

        Raises:
            ConflictError: It was refused before.
            ExpiredError: Its time is over.
        """
        return decode(Approval, self._transport.post(
            path("approvals", id, "approve"), _scoped(scope), repeat=True))

    def refuse(self, id: str, *, scope: Literal["once", "life"] | None = None,
                     reason: str | None = None) -> Approval:
        """Refuses; the program is told the reason.

        Raises:
            ConflictError: It was approved before.
            ExpiredError: Its time is over.
        """
        return decode(Approval, self._transport.post(
            path("approvals", id, "refuse"), {**_scoped(scope), **body(reason=reason)}, repeat=True))


def _scoped(scope: str | None) -> dict[str, str]:
    return {} if scope is None else {"for": scope}


class Audit(_Part):
    """The log of who did what. It needs an admin key. An entry is the JSON object of the log."""

    def read(self, *, container: str | None = None, actor: str | None = None, owner: str | None = None,
                   act: str | None = None, since: datetime | None = None, until: datetime | None = None,
                   last: int | None = None) -> Generator[dict[str, Any], None, None]:
        """Gives the entries, oldest first.

        Args:
            container: Only actions on this container.
            actor: Only actions of this key, by its ID, or of this part of the daemon.
            owner: Only entries of this owner.
            act: Only this action, such as exec.end; with a dot at the end, all that begin so.
            since: From this time on.
            until: Before this time.
            last: Only so many from the end.
        """
        query = {"container": container, "actor": actor, "owner": owner, "act": act, "since": since, "until": until,
                 "last": last}
        with closing(self._transport.lines(Request("GET", "/v1/audit", query))) as lines:
            for line in lines:
                yield line

    def head(self) -> dict[str, Any]:
        """Returns number and hash of the newest entry, to be recorded elsewhere."""
        answer: dict[str, Any] = self._transport.get("/v1/audit/head")
        return answer


class StoredTools(_Part):
    """Tools that are stored in the daemon: Python with schemas for input and output, in versions."""

    def create(self, name: str, configuration: ToolConfiguration | Mapping[str, Any], *,
                     description: str | None = None,
                     approval_action: Literal["allow", "review", "deny"] | None = None) -> Tool:
        """Stores a tool.

        Args:
            name: Letters, digits, `_` and `-`, beginning with a letter. It is permanent.
            configuration: code, which defines run(input); input_schema, output_schema, env_variables and others.
            description: What it does, for models.
            approval_action: allow (default), review (each run waits for a person) or deny.
        """
        return decode(Tool, self._transport.post("/v1/tools", body(
            name=name, description=description, tool_type="code_runner", approval_action=approval_action,
            configuration=_typed(configuration))))

    def list(self) -> builtins.list[Tool]:
        """Lists tools, by name."""
        return decode_list(Tool, (self._transport.get("/v1/tools"))["data"])

    def get(self, name: str, *, version: int | None = None) -> Tool:
        """Describes a tool, by its name or ID."""
        return decode(Tool, self._transport.get(path("tools", name), version=version))

    def update(self, name: str, *, configuration: ToolConfiguration | Mapping[str, Any] | None = None,
                     description: str | None = None,
                     approval_action: Literal["allow", "review", "deny"] | None = None) -> Tool:
        """Makes a new version. A configuration is given whole; without env_variables it keeps those that it has."""
        return decode(Tool, self._transport.patch(path("tools", name), body(
            configuration=None if configuration is None else _typed(configuration), description=description,
            approval_action=approval_action)))

    def delete(self, name: str) -> None:
        """Removes a tool with its versions. Its runs stay."""
        self._transport.delete(path("tools", name))

    def run(self, name: str, input: Mapping[str, Any] | None = None, *, container: str | None = None,
                  version: int | None = None, files: Sequence[str] | None = None, background: bool | None = None,
                  idempotency_key: str | None = None) -> ToolRun:
        """Runs a tool once, and waits for its end unless it needs approval or runs in the background.

        Raises:
            InvalidArgumentError: The input does not fit; `item` names the field.
            PermissionDeniedError: Its approval_action is deny.
        """
        wait = self._transport.wait
        asked = body(input=None if input is None else {**input}, container=container, version=version, files=files,
                     background=background, idempotency_key=idempotency_key or (new_key(wait) if wait > 0 else None))
        return decode(ToolRun, self._transport.call(Request(
            "POST", path("tools", name, "run"), json=asked, repeat="idempotency_key" in asked, timeout=3700)))

    def runs(self, *, tool: str | None = None, state: str | None = None) -> builtins.list[ToolRun]:
        """Lists runs, newest first."""
        pages = self._transport.pages("/v1/tool_runs", tool=tool, state=state, limit=100)
        with closing(pages) as listed:
            return [decode(ToolRun, r) for r in listed]

    def get_run(self, id: str, *, wait_seconds: int | None = None) -> ToolRun:
        """Describes a run, and waits up to so many seconds for its end."""
        return decode(ToolRun, self._transport.call(Request(
            "GET", path("tool_runs", id), {"wait_seconds": wait_seconds},
            timeout=self._transport.timeout + (wait_seconds or 0))))


def _typed(configuration: ToolConfiguration | Mapping[str, Any]) -> Any:
    if isinstance(configuration, ToolConfiguration):
        return configuration
    return {"type": "CodeRunner", "runtime": "python", **configuration}


