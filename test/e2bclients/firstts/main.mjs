// The first JavaScript SDKs of E2B that are served: they take a domain alone.
import assert from 'node:assert/strict'
import { Sandbox } from '@e2b/code-interpreter'

const s = await Sandbox.create('base', { timeoutMs: 300_000, metadata: { test: 'first' } })
assert.equal((await s.commands.run('echo hi')).stdout, 'hi\n')
await s.files.write('a.txt', 'text')
const same = await Sandbox.connect(s.sandboxId)
assert.equal(await same.files.read('a.txt'), 'text')
const cell = await same.runCode("print('out')\n40 + 2")
assert.deepEqual([cell.text, cell.logs.stdout], ['42', ['out\n']])
await s.commands.run('exec python3 -m http.server 8000', { background: true })
await s.commands.run('until (: </dev/tcp/127.0.0.1/8000) 2>/dev/null; do sleep 0.05; done')
assert.equal(await (await fetch(`https://${s.getHost(8000)}/a.txt`)).text(), 'text')
assert.equal(await (await fetch(await s.downloadUrl('a.txt'))).text(), 'text')
await s.kill()
assert(!(await s.isRunning()))
console.log('done')
