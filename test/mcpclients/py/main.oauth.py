"""Has an official Python client, of either generation of the SDK, find the authorization server by itself and use the
token that it gets there. Prints "PASS oauth" or "FAIL oauth why"."""

import asyncio
import os
import sys
import urllib.parse
import urllib.request

import mcp.client.streamable_http as transport
from mcp import ClientSession
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import OAuthClientMetadata

URL = os.environ["BERTH_URL"] + "/mcp"
BACK = "http://localhost:1/callback"


class Memory:
    """Keeps what the client has got."""
    tokens = client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


class Person:
    """Consents to everything."""

    async def open(self, url):
        try:
            urllib.request.build_opener(NoRedirect).open(url)
        except urllib.error.HTTPError as e:
            self.back = urllib.parse.parse_qs(urllib.parse.urlparse(e.headers["Location"]).query)

    async def answer(self):
        code, state, issuer = (self.back[name][0] for name in ("code", "state", "iss"))
        try:
            from mcp.shared.auth import AuthorizationCodeResult
        except ImportError:  # generation 1
            return code, state
        return AuthorizationCodeResult(code=code, state=state, iss=issuer)


async def use(provider):
    if hasattr(transport, "streamablehttp_client"):  # generation 1
        opened = transport.streamablehttp_client(URL, auth=provider)
    else:
        opened = transport.streamable_http_client(URL, http_client=transport.create_mcp_http_client(auth=provider))
    async with opened as streams, ClientSession(streams[0], streams[1]) as session:
        await session.initialize()
        result = await session.call_tool("list_containers", {})
        assert not (getattr(result, "is_error", False) or getattr(result, "isError", False)), result


async def main():
    memory, person = Memory(), Person()
    metadata = OAuthClientMetadata(client_name="py", redirect_uris=[BACK], grant_types=["authorization_code"],
                                   response_types=["code"])
    await use(OAuthClientProvider(server_url=URL, client_metadata=metadata, storage=memory,
                                  redirect_handler=person.open, callback_handler=person.answer))
    assert memory.tokens.scope == "containers", memory.tokens


try:
    asyncio.run(main())
    print("PASS oauth")
except BaseException as e:
    print("FAIL oauth", repr(e).replace("\n", " "))
    sys.exit(1)
