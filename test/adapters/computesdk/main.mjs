// Has ComputeSDK work in containers: by its own manager of several providers, and by the provider alone.
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { readFile, writeFile } from 'node:fs/promises'
import http from 'node:http'
import { join } from 'node:path'
import { berth } from '@berth/computesdk'
import { Client, Sandbox } from '@berth/sdk'
import { compute } from 'computesdk'

const client = new Client()
const labels = { test: crypto.randomUUID() }
const provider = berth({ client, create: { labels } })
const mine = async () => (await Sandbox.list({ client, labels })).map(s => s.id)

const cases = {
  async manager () { // ComputeSDK's own: it chooses the provider
    compute.setConfig({ providers: [provider] })
    const sandbox = await compute.sandbox.create({ envs: { WHO: 'you' } })
    assert.equal(sandbox.provider, 'berth')
    const other = await compute.sandbox.create({ provider: 'berth' })
    const listed = (await compute.sandbox.list()).map(s => s.sandboxId)
    for (const s of [sandbox, other]) assert.ok(listed.includes(s.sandboxId))
    const again = await compute.sandbox.getById(sandbox.sandboxId)
    assert.equal((await again.runCommand('echo hello $WHO')).stdout, 'hello you\n')
    const snapshot = await compute.snapshot.create(sandbox.sandboxId, { name: `s-${labels.test}`, provider: 'berth' })
    assert.ok((await compute.snapshot.list()).some(s => s.id === snapshot.id))
    await compute.snapshot.delete(snapshot.id)
    assert.ok(!(await compute.snapshot.list()).some(s => s.id === snapshot.id))
    await compute.sandbox.destroy(other.sandboxId)
    await sandbox.destroy()
    await sandbox.destroy() // what is gone stays gone
    assert.deepEqual(await mine(), [])
    assert.equal(await provider.sandbox.getById(sandbox.sandboxId), null)
    assert.equal(await provider.sandbox.getById('container_0000000000000000000000'), null)
  },

  async creation () { // what create asks for is what the container is
    const name = `c-${labels.test}`
    const sandbox = await provider.sandbox.create({ name, timeout: 90_000, cpus: 0.5, memoryMiB: 256,
      templateId: 'base', metadata: { user: 'u1', tags: ['a'] }, namespace: 'n', ports: [3000] })
    const { info } = sandbox.getInstance()
    assert.deepEqual([info.name, info.image, info.lease.mode, info.lease.atEnd], [name, 'base', 'absolute', 'remove'])
    assert.deepEqual([info.limits.cpus, info.limits.memoryBytes], [0.5, 256 << 20])
    assert.deepEqual(info.labels, { ...labels, user: 'u1', tags: '["a"]', namespace: 'n' })
    const said = await sandbox.getInfo()
    assert.deepEqual([said.id, said.provider, said.status, said.metadata.name], [info.id, 'berth', 'running', name])
    assert.ok(Math.abs(said.timeout - 90_000) < 2000 && said.createdAt instanceof Date, said.timeout)
    await sandbox.getInstance().stop()
    assert.equal((await sandbox.getInfo()).status, 'stopped')
    await sandbox.destroy()
    await assert.rejects(provider.sandbox.create({ image: 'no-such-image' }), { code: 'not_found' })
    await assert.rejects(provider.sandbox.create({ image: 'base', snapshotId: 's' }), /with a snapshot; leave out/)
    await assert.rejects(provider.sandbox.create({ signal: AbortSignal.abort() }), { name: 'AbortError' })
    const stranger = berth({ client: new Client({ key: 'wrong' }) })
    await assert.rejects(stranger.sandbox.list(), { code: 'unauthenticated' })
    assert.deepEqual(await mine(), [])
  },

  async commands () {
    const sandbox = await provider.sandbox.create()
    const { durationMs, ...plain } = await sandbox.runCommand('echo "$A b"; pwd; echo bad >&2; exit 3', { cwd: '/tmp',
      env: { A: 'it\'s "a"' } })
    assert.deepEqual(plain, { stdout: 'it\'s "a" b\n/tmp\n', stderr: 'bad\n', exitCode: 3 })
    assert.ok(durationMs > 0)
    assert.equal((await sandbox.runCommand('pwd')).stdout, '/workspace\n')
    const late = await sandbox.runCommand('sleep 1000', { timeout: 500 })
    assert.equal(late.exitCode, 124)
    assert.match(late.stderr, /^berth: it ran longer than/)
    const much = await sandbox.runCommand('yes | head -c 5000000')
    assert.equal(much.stdout.length, 5_000_000)

    let size = 0 // of output that is more than a result keeps
    await sandbox.runCommand('yes | head -c 18000000', { onStdout: text => { size += text.length } })
    assert.equal(size, 18_000_000)

    const [out, err] = [[], []]
    const wait = 'until test -e go; do sleep 0.02; done'
    const streamed = await sandbox.runCommand(`echo first; ${wait}; echo err >&2; exit 3`, {
      onStdout: text => {
        out.push(text)
        sandbox.filesystem.writeFile('go', '') // the command ends only if this is called while it runs
      },
      onStderr: text => err.push(text),
      timeout: 60_000
    })
    assert.deepEqual([streamed.exitCode, out.join(''), err.join('')], [3, 'first\n', 'err\n'])
    assert.deepEqual([streamed.stdout, streamed.stderr], ['first\n', 'err\n'])

    const started = await sandbox.runCommand(`rm go; ${wait}; touch seen`, { background: true })
    assert.equal(started.exitCode, 0)
    await sandbox.runCommand('until ! test -e go; do sleep 0.02; done; touch go; until test -e seen; do sleep 0.02; done')
    await sandbox.destroy()
    await assert.rejects(sandbox.runCommand('true'), e => /^(expired|not_found)$/.test(e.code))
  },

  async files () {
    const sandbox = await provider.sandbox.create()
    const fs = sandbox.filesystem
    await fs.writeFile('deep/down/a.txt', 'ä\n')
    assert.equal(await fs.readFile('/workspace/deep/down/a.txt'), 'ä\n')
    await fs.mkdir('deep/dir/in/it')
    await sandbox.runCommand('ln -s dir deep/link; ln -s nowhere deep/lost')
    const entries = (await fs.readdir('deep')).map(({ name, type }) => `${name} ${type}`)
    assert.deepEqual(entries.sort(), ['dir directory', 'down directory', 'link directory', 'lost file'])
    const [a] = await fs.readdir('deep/down')
    assert.ok(a.name === 'a.txt' && a.size === 3 && Math.abs(Date.now() - a.modified) < 60_000, JSON.stringify(a))
    assert.deepEqual([await fs.exists('deep/dir'), await fs.exists('none')], [true, false])
    await fs.remove('deep')
    assert.equal(await fs.exists('deep'), false)
    await assert.rejects(fs.readFile('none'), { code: 'not_found' })
    await assert.rejects(fs.readdir('none'), { code: 'not_found' })
    await sandbox.destroy()
  },

  async snapshots () {
    const sandbox = await provider.sandbox.create()
    await sandbox.filesystem.writeFile('kept', 'yes')
    const made = await provider.snapshot.create(sandbox.sandboxId, { metadata: { step: 1 } })
    await sandbox.destroy()
    assert.ok(made.createdAt instanceof Date)
    assert.deepEqual(made.metadata, { step: '1', sandboxId: sandbox.sandboxId })
    assert.deepEqual((await provider.snapshot.list({ sandboxId: sandbox.sandboxId })).map(s => s.id), [made.id])
    assert.deepEqual(await provider.snapshot.list({ limit: 0 }), [])
    const copy = await provider.sandbox.create({ snapshotId: made.id })
    assert.equal(await copy.filesystem.readFile('kept'), 'yes')
    await copy.destroy()
    await provider.snapshot.delete(made.id)
    await provider.snapshot.delete(made.id)
    await assert.rejects(provider.sandbox.create({ snapshotId: made.id }), { code: 'not_found' })
  },

  async urls () {
    const sandbox = await provider.sandbox.create()
    await sandbox.filesystem.writeFile('page', 'hello\n')
    await sandbox.runCommand('python3 -m http.server 3000', { background: true })
    await sandbox.getInstance().ports.wait(3000)
    const signed = await sandbox.getUrl({ port: 3000 })
    assert.match(signed, /^http:\/\/3000-.*berth_token=/)
    assert.match(await sandbox.getUrl({ port: 3000, protocol: 'wss' }), /^ws:/)
    assert.equal((await get(signed)).statusCode, 303)
    assert.equal((await get(new URL('/page', signed).href)).statusCode, 401)

    const open = await berth({ client, urls: 'public' }).sandbox.getById(sandbox.sandboxId)
    const url = await open.getUrl({ port: 3000, protocol: 'https' })
    const answer = await get(new URL('/page', url).href)
    assert.deepEqual([answer.statusCode, answer.text], [200, 'hello\n'])
    await sandbox.destroy()
  },

  async readme () {
    const readme = await readFile(join(process.env.BERTH_ADAPTER, 'README.md'), 'utf8')
    const examples = [...readme.matchAll(/^```ts\n([^]*?)^```$/gm)].map(m => m[1])
    assert.ok(examples.length >= 1)
    for (const [i, example] of examples.entries()) {
      await writeFile(`readme${i}.mts`, example)
      run('node_modules/.bin/tsc', '--strict', '--skipLibCheck', '--target', 'ES2022', '--module', 'NodeNext',
        '--lib', 'ES2022,ESNext.Disposable,DOM,DOM.AsyncIterable', '--types', '', `readme${i}.mts`)
      const out = run('node', `readme${i}.mjs`)
      const wants = [...example.matchAll(/\/\/ → (.*)/g)].map(m => m[1])
      assert.ok(wants.length > 0)
      for (const want of wants) assert.ok(out.includes(want), `${want}: ${out}`)
    }
  }
}

// run runs a program to its end, and returns what it prints.
function run (...argv) {
  const { status, stdout, stderr } = spawnSync(argv[0], argv.slice(1), { encoding: 'utf8' })
  assert.equal(status, 0, `${argv.join(' ')}: ${stdout}${stderr}`)
  return stdout
}

// get sends a request as a browser does, for which names below localhost are this machine.
async function get (url) {
  const { hostname, host, port, pathname, search } = new URL(url)
  assert.match(hostname, /\.localhost$/)
  const res = await new Promise((resolve, reject) => http.get({ host: '127.0.0.1', port, path: pathname + search,
    headers: { Host: host } }, resolve).on('error', reject))
  res.text = Buffer.concat(await res.toArray()).toString()
  return res
}

for (const [name, run] of Object.entries(cases)) {
  if (process.argv.length > 2 && !process.argv.includes(name)) continue
  const began = Date.now()
  await run()
  console.log(name, Date.now() - began, 'ms')
}
console.log('done')
