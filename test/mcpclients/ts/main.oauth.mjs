// Has an official TypeScript client find the authorization server by itself and use the token that it gets there: "sdk"
// is the first generation, "client" the second. Prints "PASS oauth" or "FAIL oauth why".
import assert from "node:assert/strict";

const [{ Client }, { StreamableHTTPClientTransport }] = await Promise.all(process.argv[2] === "sdk" ? [
  import("@modelcontextprotocol/sdk/client/index.js"), import("@modelcontextprotocol/sdk/client/streamableHttp.js"),
] : [import("@modelcontextprotocol/client"), import("@modelcontextprotocol/client")]);
const redirectUrl = "http://localhost:1/callback";

// A provider keeps what the client has got, and stands for a person who consents to everything.
class Provider {
  redirectUrl = redirectUrl;
  clientMetadata = { client_name: "ts", redirect_uris: [redirectUrl], grant_types: ["authorization_code"],
    response_types: ["code"], token_endpoint_auth_method: "none" };
  clientInformation() { return this.client; }
  saveClientInformation(client) { this.client = client; }
  tokens() { return this.kept; }
  saveTokens(tokens) { this.kept = tokens; }
  saveCodeVerifier(verifier) { this.verifier = verifier; }
  codeVerifier() { return this.verifier; }
  discoveryState() { return this.found; }
  saveDiscoveryState(found) { this.found = found; }
  async redirectToAuthorization(url) {
    const answer = await fetch(url, { redirect: "manual" });
    this.back = new URL(answer.headers.get("location")).searchParams;
  }
}

try {
  const authProvider = new Provider();
  const open = () => new StreamableHTTPClientTransport(new URL(process.env.BERTH_URL + "/mcp"), { authProvider });
  const first = open();
  await assert.rejects(new Client({ name: "ts", version: "1" }).connect(first), /Unauthorized/);
  await first.finishAuth(process.argv[2] === "sdk" ? authProvider.back.get("code") : authProvider.back);
  const client = new Client({ name: "ts", version: "1" });
  await client.connect(open());
  const result = await client.callTool({ name: "list_containers", arguments: {} });
  assert(!result.isError, JSON.stringify(result));
  assert.equal(authProvider.kept.scope, "containers");
  await client.close();
  console.log("PASS oauth");
} catch (e) {
  console.log("FAIL oauth", String(e.stack ?? e).replaceAll("\n", " "));
  process.exitCode = 1;
}
