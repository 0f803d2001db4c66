// Runs the official TypeScript client of the second generation against a daemon, with requests that belong to no
// session. Prints a line "PASS name" or "FAIL name why" for each check.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";

const { BERTH_URL, BERTH_API_KEY, BERTH_BINARY } = process.env;
const headers = { "X-Api-Key": BERTH_API_KEY };
const MiB = 1 << 20;

const transports = {
  http: () => new StreamableHTTPClientTransport(new URL(BERTH_URL + "/mcp"), { requestInit: { headers } }),
  stdio: () => new StdioClientTransport({
    command: BERTH_BINARY, args: ["mcp"], env: { ...process.env, BERTH_HOST: BERTH_URL },
  }),
};

async function open(way, mode) {
  const changed = [];
  const client = new Client({ name: "ts-single", version: "1" }, {
    versionNegotiation: { mode }, listChanged: { tools: { onChanged: (err, tools) => changed.push([err, tools]) } },
  });
  await client.connect(transports[way]());
  return { client, changed, box: "work-" + randomUUID().slice(0, 8) };
}

const call = (client, name, args, options) => client.callTool({ name, arguments: args }, options);
const textOf = (result) => result.content.filter((c) => c.type === "text").map((c) => c.text).join("");

// until waits for what comes by an event that a client does not wait for.
async function until(what) {
  for (let i = 0; i < 200; i++) {
    if (await what()) return;
    await new Promise((go) => setTimeout(go, 50));
  }
  assert.fail(`it never came: ${what}`);
}

const everything = {
  async tools({ client }) {
    assert.equal(client.getNegotiatedProtocolVersion(), "2026-07-28");
    for (const { inputSchema } of (await client.listTools()).tools) {
      if (inputSchema.properties.container) assert.ok(inputSchema.required.includes("container"));
    }
    const result = await call(client, "bash", { command: "true" });
    assert.ok(result.isError);
    assert.match(textOf(result), /container is missing/);
  },
  async shell({ client, box }) {
    await call(client, "bash", { container: box, command: "cd /tmp && word=kept" });
    assert.equal(textOf(await call(client, "bash", { container: box, command: "pwd; echo $word" })), "/tmp\nkept\n");
  },
  async progress({ client, box }) {
    const heard = [];
    const command = "for i in 1 2 3; do echo line $i; sleep 0.3; done";
    await call(client, "bash", { container: box, command }, { onprogress: (p) => heard.push(p) });
    assert.equal(heard.map((p) => p.message).join(""), "line 1\nline 2\nline 3\n");
    assert.ok(heard.length >= 2, "all of it came at once");
  },
  async cancel({ client, box }) {
    const stop = new AbortController();
    const command = "while :; do date +%s%N >/tmp/alive; echo alive; sleep 0.05; done";
    await assert.rejects(call(
      client, "bash", { container: box, command }, { signal: stop.signal, onprogress: () => stop.abort() }));
    // The command has ended if it writes nothing for ten times its write interval.
    const code = "import time\na = open('/tmp/alive').read()\ntime.sleep(0.5)\na == open('/tmp/alive').read()";
    await until(async () => textOf(await call(client, "run_code", { container: box, code })) === "True");
  },
  async files({ client, box }) {
    const result = await call(client, "bash", { container: box, command: "echo made >$OUTPUT_DIR/made.txt" });
    const [link] = result.content.filter((c) => c.type === "resource_link");
    assert.equal((await client.readResource({ uri: link.uri })).contents[0].text, "made\n");
    await assert.rejects(client.readResource({ uri: "berth://files/file_nope" }), { code: -32602 });
  },
  async large({ client, box }) {
    for (const options of [{}, { onprogress() {} }]) {
      const command = `yes 0123456789 | head -c ${4 * MiB}`;
      const text = textOf(await call(client, "bash", { container: box, command }, options));
      assert.match(text, /bytes left out/);
      assert.ok(text.length > MiB / 8 && text.length < MiB);
    }
  },
  async changes({ client, changed }) {
    const name = "t" + randomUUID().slice(0, 8);
    const made = await fetch(BERTH_URL + "/v1/tools", {
      method: "POST", headers: { ...headers, "Content-Type": "application/json" }, body: JSON.stringify({
        name, tool_type: "code_runner",
        configuration: { type: "CodeRunner", runtime: "python", code: "def run(input): return 1" },
      }),
    });
    assert.equal(made.status, 201, await made.text());
    await until(() => changed.some(([err, tools]) => !err && tools.some((t) => t.name === name)));
    await fetch(BERTH_URL + "/v1/tools/" + name, { method: "DELETE", headers });
  },
  async remove({ client, box }) {
    await call(client, "delete_container", { container: box });
    assert.ok(!textOf(await call(client, "list_containers", {})).includes(box));
  },
};

async function report(name, check) {
  try {
    await check();
    console.log(`PASS ${name}`);
  } catch (err) {
    console.log(`FAIL ${name} ${String(err.stack ?? err).replaceAll("\n", " | ")}`);
  }
}

for (const way of ["http", "stdio"]) {
  const opened = await open(way, "auto");
  for (const [name, check] of Object.entries(everything)) await report(`${way}/${name}`, () => check(opened));
  await opened.client.close();
  // the same client in a session is told about changes, too
  const session = await open(way, "legacy");
  await report(`${way}/session/changes`, () => everything.changes(session));
  await session.client.close();
}
process.exit(0);
