// Has the AI SDK work in containers: tools in a loop with its scripted model, all members of a session, and a harness
// whose bridge is reached through a port.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { readFile, readdir, writeFile } from 'node:fs/promises'
import http from 'node:http'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { pathToFileURL } from 'node:url'
import { HarnessCapabilityUnsupportedError, HarnessSandboxAuthenticationError } from '@ai-sdk/harness'
import { HarnessAgent } from '@ai-sdk/harness/agent'
import { Client, Sandbox } from '@berth/sdk'
import { BerthSandboxSession, createBerthSandbox, networkOf } from '@berth/ai-sdk'
import { ToolLoopAgent, generateText, isStepCount, simulateReadableStream, streamText, tool } from 'ai'
import { MockLanguageModelV4, MockProviderV4 } from 'ai/test'
import { WebSocket } from 'ws'
import { z } from 'zod'

const text = async stream => new Response(stream).text()
const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } }

// script makes a model that asks for these calls of tools, one at a time, and then says what the last one gave.
function script (...calls) {
  const next = prompt => {
    const step = prompt.filter(m => m.role === 'assistant').length
    const [toolName, input] = calls[step] ?? []
    const last = prompt.at(-1).content[0].output
    return toolName
      ? [{ type: 'tool-call', toolCallId: `call_${step}`, toolName, input: JSON.stringify(input) }, 'tool-calls']
      : [{ type: 'text', text: JSON.stringify(last?.value ?? last) }, 'stop']
  }
  return new MockLanguageModelV4({
    doGenerate: async ({ prompt }) => {
      const [part, unified] = next(prompt)
      return { content: [part], finishReason: { unified }, usage, warnings: [] }
    },
    doStream: async ({ prompt }) => {
      const [part, unified] = next(prompt)
      const parts = part.type === 'text'
        ? [{ type: 'text-start', id: '1' }, { type: 'text-delta', id: '1', delta: part.text },
            { type: 'text-end', id: '1' }]
        : [part]
      const finish = { type: 'finish', finishReason: { unified }, usage }
      return { stream: simulateReadableStream({ chunks: [...parts, finish] }) }
    }
  })
}

const tools = {
  shell: tool({
    description: ({ experimental_sandbox: sandbox }) => `Runs a command. ${sandbox.description}`,
    inputSchema: z.object({ command: z.string() }),
    execute: async ({ command }, { abortSignal, experimental_sandbox: sandbox }) =>
      sandbox.run({ command, abortSignal })
  }),
  write: tool({
    inputSchema: z.object({ path: z.string(), content: z.string() }),
    execute: async (file, { experimental_sandbox: sandbox }) => {
      await sandbox.writeTextFile(file)
      return 'written'
    }
  }),
  read: tool({
    inputSchema: z.object({ path: z.string(), startLine: z.number().optional() }),
    execute: async (file, { experimental_sandbox: sandbox }) => sandbox.readTextFile(file)
  })
}

const program = 'import sys\nprint(sum(int(line) for line in sys.stdin))\n'
const work = () => script(['write', { path: 'src/add.py', content: program }],
  ['shell', { command: 'seq 1 4 | python3 src/add.py | tee out.txt; ls /nowhere' }],
  ['read', { path: 'out.txt' }])

const cases = {
  async toolLoop (sandbox) {
    const model = work()
    const result = await generateText({ model, tools, prompt: 'Add the numbers.', stopWhen: isStepCount(9),
      experimental_sandbox: new BerthSandboxSession(sandbox) })
    assert.equal(result.text, '"10\\n"')
    assert.equal(result.steps.length, 4)
    const { exitCode, stdout, stderr } = result.steps[1].toolResults[0].output
    assert.deepEqual([exitCode, stdout, stderr.includes('/nowhere')], [2, '10\n', true])
    const { description } = model.doGenerateCalls[0].tools.find(t => t.name === 'shell')
    assert.match(description, /image base[^]*\/workspace[^]*no network/)
    assert.equal(await sandbox.files.read('src/add.py'), program)
  },

  async agentAndStream (sandbox) {
    const experimental_sandbox = new BerthSandboxSession(sandbox)
    const agent = new ToolLoopAgent({ model: work(), tools })
    assert.equal((await agent.generate({ prompt: 'Add.', experimental_sandbox })).text, '"10\\n"')
    const streamed = streamText({ model: work(), tools, prompt: 'Add.', stopWhen: isStepCount(9),
      experimental_sandbox })
    assert.equal(await streamed.text, '"10\\n"')
  },

  async files (sandbox) {
    const s = new BerthSandboxSession(sandbox)
    for (const path of ['none', '/none/of/this', 'a/b', 'gone']) {
      if (path === 'gone') await s.run({ command: 'ln -s nowhere gone' })
      const none = await Promise.all([s.readFile({ path }), s.readBinaryFile({ path }), s.readTextFile({ path }),
        s.stat({ path }), s.listDirectory({ path })])
      assert.deepEqual(none, [null, null, null, null, null], path)
      assert.equal(await s.deleteFile({ path }), path === 'gone', path)
    }
    const bytes = crypto.getRandomValues(new Uint8Array(65_536))
    const big = new Blob(Array(64).fill(bytes)) // 4 MiB
    await s.writeFile({ path: 'deep/down/big', content: big.stream() })
    const read = new Response(await s.readFile({ path: '/workspace/deep/down/big' }))
    assert.deepEqual(new Uint8Array(await read.arrayBuffer()), new Uint8Array(await big.arrayBuffer()))
    await s.writeBinaryFile({ path: 'bin', content: bytes })
    assert.deepEqual(new Uint8Array(await s.readBinaryFile({ path: './bin' })), bytes)
    await s.writeTextFile({ path: 'lines', content: 'one\ntwo\nthree\n' })
    assert.equal(await s.readTextFile({ path: 'lines', startLine: 2, endLine: 2 }), 'two')
    assert.equal(await s.readTextFile({ path: 'lines', startLine: 2, endLine: 99 }), 'two\nthree\n')
    await s.writeTextFile({ path: 'wide', content: 'ä', encoding: 'utf-16le' })
    assert.deepEqual([...await s.readBinaryFile({ path: 'wide' })], [0xe4, 0])
    assert.equal(await s.readTextFile({ path: 'wide', encoding: 'utf-16le' }), 'ä')
    await assert.rejects(s.readTextFile({ path: 'wide', encoding: 'klingon' }), /klingon.*use utf-8/)

    await s.run({ command: 'ln -s lines l1; ln -s l1 l2; ln -s deep ld; mkfifo pipe; mkdir void' })
    assert.deepEqual(await s.stat({ path: 'lines' }), { type: 'file', size: 14 })
    assert.deepEqual(await s.stat({ path: 'l2' }), { type: 'file', size: 14 })
    assert.equal((await s.stat({ path: 'ld' })).type, 'directory')
    assert.equal((await s.stat({ path: 'pipe' })).type, 'other')
    const listed = (await s.listDirectory({ path: '.' })).filter(e => !/^(job_|\.berth)/.test(e.name))
    assert.deepEqual(Object.fromEntries(listed.map(e => [e.name, e.type])), { bin: 'file', deep: 'directory',
      ld: 'symlink', l1: 'symlink', l2: 'symlink', lines: 'file', pipe: 'other', void: 'directory', wide: 'file' })
    assert.deepEqual(await s.listDirectory({ path: 'ld/down' }), [{ name: 'big', type: 'file' }])
    await assert.rejects(s.listDirectory({ path: 'lines' }), /lines is no directory; readFile/)
    await assert.rejects(s.deleteFile({ path: 'void' }), /void is a directory.*rm -r/)
    await assert.rejects(s.writeTextFile({ path: 'void', content: 'x' }), /void/)
    await assert.rejects(async () => s.readBinaryFile({ path: 'void' }), /void/)
    assert.equal(await s.deleteFile({ path: 'l2' }), true)
    assert.equal((await s.stat({ path: 'l1' })).type, 'file')
    await assert.rejects(s.stat({ path: 'lines', abortSignal: AbortSignal.abort(new Error('over')) }), /over/)
  },

  async commands (sandbox) {
    const s = new BerthSandboxSession(sandbox, { timeoutSeconds: 1 })
    await s.run({ command: 'mkdir -p a' })
    const here = await s.run({ command: 'echo $BASE $MORE; pwd', workingDirectory: 'a', env: { MORE: '2' } })
    assert.deepEqual(here, { exitCode: 0, stdout: '1 2\n/workspace/a\n', stderr: '' })
    const late = await s.run({ command: 'printf begun >&2; sleep 60' })
    assert.notEqual(late.exitCode, 0)
    assert.match(late.stderr, /^begun\nberth: it ran longer than/)
    const stop = new AbortController()
    const stopped = s.run({ command: 'touch started; exec sleep 1000', abortSignal: stop.signal })
    await s.run({ command: 'until test -e started; do sleep 0.02; done' })
    stop.abort(new Error('enough'))
    await assert.rejects(stopped, /enough/)
    const { stdout } = await s.run({ command: 'ps -eo args | grep -c "^sleep 1000"' })
    assert.equal(stdout, '0\n')
  },

  async processes (sandbox) {
    const s = new BerthSandboxSession(sandbox)
    const cat = await s.spawn({ command: 'cat; echo bye >&2; exit 3', stdin: true })
    assert.ok(cat.pid > 0)
    const writer = cat.stdin.getWriter()
    await writer.write(new TextEncoder().encode('a\xff'))
    await writer.write(Uint8Array.of(0xff, 10))
    await writer.close()
    assert.deepEqual([...new Uint8Array(await new Response(cat.stdout).arrayBuffer())], [97, 0xc3, 0xbf, 0xff, 10])
    assert.deepEqual([await cat.wait(), await text(cat.stderr)], [{ exitCode: 3 }, 'bye\n'])
    await cat.kill() // after its end

    const plain = await s.spawn({ command: 'cat; echo $X; pwd', workingDirectory: '/tmp', env: { X: 'y' } })
    assert.equal('stdin' in plain, false)
    assert.equal(await text(plain.stdout), 'y\n/tmp\n')
    assert.deepEqual(await plain.wait(), { exitCode: 0 })

    const live = await s.spawn({ command: 'echo ready; sleep 1000' })
    const reader = live.stdout.getReader()
    assert.equal(new TextDecoder().decode((await reader.read()).value), 'ready\n')
    await reader.cancel() // its command goes on
    assert.equal((await sandbox.command(String(live.pid)).info()).state, 'running')
    await live.kill()
    assert.equal((await live.wait()).exitCode, 137)

    const much = await s.spawn({ command: 'yes | head -c 20000000' }) // more than is kept: it waits for its reader
    let bytes = 0
    for await (const chunk of much.stdout) bytes += chunk.length
    assert.equal(bytes, 20_000_000)

    const stop = new AbortController()
    const aborted = await s.spawn({ command: 'sleep 1000', abortSignal: stop.signal })
    const waiting = aborted.wait()
    stop.abort(new Error('no more'))
    await assert.rejects(waiting, /no more/)
    const { id } = (await sandbox.commands()).at(-1)
    assert.equal((await sandbox.command(id).wait()).reason, 'killed')
  },

  async ports (sandbox) {
    const s = await createBerthSandbox({ sandbox, ports: [8000] }).createSession({ sessionId: 'any' })
    assert.deepEqual([s.id, s.defaultWorkingDirectory, s.ports], [sandbox.id, '/workspace', [8000]])
    const serve = await s.spawn({ command: 'echo hello >index.html; python3 -u -m http.server 8000' })
    await sandbox.ports.wait(8000)
    const { url, headers } = await s.getPortEndpoint({ port: 8000, protocol: 'http' })
    assert.equal(await (await fetch(url, { headers })).text(), 'hello\n')
    assert.equal((await fetch(url)).status, 401)
    assert.match((await s.getPortEndpoint({ port: 8000, protocol: 'ws' })).url, /^ws:/)
    assert.equal(await visit(await s.getPortUrl({ port: 8000 })), 'hello\n')

    const tool = s.restricted()
    for (const name of ['sandbox', 'stop', 'destroy', 'setNetworkPolicy', 'getPortEndpoint']) {
      assert.equal(tool[name], undefined, name)
    }
    assert.equal((await tool.run({ command: 'cat index.html' })).stdout, 'hello\n')
    await s.stop() // the caller's sandbox goes on
    await s.destroy()
    assert.equal((await sandbox.refresh()).info.state, 'running')
    await serve.kill()
  },

  async network (sandbox) {
    const s = await createBerthSandbox({ sandbox }).createSession()
    await s.setNetworkPolicy({ mode: 'custom', allowedHosts: ['api.example.com', '*.example.org'] })
    await sandbox.refresh()
    assert.deepEqual([sandbox.info.network.mode, sandbox.info.network.allow.length], ['allowlist', 2])
    assert.match(s.description, /api\.example\.com/)
    const refused = await s.run({ command: 'curl -sS https://elsewhere.example.net' })
    assert.match(refused.stderr, /berth: .*elsewhere\.example\.net/)
    await s.setNetworkPolicy({ mode: 'deny-all' })
    assert.equal((await sandbox.refresh()).info.network.mode, 'none')
    await assert.rejects(s.setNetworkPolicy({ mode: 'allow-all' }), { code: 'permission_denied' })
    assert.throws(() => networkOf({ mode: 'custom', allowedCIDRs: ['1.1.1.0/24'] }), e =>
      HarnessCapabilityUnsupportedError.isInstance(e) && /allowedHosts/.test(e.message))
  },

  async sessions () {
    const provider = createBerthSandbox({ labels: { for: 'sessions' }, timeoutSeconds: 60 })
    const sessionId = `a session: ${crypto.randomUUID()}`
    const made = await provider.createSession({ sessionId })
    await made.writeTextFile({ path: 'kept', content: 'yes' })
    await assert.rejects(provider.createSession({ sessionId }), { code: 'already_exists' })
    await made.stop()
    const resumed = await provider.resumeSession({ sessionId })
    assert.deepEqual([resumed.id, await resumed.readTextFile({ path: 'kept' })], [made.id, 'yes'])
    assert.equal(resumed.sandbox.info.labels.for, 'sessions')
    await resumed.destroy()
    await made.destroy()
    await made.stop()
    await assert.rejects(provider.resumeSession({ sessionId }), e => /^(not_found|expired)$/.test(e.code))

    const stranger = createBerthSandbox({ client: new Client({ key: 'wrong' }) })
    await assert.rejects(stranger.createSession(), e => HarnessSandboxAuthenticationError.isInstance(e) &&
      e.sandboxProviderId === 'berth' && /BERTH_API_KEY/.test(e.message) && e.cause.code === 'unauthenticated')

    const identity = crypto.randomUUID()
    const failing = async () => { throw new Error('no disk of mine') }
    await assert.rejects(provider.createSession({ identity, onFirstCreate: failing }), /no disk of mine/)
    assert.deepEqual(await Sandbox.list({ labels: { for: 'sessions' } }), [])
  },

  async harness () {
    const agent = new HarnessAgent({ harness: echo, sandbox: createBerthSandbox() })
    const before = (await new Client().snapshots.list()).length
    const [sessionId, other] = [crypto.randomUUID(), crypto.randomUUID()]
    const session = await agent.createSession({ sessionId })
    assert.equal((await agent.generate({ session, prompt: 'one' })).text, 'echo one made 1')
    const resumeFrom = await session.stop()
    const resumed = await agent.createSession({ sessionId, resumeFrom })
    assert.equal((await agent.generate({ session: resumed, prompt: 'two' })).text, 'echo two made 1')
    await resumed.destroy()
    const second = await agent.createSession({ sessionId: other }) // begins with the snapshot
    assert.equal((await agent.generate({ session: second, prompt: 'three' })).text, 'echo three made 1')
    await second.destroy()
    const snapshots = await new Client().snapshots.list()
    assert.equal(snapshots.length, before + 1)
    await new Client().snapshots.delete(snapshots[0].id)
  },

  async readme () {
    const count = 'seq 2 9999 | factor | awk "NF == 2" | wc -l'
    globalThis.AI_SDK_DEFAULT_PROVIDER = new MockProviderV4({ languageModels: {
      'anthropic/claude-sonnet-4.5': script(['shell', { command: count }]) } })
    const readme = await readFile(join(process.env.BERTH_ADAPTER, 'README.md'), 'utf8')
    const examples = [...readme.matchAll(/^```ts\n([^]*?)^```$/gm)].map(m => m[1])
    assert.ok(examples.length >= 2)
    for (const [i, example] of examples.entries()) {
      await writeFile(`readme${i}.mts`, example)
      run('node_modules/.bin/tsc', '--strict', '--skipLibCheck', '--target', 'ES2022', '--module', 'NodeNext',
        '--lib', 'ES2022,ESNext.Disposable,DOM,DOM.AsyncIterable', '--types', 'node', `readme${i}.mts`)
      const said = []
      const { log } = console
      console.log = text => said.push(text)
      try {
        await import(pathToFileURL(`readme${i}.mjs`))
      } finally {
        console.log = log
      }
      const wants = [...example.matchAll(/\/\/ → (.*)/g)].map(m => m[1])
      assert.ok(wants.length > 0)
      for (const want of wants) assert.ok(said.join('\n').includes(want), `${want}: ${said}`)
    }
  }
}

// run runs a program to its end, and returns what it prints.
function run (...argv) {
  const { status, stdout, stderr } = spawnSync(argv[0], argv.slice(1), { encoding: 'utf8' })
  assert.equal(status, 0, `${argv.join(' ')}: ${stdout}${stderr}`)
  return stdout
}

// visit opens a signed URL as a browser does: names below localhost are this machine, and cookies are kept.
async function visit (url, cookie = '') {
  const { hostname, host, port, pathname, search } = new URL(url)
  assert.match(hostname, /\.localhost$/)
  const res = await new Promise((resolve, reject) => http.get({ host: '127.0.0.1', port, path: pathname + search,
    headers: { Host: host, Cookie: cookie } }, resolve).on('error', reject))
  const body = await text(Readable.toWeb(res))
  if (!res.headers.location) return body
  return visit(new URL(res.headers.location, url).href, res.headers['set-cookie'][0].split(';')[0])
}

// What runs in the container, in place of a coding agent.
const bridge = `
import { readFileSync } from 'node:fs'
import { WebSocketServer } from 'ws'
const server = new WebSocketServer({ port: Number(process.argv[2]) }, () => console.log('ready'))
server.on('connection', (socket, request) => socket.on('message', data => {
  if (new URL(request.url, 'http://a').searchParams.get('token') !== process.env.TOKEN) return socket.terminate()
  const made = readFileSync('/workspace/.echo/made', 'utf8').trim().split('\\n').length
  socket.send(\`echo \${data} made \${made}\`)
}))`
const library = ['package.json', 'index.js', ...(await readdir('node_modules/ws/lib')).map(name => `lib/${name}`),
  'wrapper.mjs']

// A harness of the framework, whose agent says what it is told. It is reached by a websocket through a port.
const echo = {
  specificationVersion: 'harness-v1',
  harnessId: 'echo',
  builtinTools: {},
  getBootstrap: async () => ({
    harnessId: 'echo',
    bootstrapDir: '.echo',
    files: [{ path: '.echo/bridge.mjs', content: bridge }, ...await Promise.all(library.map(async name => ({
      path: `.echo/node_modules/ws/${name}`, content: await readFile(`node_modules/ws/${name}`, 'utf8') })))],
    commands: [{ command: 'echo once >>made' }]
  }),
  async doStart ({ sandboxSession, sessionId, sessionWorkDir, resumeFrom }) {
    const [port] = sandboxSession.ports
    const command = `node /workspace/.echo/bridge.mjs ${port}`
    const process = await sandboxSession.spawn({ command, workingDirectory: sessionWorkDir, env: { TOKEN: 'x' } })
    const { value } = await process.stdout.getReader().read()
    assert.equal(new TextDecoder().decode(value), 'ready\n')
    const { url, headers } = await sandboxSession.getPortEndpoint({ port, protocol: 'ws' })
    const socket = new WebSocket(`${url}?token=x`, { headers })
    await once(socket, 'open')
    const end = async () => {
      socket.terminate()
      await process.kill()
    }
    return {
      sessionId,
      isResume: resumeFrom !== undefined,
      async doPromptTurn ({ prompt, emit }) {
        socket.send(prompt)
        const done = once(socket, 'message').then(([data]) => {
          const finishReason = { unified: 'stop', raw: undefined }
          for (const part of [{ type: 'text-start', id: '1' }, { type: 'text-delta', id: '1', delta: String(data) },
            { type: 'text-end', id: '1' }, { type: 'finish-step', finishReason, usage },
            { type: 'finish', finishReason, totalUsage: usage }]) emit(part)
        })
        return { done }
      },
      async doStop () {
        await end()
        return { type: 'resume-session', harnessId: 'echo', specificationVersion: 'harness-v1', data: {} }
      },
      doDestroy: end
    }
  }
}

for (const [name, run] of Object.entries(cases)) {
  if (process.argv.length > 2 && !process.argv.includes(name)) continue
  const began = Date.now()
  const sandbox = await Sandbox.create({ env: { BASE: '1' } })
  try {
    await run(sandbox)
  } finally {
    await sandbox.delete()
  }
  console.log(name, Date.now() - began, 'ms')
}
console.log('done')
