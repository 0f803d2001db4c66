// Has the tools of one version of @librechat/agents run code. The environment alone says where. Prints "done".
import assert from "node:assert/strict";

const old = process.argv[2] === "old";
const agents = await import(old ? "agents-old" : "agents");
const base = process.env.LIBRECHAT_CODE_BASEURL;
const key = old ? { "X-API-Key": process.env.LIBRECHAT_CODE_API_KEY } : {};
const invoke = async (tool, args, more) => {
  const message = await tool.invoke({ type: "tool_call", id: "1", name: tool.name, args, ...more });
  return [message.content, message.artifact];
};

assert.equal(agents.getCodeBaseURL(), base);
const run = agents.createCodeExecutionTool({ user_id: "someone" });
const [text, made] = await invoke(run, { lang: "py", code: "open('out.csv', 'w').write('a,b'); print(6 * 7)" });
assert.match(text, /stdout:\n42\n/);
assert.equal(made.files.length, 1);

// TypeScript with what only a compiler can take, as a module and not.
for (const code of ["import { basename } from 'path'\nenum E { A = 6 }\nconsole.log(basename('/a/b') as string, E.A)",
  "const { basename }: any = require('path')\nlet n: number = 6\nconsole.log(basename('/a/b'), n)"]) {
  assert.match((await invoke(run, { lang: "ts", code }))[0], /stdout:\nb 6$/m);
}

// An upload and a download, as the application makes them.
const form = new FormData();
form.append("kind", "user");
form.append("id", "someone");
form.append("file", new Blob(["uploaded"]), "in.txt");
const up = await (await fetch(`${base}/upload`, { method: "POST", body: form, headers: key })).json();
assert.equal(up.message, "success");
const [file] = made.files;
assert.match(`${made.session_id}/${file.id}`, /^[A-Za-z0-9_-]{21}\/[A-Za-z0-9_-]{21}$/);
const got = await fetch(`${base}/download/${made.session_id}/${file.id}?kind=user&id=someone`, { headers: key });
assert.equal(await got.text(), "a,b");

// Files of earlier sessions are inputs.
const session = up.storage_session_id;
if (old) {
  const [seen] = await invoke(run, { lang: "js", session_id: made.session_id,
    code: "console.log(require('fs').readFileSync('out.csv', 'utf8'))" });
  assert.match(seen, /a,b/);
  assert.equal((await agents.fetchSessionFiles(base, key["X-API-Key"], session))[0].name, "in.txt");
} else {
  const files = await agents.fetchSessionFiles(base, session, { kind: "user", id: "someone" });
  assert.equal(files[0].name, "in.txt");
  const bash = agents.createBashExecutionTool({ statefulSessions: true, runtimeSessionHint: "talk", files });
  const [seen, first] = await invoke(bash, { command: "cat in.txt; echo kept > kept.txt" });
  assert.match(seen, /uploaded/);
  const [again, second] = await invoke(bash, { command: "cat kept.txt" });
  assert.match(again, /kept/);
  assert.equal(first.runtime_session_id, second.runtime_session_id);
  assert.equal(second.runtime_status, "reused");
}

// Programs call tools of this process.
const toolDefs = [{ name: "get-weather", description: "weather", parameters: { type: "object",
  properties: { city: { type: "string" } }, required: ["city"] } }];
const toolMap = new Map([["get-weather", { name: "get-weather", invoke: async ({ city }) => ({ city, warm: true }) }]]);
const program = agents.createProgrammaticToolCallingTool({});
const [sum] = await invoke(program, { code:
  "a, b = await asyncio.gather(get_weather(city='x'), get_weather(city='y'))\nprint(a['city'] + b['city'], a['warm'])" },
{ toolMap, toolDefs });
assert.match(sum, /xy True/);
if (!old) {
  const script = agents.createBashProgrammaticToolCallingTool({});
  const [said] = await invoke(script, { code: `w=$(get_weather '{"city": "z"}'); echo "$w" | jq -r .city` },
    { toolMap, toolDefs });
  assert.match(said, /stdout:\nz$/);
}
console.log("done");
process.exit(0); // the library keeps timers
