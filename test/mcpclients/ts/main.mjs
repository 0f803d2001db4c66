// Runs the official TypeScript client against a daemon. Prints a line "PASS name" or "FAIL name why" for each check.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import assert from "node:assert/strict";

const { BERTH_URL, BERTH_API_KEY, BERTH_BINARY } = process.env;
const headers = { "X-Api-Key": BERTH_API_KEY };

async function overHTTP(query = "") {
  const transport = new StreamableHTTPClientTransport(
    new URL(BERTH_URL + "/mcp" + query), { requestInit: { headers } });
  const client = new Client({ name: "ts", version: "1" });
  await client.connect(transport);
  return { client, end: async () => { await transport.terminateSession(); await client.close(); } };
}

async function overPipes(...args) {
  const transport = new StdioClientTransport({
    command: BERTH_BINARY, args: ["mcp", ...args], env: { ...process.env, BERTH_HOST: BERTH_URL },
  });
  const client = new Client({ name: "ts-stdio", version: "1" });
  await client.connect(transport);
  return { client, end: () => client.close() };
}

const call = (client, name, args, options) => client.callTool({ name, arguments: args }, undefined, options);
const textOf = (result) => result.content.filter((c) => c.type === "text").map((c) => c.text).join("");
const containerOf = (result) => result._meta["berth/container"].id;

// gone waits until a container is deleted.
async function gone(id) {
  for (let i = 0; i < 100; i++) {
    const res = await fetch(`${BERTH_URL}/v1/containers/${id}`, { headers });
    if (res.status === 404) return;
    await new Promise((go) => setTimeout(go, 100));
  }
  assert.fail(`${id} is still there`);
}

const everything = {
  async tools({ client }) {
    const { tools } = await client.listTools();
    assert.deepEqual(tools.map((t) => t.name), [
      "bash", "code_executor", "delete_container", "download_file", "find_files", "grep_files",
      "list_containers", "list_snapshots", "restore_snapshot", "run_code", "save_snapshot", "str_replace_based_edit_tool", "upload_file",
    ]);
  },
  async shell({ client }) {
    await call(client, "bash", { command: "cd /tmp && word=kept" });
    assert.equal(textOf(await call(client, "bash", { command: "pwd; echo $word" })), "/tmp\nkept\n");
    const failed = await call(client, "bash", { command: "echo no >&2; false" });
    assert.ok(failed.isError);
    assert.match(textOf(failed), /no\n\[exit code: 1\]/);
  },
  async progress({ client }) {
    const heard = [];
    const command = "for i in 1 2 3; do echo line $i; sleep 0.3; done";
    await call(client, "bash", { command }, { onprogress: (p) => heard.push(p) });
    assert.equal(heard.map((p) => p.message).join(""), "line 1\nline 2\nline 3\n");
    assert.ok(heard.length >= 2, "all of it came at once");
  },
  async cancel({ client }) {
    const stop = new AbortController();
    const command = "while :; do date +%s%N >/tmp/alive; echo alive; sleep 0.05; done";
    const called = call(client, "bash", { command }, { signal: stop.signal, onprogress: () => stop.abort() });
    await assert.rejects(called);
    // The command has ended if it writes nothing for ten times its write interval.
    const code = "import time\na = open('/tmp/alive').read()\ntime.sleep(0.5)\na == open('/tmp/alive').read()";
    for (let i = 0; textOf(await call(client, "run_code", { code })) !== "True"; i++) assert.ok(i < 20, "it goes on");
  },
  async code({ client }) {
    const result = await call(client, "run_code", {
      code: "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nprint('out')\n6 * 7",
    });
    assert.deepEqual(result.structuredContent.logs.stdout, ["out\n"]);
    assert.equal(result.structuredContent.results.at(-1), "42");
    const [image] = result.content.filter((c) => c.type === "image");
    assert.equal(image.mimeType, "image/png");
    assert.equal(Buffer.from(image.data, "base64").subarray(1, 4).toString(), "PNG");
    const failed = await call(client, "run_code", { code: "1/0" });
    assert.ok(failed.isError);
    assert.equal(failed.structuredContent.error_detail.name, "ZeroDivisionError");
    assert.deepEqual(
      (await call(client, "run_code", { code: "[1, 2].map(x => x * 2)", language: "js" })).structuredContent.results,
      ["[ 2, 4 ]"]);
  },
  async context({ client }) {
    await call(client, "run_code", { code: "x = 20", context: "main" });
    assert.deepEqual(
      (await call(client, "run_code", { code: "x + 1", context: "main" })).structuredContent.results, ["21"]);
    assert.ok((await call(client, "run_code", { code: "x" })).isError, "a fresh interpreter knows x");
  },
  async executor({ client }) {
    for (const language of ["python", "node"]) {
      const code = language === "node" ? "console.log('hi')" : "print('hi')";
      assert.match(
        textOf(await call(client, "code_executor", { language, code })), /^## Code Execution Result\n[^]*hi\n/);
    }
  },
  async editor({ client }) {
    const path = "/workspace/note.txt";
    await call(client, "str_replace_based_edit_tool", { command: "create", path, file_text: "one\n" });
    await call(
      client, "str_replace_based_edit_tool", { command: "str_replace", path, old_str: "one", new_str: "two" });
    assert.match(textOf(await call(client, "str_replace_based_edit_tool", { command: "view", path })), /1\ttwo\n/);
    assert.ok((await call(client, "str_replace_based_edit_tool", {
      command: "str_replace", path, old_str: "nope", new_str: "",
    })).isError);
  },
  async files({ client }) {
    const result = await call(client, "bash", {
      command: "echo made >$OUTPUT_DIR/made.txt; printf '\\000\\377' >/workspace/raw",
    });
    const link = result.content.find((c) => c.type === "resource_link");
    assert.equal((await client.readResource({ uri: link.uri })).contents[0].text, "made\n");
    const uri = `berth://containers/${containerOf(result)}/workspace/raw`;
    assert.equal((await client.readResource({ uri })).contents[0].blob, Buffer.from([0, 255]).toString("base64"));
    assert.ok((await client.listResources()).resources.some((r) => r.uri === link.uri));
    assert.equal((await client.listResourceTemplates()).resourceTemplates.length, 3);
    await assert.rejects(client.readResource({ uri: "berth://files/file_nope" }), { code: -32002 });
    await call(client, "upload_file", { path: "again.txt", file_id: link.uri });
    assert.equal(textOf(await call(client, "bash", { command: "cat /workspace/again.txt" })), "made\n");
  },
  async mistakes({ client }) {
    const result = await call(client, "bash", { command: 7 });
    assert.ok(result.isError);
    assert.equal(result._meta["berth/error"].item, "command");
    await assert.rejects(call(client, "nope", {}), { code: -32602 });
  },
};

async function endOf(open) {
  const { client, end } = await open();
  const id = containerOf(await call(client, "bash", { command: "true" }));
  await end();
  await gone(id);
  return id;
}

async function named(open) {
  const made = await (await fetch(BERTH_URL + "/v1/containers", {
    method: "POST", headers: { ...headers, "Content-Type": "application/json" }, body: "{}",
  })).json();
  const { client, end } = await open(made.id);
  assert.equal(containerOf(await call(client, "bash", { command: "true" })), made.id);
  await end();
  assert.equal((await fetch(`${BERTH_URL}/v1/containers/${made.id}`, { method: "DELETE", headers })).status, 200);
}

async function report(name, check) {
  try {
    await check();
    console.log(`PASS ${name}`);
  } catch (err) {
    console.log(`FAIL ${name} ${String(err.stack ?? err).replaceAll("\n", " | ")}`);
  }
}

const { tools, shell, progress, cancel, files } = everything; // what a bridge could get wrong
for (const [way, open, checks] of [
  ["http", overHTTP, everything], ["stdio", overPipes, { tools, shell, progress, cancel, files }],
]) {
  const session = await open();
  for (const [name, check] of Object.entries(checks)) await report(`${way}/${name}`, () => check(session));
  await session.end();
}
await report("http/end", () => endOf(overHTTP));
await report("stdio/end", () => endOf(overPipes));
await report("http/named", () => named((id) => overHTTP("?container=" + id)));
await report("stdio/named", () => named((id) => overPipes("--container", id)));
process.exit(0);
