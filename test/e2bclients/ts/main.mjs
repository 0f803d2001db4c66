// The newest JavaScript SDKs of E2B, unmodified.
import assert from 'node:assert/strict'
import http from 'node:http'
import https from 'node:https'
import { CommandExitError, FileNotFoundError, NotFoundError, TimeoutError } from 'e2b'
import { Sandbox } from '@e2b/code-interpreter'

const until = async (what, check) => {
  for (const end = Date.now() + 60_000; !(await check()); ) {
    assert(Date.now() < end, 'not within a minute: ' + what)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

const s = await Sandbox.create('base', { timeoutMs: 300_000, metadata: { test: 't s' }, envs: { GIVEN: 'given' } })

// commands
let out = ''
const run = await s.commands.run('echo out; echo err >&2; echo $GIVEN', { onStdout: (data) => { out += data } })
assert.deepEqual([run.stdout, run.stderr, run.exitCode, out], ['out\ngiven\n', 'err\n', 0, 'out\ngiven\n'])
await assert.rejects(s.commands.run('exit 3'), (error) => error instanceof CommandExitError && error.exitCode === 3)
await assert.rejects(s.commands.run('sleep 1000', { timeoutMs: 1000 }), TimeoutError)
const cat = await s.commands.run('cat', { background: true, stdin: true })
await cat.disconnect()
const again = await s.commands.connect(cat.pid)
await s.commands.sendStdin(cat.pid, 'fed\n')
await s.commands.closeStdin(cat.pid)
assert.equal((await again.wait()).stdout, 'fed\n')

// a terminal
let screen = ''
const pty = await s.pty.create({ cols: 80, rows: 24, onData: (data) => { screen += Buffer.from(data) } })
await s.pty.resize(pty.pid, { cols: 91, rows: 31 })
await s.pty.sendInput(pty.pid, new TextEncoder().encode('stty size; exit\n'))
await pty.wait()
assert.match(screen, /31 91/)

// files
const seen = new Set()
const watch = await s.files.watchDir('.', (e) => { seen.add(e.type + ' ' + e.name) }, { recursive: true })
await s.files.write('a/b.txt', 'hello')
assert.equal(await s.files.read('a/b.txt'), 'hello')
assert.equal((await s.files.getInfo('a/b.txt')).size, 5)
assert.equal((await s.files.rename('a/b.txt', 'a/c.txt')).path, '/home/user/a/c.txt')
assert((await s.files.list('/home/user', { depth: 2 })).some((e) => e.path === '/home/user/a/c.txt'))
await assert.rejects(s.files.read('none'), FileNotFoundError)
await until('the watch tells of all', () =>
  ['create a', 'write a/b.txt', 'rename a/b.txt', 'create a/c.txt'].every((e) => seen.has(e)))
await watch.stop()
assert.equal(await (await fetch(await s.downloadUrl('a/c.txt'))).text(), 'hello')

// code
const cell = await s.runCode("print('hello')\n1 + 1")
assert.deepEqual([cell.text, cell.logs.stdout], ['2', ['hello\n']])
const plot = await s.runCode('import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()')
assert(plot.results[0].png && plot.results[0].chart.type === 'line')
assert.equal((await s.runCode('1 / 0')).error.name, 'ZeroDivisionError')
const context = await s.createCodeContext({ cwd: '/tmp' })
assert.equal((await s.runCode('import os; os.getcwd()', { context })).text, '/tmp')
await s.removeCodeContext(context)

// a port
await s.files.write('/tmp/site/x', 'served')
const server = await s.commands.run('cd /tmp/site && exec python3 -m http.server 8000', { background: true })
await s.commands.run('until (: </dev/tcp/127.0.0.1/8000) 2>/dev/null; do sleep 0.05; done')
const visit = (sandbox, port, headers) => new Promise((resolve, reject) => {
  if (process.env.E2B_DOMAIN) {
    https.get(`https://${sandbox.getHost(port)}/x`, { headers },
      (answer) => { answer.resume(); resolve(answer.statusCode) }).on('error', reject)
    return
  }
  const at = new URL(process.env.E2B_API_URL)
  http.get({ host: at.hostname, port: at.port, path: '/x', headers: { host: sandbox.getHost(port), ...headers } },
    (answer) => { answer.resume(); resolve(answer.statusCode) }).on('error', reject)
})
assert.equal(await visit(s, 8000), 200)
assert.equal(await visit(s, 8001), 502)
const closed = await Sandbox.create('base', { network: { allowPublicTraffic: false } })
assert.equal(await visit(closed, 8000), 403)
assert.equal(await visit(closed, 8000, { 'e2b-traffic-access-token': closed.trafficAccessToken }), 502)
assert(await closed.kill())
assert(await server.kill())

// its life
assert.equal((await Sandbox.list({ query: { metadata: { test: 't s' } } }).nextItems()).length, 1)
await s.setTimeout(60_000)
assert(await s.pause())
assert.equal((await s.getInfo()).state, 'paused')
assert(!(await s.isRunning()))
await s.connect({ timeoutMs: 300_000 })
assert.equal(await s.files.read('a/c.txt'), 'hello')
const broken = assert.rejects(s.commands.run('sleep 1000'), TimeoutError)
await until('it runs', async () => (await s.commands.list()).length > 0)
assert(await s.kill())
await broken
assert(!(await s.isRunning()))
assert(!(await s.kill()))
await assert.rejects(s.getInfo(), NotFoundError)
console.log('done')
