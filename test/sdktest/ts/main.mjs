// Drives the edge with the official TypeScript SDK.
//
// It prints one line per row of the contract, "PASS 9" or "FAIL 9 why"; sdk_test.go reads them.
import Anthropic, { toFile } from "@anthropic-ai/sdk";
import { FileNotDownloadableError, StorageQuotaExceededError } from "@anthropic-ai/sdk/resources/files";
import assert from "node:assert/strict";
import { File } from "node:buffer";
import { createHash } from "node:crypto";

globalThis.File ??= File; // what the SDK asks for on Node 18, which is what Debian 12 has

const env = process.env;
const make = (baseURL, more = {}) => new Anthropic({ baseURL, apiKey: env.BERTH_API_KEY, ...more });
const client = make(env.BERTH_BASE_URL);
const strict = make(env.BERTH_STRICT_URL);
const small = make(env.BERTH_SMALL_URL);

async function row(n, check) {
  try {
    await check();
    console.log(`PASS ${n}`);
  } catch (err) {
    console.log(`FAIL ${n} ${String(err?.stack ?? err).replaceAll("\n", " ")}`);
  }
}

const upload = async (name, type, content) => client.files.upload({ file: await toFile(Buffer.from(content), name, { type }) });

// fails resolves to the error of a promise that must fail with this status.
async function fails(promise, status) {
  const err = await promise.then(
    () => assert.fail(`no error, want ${status}`),
    (err) => err,
  );
  assert.equal(err.status, status, String(err));
  return err;
}

await row(1, async () => {
  await client.files.list();
  await make(env.BERTH_BASE_URL, { defaultHeaders: { "X-Api-Key": env.BERTH_API_KEY } }).files.list();
  await make(env.BERTH_BASE_URL, { defaultHeaders: { "X-Api-Key": env.BERTH_API_KEY, Authorization: null } }).files.list();
  const err = await fails(make(env.BERTH_BASE_URL, { apiKey: "wrong" }).files.list(), 401);
  assert.ok(err instanceof Anthropic.AuthenticationError);
  assert.equal(err.type, "authentication_error");
});

await row(4, async () => {
  const { request_id } = await client.files.list().withResponse();
  assert.match(request_id, /^req_\w+$/);
  const err = await fails(client.files.retrieveMetadata("file_0000000000000000000000"), 404);
  assert.match(err.requestID, /^req_\w+$/);
  assert.equal(err.error.request_id, err.requestID);
});

await row(6, async () => {
  const err = await fails(small.files.upload({ file: await toFile(Buffer.alloc(3 << 20), "big.bin") }), 400);
  assert.equal(err.errorCode, "storage_quota_exceeded");
  assert.ok(err instanceof StorageQuotaExceededError);
});

await row(7, async () => {
  let attempts = 0;
  const counting = make(env.BERTH_BASE_URL, { fetch: (...args) => (attempts++, fetch(...args)) });
  for (const [id, status] of [["file_conflict", 409], ["file_broken", 500]]) {
    attempts = 0;
    await fails(counting.files.retrieveMetadata(id), status);
    assert.equal(attempts, 1, id);
  }
  attempts = 0;
  const start = performance.now();
  await counting.files.retrieveMetadata("file_busy");
  assert.equal(attempts, 2);
  assert.ok(performance.now() - start >= 990, "Retry-After was not waited for"); // timers may be early by a rounding
});

await row(9, async () => {
  const f = await upload("data.csv", "text/csv", "a,b\n1,2\n");
  assert.match(f.id, /^file_\w+$/);
  const { id, created_at, ...rest } = f;
  assert.match(created_at, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/);
  assert.deepEqual({ ...rest }, { type: "file", filename: "data.csv", mime_type: "text/csv", size_bytes: 8, downloadable: false, expires_at: null });
});

await row(11, async () => {
  for (const [sent, kept] of [["naïve 数据.csv", "naïve 数据.csv"], ["100%25.csv", "100%25.csv"], ["../../etc/passwd", "passwd"]]) {
    assert.equal((await upload(sent, "text/plain", "x")).filename, kept);
  }
  for (const bad of ['a"b', "a\\b", "a<b", "a\r\nb", "a|b", "a?b"]) {
    await fails(upload(bad, "text/plain", "x"), 400);
  }
});

await row(16, async () => {
  const made = [];
  for (let i = 0; i < 25; i++) made.unshift((await strict.files.upload({ file: await toFile(Buffer.from("x"), "x") })).id);
  for (const limit of [7, 25, 1000]) {
    const walked = [];
    for await (const f of strict.files.list({ limit })) walked.push(f.id);
    assert.deepEqual(walked, made);
  }
  assert.equal((await strict.files.list()).data.length, 20);
});

await row(21, async () => {
  const f = await strict.files.upload({ file: await toFile(Buffer.from("mine"), "x.txt") });
  const err = await fails(strict.files.download(f.id), 400);
  assert.ok(err instanceof FileNotDownloadableError);
  assert.equal(err.errorCode, "file_not_downloadable");
  const open = await upload("x.txt", "text/plain", "mine");
  assert.equal(await (await client.files.download(open.id)).text(), "mine");
});

await row(22, async () => {
  const res = await client.files.download(env.BERTH_PRODUCED_ID);
  const data = Buffer.from(await res.arrayBuffer());
  assert.equal(createHash("sha256").update(data).digest("hex"), env.BERTH_PRODUCED_SHA256);
  assert.equal(res.headers.get("content-type"), "image/png");
  assert.equal(res.headers.get("content-length"), String(data.length));
});

await row(24, async () => {
  const id = env.BERTH_BIG_ID;
  const res = await client.files.download(id);
  const hash = createHash("sha256");
  let deleted;
  for await (const chunk of res.body) {
    hash.update(chunk);
    deleted ??= await client.files.delete(id);
  }
  assert.deepEqual({ ...deleted }, { id, type: "file_deleted" });
  assert.equal(hash.digest("hex"), env.BERTH_BIG_SHA256);
  await fails(client.files.delete(id), 404);
  const err = await fails(client.files.retrieveMetadata(id), 404);
  assert.ok(err instanceof Anthropic.NotFoundError);
});

await row("skills", async () => {
  const file = async (path, text) => toFile(Buffer.from(text), path, { type: "text/plain" });
  const manifest = (text) => file("notes/SKILL.md", `---\nname: notes\ndescription: ${text}\n---\n`);
  const k = await client.skills.create({ files: [await manifest("One."), await file("notes/a/b.txt", "x")], display_name: "Nötes" });
  assert.equal(k.display_name, "Nötes");
  assert.deepEqual({ ...k.source }, { type: "custom" });
  const v = await client.skills.versions.create(k.id, { files: [await manifest("Two.")] });
  assert.equal((await client.skills.versions.retrieve("latest", { skill_id: k.id })).id, v.id);
  const versions = [];
  for await (const each of client.skills.versions.list(k.id, { limit: 1 })) versions.push(each.description);
  assert.deepEqual(versions, ["Two.", "One."]);
  const provided = [];
  for await (const each of client.beta.skills.list({ source: "anthropic" })) provided.push(each.id);
  assert.deepEqual(provided, ["xlsx"]);
  const err = await fails(client.skills.create({ files: [await file("SKILL.md", "x")] }), 400);
  assert.match(err.message, /SKILL\.md/);
  assert.deepEqual({ ...(await client.skills.delete(k.id)) }, { id: k.id, type: "skill_deleted" });
  await fails(client.skills.retrieve(k.id), 404);
});

const talker = make(env.BERTH_MESSAGES_URL, { apiKey: env.BERTH_MESSAGES_KEY });
const codeTool = { type: "code_execution_20260120", name: "code_execution" };
const weatherTool = { name: "weather", input_schema: { type: "object", properties: { city: { type: "string" } } } };
const ask = (model, more = {}) => ({ model, max_tokens: 100, tools: [codeTool], messages: [{ role: "user", content: "go" }], ...more });
const send = (params, streamed) => (streamed ? talker.messages.stream(params).finalMessage() : talker.messages.create(params));
const kinds = (m) => m.content.map((b) => (b.content?.type ? b.content.type : b.type));

// both runs a check with a whole answer and with a stream.
const both = (check) => async () => {
  for (const streamed of [false, true]) await check(streamed);
};

await row(
  44,
  both(async (streamed) => {
    const m = await send(ask("blocks"), streamed);
    assert.deepEqual(kinds(m).slice(9), [
      "bash_code_execution_result", "bash_code_execution_tool_result_error", "text_editor_code_execution_create_result", "text_editor_code_execution_view_result",
      "text_editor_code_execution_str_replace_result", "text_editor_code_execution_tool_result_error", "code_execution_result", "code_execution_tool_result_error", "text",
    ]);
    assert.ok(m.content.slice(1, 9).every((b) => b.type === "server_tool_use" && b.id.startsWith("srvtoolu_") && b.caller.type === "direct"));
    assert.match(m.container.id, /^container_\w+$/);
    assert.ok(new Date(m.container.expires_at) > new Date());
  }),
);

await row(45, async () => {
  const got = [];
  for (const streamed of [false, true]) {
    const m = JSON.parse(JSON.stringify(await send(ask("blocks"), streamed)));
    m.content[9].content.content = null; // the file's ID
    delete m.container;
    delete m.id;
    for (const part of [m, ...m.content]) delete part.parsed_output; // which only streams have, of the SDK's own
    got.push(m);
  }
  assert.deepEqual(got[1], got[0]);
});

const again = (params, m, user) => ({
  ...params,
  messages: [...params.messages, { role: "assistant", content: m.content }, ...(user ? [{ role: "user", content: user }] : [])],
  ...(m.container ? { container: m.container.id } : {}),
});

await row(
  46,
  both(async (streamed) => {
    const params = ask("pause");
    const m = await send(params, streamed);
    assert.equal(m.stop_reason, "pause_turn");
    const next = await send(again(params, m), streamed);
    assert.deepEqual(kinds(next), ["server_tool_use", "bash_code_execution_result", "text"]);
    assert.equal(next.container.id, m.container.id);
  }),
);

await row(
  47,
  both(async (streamed) => {
    const params = ask("mixed", { tools: [codeTool, weatherTool] });
    const m = await send(params, streamed);
    assert.deepEqual([m.stop_reason, ...kinds(m)], ["tool_use", "server_tool_use", "tool_use"]);
    const next = await send(again(params, m, [{ type: "tool_result", tool_use_id: m.content[1].id, content: "rain" }]), streamed);
    assert.deepEqual(kinds(next), ["bash_code_execution_result", "text"]);
    assert.equal(next.content[0].tool_use_id, m.content[0].id);
  }),
);

// run has the SDK run a conversation with a tool of its own, to its end.
async function run(model, tools, streamed, more = {}) {
  const asked = [];
  const weather = {
    ...weatherTool,
    type: "custom",
    run: async ({ city }) => {
      asked.push(city);
      return `${city}: rain`;
    },
    parse: (x) => x,
  };
  const runner = talker.beta.messages.toolRunner({ ...ask(model), tools: [...tools, weather], stream: streamed, ...more });
  let last;
  for await (const turn of runner) last = streamed ? await turn.finalMessage() : turn;
  assert.equal(last.stop_reason, "end_turn");
  return { asked, last };
}

await row(
  48,
  both(async (streamed) => {
    const { asked, last } = await run("runner", [codeTool], streamed);
    assert.deepEqual(asked, ["Riga", "Oslo"]);
    assert.equal(last.content[1].content.stdout, "kept\n");
  }),
);

// Newer versions send new messages only, and all of them where there are no threads.
await row(
  "thread",
  both(async (streamed) => {
    for (const model of ["threads", "chat/threads"]) assert.deepEqual((await run(model, [], streamed)).asked, ["Riga"], model);
  }),
);

await row(
  "chat",
  both(async (streamed) => {
    const more = { context_management: { edits: [{ type: "clear_tool_uses_20250919" }] } };
    const { asked, last } = await run("chat/runner", [{ ...codeTool, defer_loading: true }], streamed, more);
    assert.deepEqual(asked, ["Riga", "Oslo"]);
    assert.equal(last.content[1].content.stdout, "kept\n");
  }),
);

await row("models", async () => {
  const ids = [];
  for await (const m of talker.models.list({ limit: 3 })) ids.push(m.id);
  for (const id of ["runner", "chat/runner"]) {
    assert.ok(ids.includes(id), String(ids));
    const m = await talker.models.retrieve(id);
    assert.equal(m.id, id);
    assert.equal(m.type, "model");
    assert.ok(new Date(m.created_at).getTime() >= 0);
  }
  assert.equal(new Set(ids).size, ids.length);
  await fails(talker.models.retrieve("chat/none"), 404);
});
