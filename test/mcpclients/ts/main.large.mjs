// Has an official TypeScript client get large answers: "sdk" is the first generation, "client" the second. Prints a line
// "PASS name" or "FAIL name why" for each check.
import assert from "node:assert/strict";

const { BERTH_URL, BERTH_API_KEY, BERTH_BINARY } = process.env;
const MiB = 1 << 20;
const [{ Client }, { StdioClientTransport }, { StreamableHTTPClientTransport }] = await Promise.all(
  process.argv[2] === "sdk" ? [
    import("@modelcontextprotocol/sdk/client/index.js"), import("@modelcontextprotocol/sdk/client/stdio.js"),
    import("@modelcontextprotocol/sdk/client/streamableHttp.js"),
  ] : [
    import("@modelcontextprotocol/client"), import("@modelcontextprotocol/client/stdio"),
    import("@modelcontextprotocol/client"),
  ]);

async function open(transport) {
  const client = new Client({ name: "ts-large", version: "1" });
  await client.connect(transport);
  return client;
}

const overHTTP = () => open(new StreamableHTTPClientTransport(
  new URL(BERTH_URL + "/mcp"), { requestInit: { headers: { "X-Api-Key": BERTH_API_KEY } } }));
const overPipes = () => open(new StdioClientTransport({
  command: BERTH_BINARY, args: ["mcp"], env: { ...process.env, BERTH_HOST: BERTH_URL },
}));

async function call(client, name, args, streamed) {
  const options = streamed ? { onprogress() {} } : {};
  const params = { name, arguments: args };
  const result = process.argv[2] === "sdk" ? await client.callTool(params, undefined, options) :
    await client.callTool(params, options);
  assert.ok(Buffer.byteLength(JSON.stringify(result)) <= MiB, "the answer is too large");
  return result;
}

const textOf = (result) => result.content.filter((c) => c.type === "text").map((c) => c.text).join("");
const linksOf = (result) => result.content.filter((c) => c.type === "resource_link");

async function bytesOf(client, uri) {
  const { contents: [{ text, blob }] } = await client.readResource({ uri });
  return text === undefined ? Buffer.from(blob, "base64") : Buffer.from(text);
}

async function read(client, uri, size) {
  const whole = await bytesOf(client, uri);
  assert.equal(whole.length, size);
  const parts = [];
  for (let at = 0; at < size; at += 1500001) parts.push(await bytesOf(client, `${uri}?offset=${at}&length=1500001`));
  assert.ok(Buffer.concat(parts).equals(whole), "the ranges differ from the whole");
}

const checks = {
  async printed(client, size) {
    for (const streamed of [false, true]) {
      for (const char of ["x", "\\x01"]) {
        const command = `python3 -c "import sys; sys.stdout.write('${char}' * ${size})"`;
        const got = textOf(await call(client, "bash", { command }, streamed));
        const [mark, dropped] = got.match(/\n\[output truncated: (\d+) bytes left out\]\n/);
        assert.equal(got.length - mark.length + Number(dropped), size);
      }
      const result = await call(client, "run_code", { code: `print('a' * ${size})` }, streamed);
      assert.match(textOf(result), /bytes left out/);
      assert.ok(JSON.stringify(result.structuredContent).length < MiB / 4, "the output is told twice");
    }
  },
  async viewed(client, size) {
    const made = await call(client, "bash", {
      command: `cd /workspace; yes 0123456789 | head -c ${size} >big.txt; ` +
        `(printf '\\x89PNG\\r\\n\\x1a\\n'; head -c ${size - 8} /dev/urandom) >big.png`,
    });
    const view = { command: "view", path: "/workspace/big.txt" };
    assert.match(textOf(await call(client, "str_replace_based_edit_tool", view)), /bytes left out/);
    view.path = "/workspace/big.png";
    const [link] = linksOf(await call(client, "str_replace_based_edit_tool", view));
    assert.equal(link.name, "big.png");
    await read(client, link.uri, size);
    await read(client, `berth://containers/${made._meta["berth/container"].id}/workspace/big.txt`, size);
  },
};

for (const [way, connect, sizes] of [["http", overHTTP, [1, 2, 4]], ["stdio", overPipes, [4]]]) {
  const client = await connect();
  for (const [name, check] of Object.entries(checks)) {
    for (const size of sizes) {
      try {
        await check(client, size * MiB);
        console.log(`PASS ${way}/${name}-${size}MiB`);
      } catch (err) {
        console.log(`FAIL ${way}/${name}-${size}MiB ${String(err.stack ?? err).replaceAll("\n", " | ")}`);
      }
    }
  }
  await client.close();
}
process.exit(0);
