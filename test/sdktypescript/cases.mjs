// What the SDK promises, as cases that run in Node and in a browser. Each gets the SDK, a client, and what it needs of
// its surroundings: restart() kills the daemon and starts it again where it was.

export function check (ok, what) {
  if (!ok) throw new Error(what)
}

export function same (got, want) {
  const [a, b] = [JSON.stringify(got), JSON.stringify(want)]
  check(a === b, `got ${a}, want ${b}`)
}

async function fails (promise, type, also = () => true) {
  const e = await Promise.resolve(promise).then(v => { throw new Error(`no ${type.name}: ${JSON.stringify(v)}`) }, e => e)
  check(e instanceof type && also(e), `want a ${type.name}, got ${e?.name} ${e?.code} ${e?.status}: ${e?.message}`)
  return e
}

const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))
const numbers = n => [...Array(n).keys()].map(i => `${i}\n`).join('')
// A loop that says where it is, in steps that a restart of the daemon falls into. Its file tells how often it ran.
const counting = 'echo run >>/workspace/runs; for i in $(seq 0 39); do echo $i; sleep 0.05; done'

export const cases = {
  async six ({ sdk: { Sandbox }, client }) {
    const sandbox = await Sandbox.create({ client })
    await sandbox.files.put('data.csv', 'city,degrees\nOslo,4\nLima,19\n')
    let live = ''
    const { stdout, ok } = await sandbox.run('wc -l <data.csv', { onStdout: text => { live += text } })
    same([stdout, live, ok], ['3\n', '3\n', true])
    const { png, chart } = await sandbox.code.run('import pandas as pd, matplotlib.pyplot as plt\n' +
      'pd.read_csv("data.csv").plot(x="city", y="degrees", kind="bar"); plt.show()')
    same([...png.slice(1, 4)], [...new TextEncoder().encode('PNG')])
    same(chart.type, 'bar')
    same((await sandbox.delete()).deleted, true)
  },

  async commands ({ sdk: { CommandFailedError }, sandbox }) {
    const failed = await sandbox.run('echo out; echo err >&2; exit 3', { env: { A: 'b_C' } })
    same([failed.returnCode, failed.reason, failed.stdout, failed.stderr, failed.ok], [3, 'exit', 'out\n', 'err\n', false])
    await fails((async () => failed.check())(), CommandFailedError, e => e.result === failed && /code 3: err/.test(e.message))
    await fails(sandbox.run('exit 3', { check: true }), CommandFailedError, e => e.result.returnCode === 3)
    same([(await sandbox.run('pwd')).stdout, (await sandbox.run('pwd', { cwd: '/tmp' })).stdout], ['/workspace\n', '/tmp\n'])
    same((await sandbox.run(['printf', '%s|', 'a b', '$HOME'])).stdout, 'a b|$HOME|')
    same((await sandbox.run('cat; echo $UPPER_a', { stdin: 'in\n', env: { UPPER_a: 'x' } })).stdout, 'in\nx\n')
    const late = await sandbox.run('echo begun; sleep 60', { timeoutSeconds: 0.3 })
    same([late.reason, late.errorCode, late.stdout, late.ok], ['timeout', 'execution_time_exceeded', 'begun\n', false])
    const stored = await sandbox.run('echo chart >$OUTPUT_DIR/a.txt')
    check(/^file_/.test(stored.files[0].fileId), JSON.stringify(stored.files))

    const command = await sandbox.run('read a; echo got $a; cat >/dev/null; sleep 60', { background: true, openStdin: true })
    await command.stdin('one\n')
    await command.closeStdin()
    for await (const { text } of command) {
      same(text, 'got one\n')
      break
    }
    same(await command.output(), { stdout: 'got one\n', stderr: '' })
    same((await command.info()).state, 'running')
    await command.kill()
    const killed = await command.wait()
    same([killed.returnCode, killed.stdout], [137, 'got one\n'])
    same((await sandbox.command(command.id).wait()).returnCode, 137)
    check((await sandbox.commands()).some(c => c.id === command.id), 'the command is not listed')
  },

  async streams ({ sandbox }) { // every byte arrives once, in order; text is not torn
    const command = await sandbox.run('seq 0 299999; printf "\\xff\\x00é"; echo err >&2', { background: true,
      onOutputLimit: 'wait' })
    const out = []
    let [size, err] = [0, '']
    for await (const chunk of command) {
      same(chunk.lost, 0)
      if (chunk.stream === 'stderr') err += chunk.text
      else {
        same(chunk.offset, size)
        size += chunk.data.length
        out.push(chunk.data)
      }
    }
    const all = new Uint8Array(await new Blob(out).arrayBuffer())
    const text = new TextDecoder('latin1').decode(all)
    check(text === numbers(300000) + '\xff\x00Ã©', `${all.length} bytes, which end in ${JSON.stringify(text.slice(-20))}`)
    same(err, 'err\n')
  },

  async webStreams ({ sandbox }) { // the same for code that takes web streams
    const command = await sandbox.run('seq 0 99999; echo err >&2; printf end', { background: true })
    const read = name => new Response(command.stream(name)).text()
    same(await Promise.all([read('stdout'), read('stderr')]), [numbers(100000) + 'end', 'err\n'])
    const endless = await sandbox.run('while echo y; do sleep 0.05; done', { background: true })
    const reader = endless.stream('stdout').getReader()
    same(new TextDecoder().decode((await reader.read()).value).slice(0, 2), 'y\n')
    await reader.cancel()
    same((await endless.info()).state, 'running')
    await endless.kill()
    const short = await sandbox.run('seq 0 99999', { background: true, maxOutputBytes: 4096 })
    await short.wait()
    const e = await new Response(short.stream('stdout')).text().then(text => text, e => e)
    check(/^\d+ bytes of stdout are lost/.test(e.message), e)
  },

  async killedStream ({ sandbox, restart }) { // the daemon dies in the middle of a stream
    let [text, restarted] = ['', undefined]
    const result = await sandbox.run(counting, {
      onStdout: t => {
        text += t
        if (text.includes('9\n')) restarted ??= restart()
      }
    })
    await restarted
    same([text, result.stdout, result.reason], [numbers(40), numbers(40), 'exit'])
    same(await sandbox.files.read('/workspace/runs'), 'run\n')
  },

  async killedPosts ({ sdk: { Sandbox }, client, sandbox, restart }) { // the daemon dies in the middle of POSTs
    const restarted = sleep(30).then(restart)
    const runs = [...Array(12).keys()].map(async i => {
      await sleep(15 * i)
      const command = `echo ${i} >>/workspace/posts; sleep 0.1; echo ${i}`
      if (i % 2 === 0) return sandbox.run(command)
      return (await sandbox.run(command, { background: true })).wait()
    })
    const created = [...Array(6).keys()].map(async i => {
      await sleep(20 * i)
      return Sandbox.create({ client, labels: { posts: sandbox.id } })
    })
    const results = await Promise.all(runs)
    const ids = (await Promise.all(created)).map(s => s.id).sort()
    await restarted
    // A command whose start was on disk when the daemon died, and that had not begun, is lost: a retry never runs it.
    const lost = results.filter(r => r.reason === 'lost').length
    check(lost <= 3, `${lost} commands are lost`)
    const lines = (await sandbox.files.read('/workspace/posts')).split('\n').filter(Boolean).map(Number)
    results.forEach((r, i) => {
      const ran = lines.filter(n => n === i).length
      check(ran === 1 && r.stdout === `${i}\n` || ran === 0 && r.reason === 'lost', `${i}: ${ran} times, ${r.reason}`)
    })
    const found = await Sandbox.list({ client, labels: { posts: sandbox.id } })
    same(found.map(s => s.id).sort(), ids)
    same(new Set(ids).size, 6)
    await Promise.all(found.map(s => s.delete()))
  },

  async files ({ sdk: { NotFoundError, PermissionDeniedError }, sandbox: { files } }) {
    const bytes = new Uint8Array(100_000).map((_, i) => i)
    const stored = await files.put('/workspace/dir/b.bin', bytes, { mode: '0600' })
    same([stored.sizeBytes, stored.mode], [100000, '0600'])
    check((await files.get('/workspace/dir/b.bin')).every((b, i) => b === (i & 255)), 'other bytes')
    await files.put('/workspace/dir/blob', new Blob(['bl', 'ob']))
    await files.write('/workspace/dir/ü.txt', 'grün\n')
    await files.append('/workspace/dir/ü.txt', 'rot\n')
    same(await files.read('/workspace/dir/ü.txt'), 'grün\nrot\n')
    same((await files.list('/workspace/dir')).map(f => f.path.split('/').pop()), ['b.bin', 'blob', 'ü.txt'])
    same((await files.find('/workspace', { name: ['*.txt'], type: 'file' })).map(f => f.path), ['/workspace/dir/ü.txt'])
    same((await files.grep('/workspace/dir', 'r.t', { name: ['*.txt'] })).data[0].line, 2)
    await files.move('/workspace/dir/blob', '/workspace/dir/moved')
    same([await files.exists('/workspace/dir/blob'), (await files.stat('/workspace/dir/moved')).type], [false, 'file'])
    await files.mkdir('/workspace/dir/more')
    await files.untar('/workspace/copy', await new Response(await files.tar('/workspace/dir')).blob())
    same(await new Response(await files.stream('/workspace/copy/moved')).text(), 'blob')
    await files.remove('/workspace/dir', { recursive: true })
    await fails(files.read('/workspace/dir/ü.txt'), NotFoundError, e => e.item === '/workspace/dir/ü.txt')
    await fails(files.write('/etc/hosts', 'x'), PermissionDeniedError)
    await files.write('/etc/motd', 'by root', { as: 'root' })
  },

  async watch ({ sandbox, restart }) {
    await sandbox.files.mkdir('/workspace/watched')
    const stop = new AbortController()
    const watch = await sandbox.files.watch('/workspace/watched', { recursive: true, signal: stop.signal })
    await sandbox.files.write('/workspace/watched/a', '1')
    let first
    for (;;) {
      const { value } = await watch.next()
      if (value.name === 'a' && (first ??= value.type)) break
    }
    check(first === 'create', `the first event is ${first}`)
    await restart()
    for (;;) { // the watch holds again, and says that it cannot know what it missed
      const { value } = await watch.next()
      if (value.type === 'overflow') break
    }
    await sandbox.files.write('/workspace/watched/b', '2')
    for (;;) if ((await watch.next()).value.name === 'b') break
    await sandbox.run('rm -r /workspace/watched')
    let last
    for await (const event of watch) last = event
    same(last.type, 'remove')
  },

  async code ({ sdk: { CodeFailedError, ConflictError }, sandbox }) {
    const plain = await sandbox.code.run('print("hi"); 6*7')
    same([plain.text, plain.stdout, plain.ok, plain.results.length], ['42', 'hi\n', true, 1])
    same((await sandbox.code.run('1n + 2n', { language: 'js' })).text, '3n')
    const broken = await sandbox.code.run('1/0')
    same([broken.error.name, broken.ok], ['ZeroDivisionError', false])
    await fails((async () => broken.check())(), CodeFailedError, e => /division/.test(e.message))

    const context = await sandbox.code.context()
    await context.run('import pandas as pd\nx = 20')
    let [live, shown] = ['', []]
    const cell = await context.run('print("lïne")\nimport matplotlib.pyplot as plt\nplt.plot([1, 4]); plt.title("T"); plt.show()\n' +
      'pd.DataFrame({"a_b": [x + 1]})', { onStdout: t => { live += t }, onResult: r => shown.push(r) })
    same([live, cell.stdout, cell.executionCount], ['lïne\n', 'lïne\n', 2])
    same([cell.table.rows, cell.table.columns[0].name, cell.chart.title], [[[21]], 'a_b', 'T'])
    check(cell.html.includes('<table'), cell.html)
    check(shown.some(r => r.png?.length > 1000) && shown.some(r => r.main), 'the figure was not shown live')
    same((await context.run('x')).text, '20')
    await fails(sandbox.code.run('1', { language: 'js', context }), ConflictError)
    const abort = AbortSignal.timeout(300)
    await fails(context.run('import time\nwhile True: time.sleep(0.01)', { signal: abort }), DOMException)
    same((await context.run('x + 1')).text, '21') // interrupted, and the variables are there
    same((await sandbox.code.contexts()).map(c => c.name), [context.name])
    await context.restart()
    same((await context.run('x')).error.name, 'NameError')
    await context.delete()
    same(await sandbox.code.contexts(), [])
  },

  async ports ({ sandbox, foreign }) {
    const server = await sandbox.run('cd /workspace; echo served >page; exec python3 -m http.server 8000', { background: true })
    await sandbox.ports.wait(8000, { signal: AbortSignal.timeout(20_000) })
    const [port] = await sandbox.ports.list()
    same([port.port, port.public ?? false], [8000, false])
    // Programs in containers do not say that pages of other origins may read their answers.
    if (!foreign) same(await (await sandbox.ports.fetch(8000, '/page')).text(), 'served\n')
    if (!foreign) {
      const endpoint = await sandbox.ports.endpoint(8000)
      same(await (await fetch(`${endpoint.url}page`, endpoint)).text(), 'served\n')
      const url = await sandbox.ports.url(8000, { expiresInSeconds: 60 })
      check(/^http:\/\/8000-.*berth_token=/.test(url), url)
    }
    same((await sandbox.ports.publish(8000)).ports, [8000])
    same((await sandbox.ports.withdraw('all')).ports, [])
    await server.kill()
  },

  async snapshots ({ sdk: { Sandbox, NotFoundError }, client, sandbox }) {
    await sandbox.files.write('/workspace/state', 'before')
    const snapshot = await sandbox.snapshot({ labels: { my_label: 'v' } })
    same(snapshot.labels, { my_label: 'v' })
    await sandbox.files.write('/workspace/state', 'after')
    const forks = await sandbox.fork(2)
    same(await Promise.all(forks.map(f => f.files.read('/workspace/state'))), ['after', 'after'])
    await sandbox.restore(snapshot)
    same(await sandbox.files.read('/workspace/state'), 'before')
    const copy = await Sandbox.create({ client, snapshot: snapshot.id })
    same(await copy.files.read('/workspace/state'), 'before')
    same((await sandbox.snapshots()).map(s => s.id), [snapshot.id])
    same((await client.snapshots.get(snapshot.id)).containerId, sandbox.id)
    await Promise.all([copy, ...forks].map(s => s.delete()))
    await client.snapshots.delete(snapshot.id)
    await fails(client.snapshots.get(snapshot.id), NotFoundError)
  },

  async life ({ sdk: { Sandbox, NotFoundError }, client }) {
    const name = 'life-' + Date.now()
    const sandbox = await Sandbox.create({ client, name, labels: { job_ID: 'Ä' }, idleTimeoutSeconds: 600,
      lease: { atEnd: 'pause' }, limits: { memoryBytes: 256 << 20 } })
    same([sandbox.name, sandbox.info.labels, sandbox.info.lease.atEnd, sandbox.info.limits.memoryBytes],
      [name, { job_ID: 'Ä' }, 'pause', 256 << 20])
    const again = await Sandbox.create({ client, name, existing: true })
    same([again.id, again.info.existing], [sandbox.id, true])
    same((await Sandbox.get(name, { client })).id, sandbox.id)
    same((await Sandbox.list({ client, labels: { job_ID: 'Ä' } })).map(s => s.id), [sandbox.id])
    const before = sandbox.expiresAt
    await sandbox.renew(3000)
    check(sandbox.expiresAt - before > 2000_000, `${before} ${sandbox.expiresAt}`)
    same((await sandbox.pause()).info.state, 'paused')
    same((await sandbox.resume()).info.state, 'running')
    same((await sandbox.stop()).info.state, 'stopped')
    same((await sandbox.start()).info.generation, 2)
    same((await sandbox.update({ labels: {}, idleTimeoutSeconds: 60 })).info.idleTimeoutSeconds, 60)
    check((await sandbox.stats()).current.memory.usedBytes !== 0, 'no numbers')
    await sandbox[Symbol.asyncDispose]()
    await sandbox[Symbol.asyncDispose]() // which has no error for one that is gone
    await fails(Sandbox.get(sandbox.id, { client }), NotFoundError, e => e.item === sandbox.id && e.requestId !== '')
  },

  async pty ({ sdk: { NotFoundError }, sandbox, restart }) {
    let screen = ''
    let changed = () => {}
    const shows = async text => {
      while (!screen.includes(text)) await new Promise(resolve => { changed = resolve })
      screen = ''
    }
    const onData = data => {
      screen += new TextDecoder().decode(data)
      changed()
    }
    const pty = await sandbox.pty({ command: 'stty -echo; exec cat -u', rows: 30, cols: 100, onData })
    await pty.kill('SIGKILL')
    same((await pty.wait()).returnCode, 137)
    const shell = await sandbox.pty({ argv: ['bash', '--norc'], rows: 30, cols: 100, env: { PS1: '' }, onData })
    shell.write('stty -echo; stty size\n')
    await shows('30 100')
    shell.resize(40, 120)
    shell.write(new TextEncoder().encode('stty size; A=kept\n'))
    await shows('40 120')
    await restart()
    shell.write('echo still $A\n')
    await shows('still kept')
    shell.write('exit 7\n')
    same((await shell.wait()).returnCode, 7)

    const first = await sandbox.pty({ argv: ['bash', '--norc'], detach: true, env: { PS1: '' } })
    first.write('stty -echo; B=there; echo rea"dy"\n')
    let seen = ''
    for await (const data of first) if ((seen += new TextDecoder().decode(data)).includes('ready')) break
    await first.close()
    const second = await sandbox.pty({ attach: first.id, rows: 50, cols: 90, tailBytes: 100, onData })
    second.write('echo $B; stty size; exit\n')
    await shows('50 90')
    await second.wait()
    await fails(sandbox.pty({ attach: 'exec_0000000000000000000000' }), NotFoundError)
  },

  async tools ({ sdk: { Sandbox, NotFoundError }, client, restart }) {
    const sandbox = await Sandbox.create({ client, codeTools: { allow: ['page', 'add', 'fail', 'meet', 'slow'] } })
    let here = 0
    let all
    const met = new Promise(resolve => { all = resolve })
    let [calls, began] = [0, undefined]
    const called = new Promise(resolve => { began = resolve })
    const restarted = called.then(restart)
    const server = await sandbox.tools.serve({
      page: { description: 'A page.', parameters: { u: 'string', n: 'integer?' }, run: ({ u, n = 3 }) => `page ${u} ${n}` },
      add: { inputSchema: { type: 'object', properties: { a_b: { type: 'number' }, c: { type: 'number' } } },
        run: ({ a_b: a, c }) => ({ sum_of: a + c }) },
      meet: async () => { // returns only when eight calls are here
        if (++here === 8) all()
        await met
        return here
      },
      slow: async ({ n }) => {
        calls++
        began()
        await restarted
        return n * n
      },
      fail: () => { throw new RangeError('too far') },
      hidden: () => 'secret'
    })
    same([...server.names].sort(), ['add', 'fail', 'meet', 'page', 'slow'])
    const run = async (code, language = 'python') => {
      const out = await sandbox.code.run(code, { language })
      return out.error?.name ?? out.text ?? out.stdout
    }
    same(await run("page('x') + tools.page('y', n=1)"), "'page x 3page y 1'")
    same(await run('(await add(1, 2)).sum_of', 'js'), '3')
    same(await run('tools add a_b=4 c=5', 'bash'), '{"sum_of":9}\n')
    same(await run('(await Promise.all([...Array(8)].map(() => meet()))).join()', 'js'), "'8,8,8,8,8,8,8,8'")
    same(await run('(await Promise.all([...Array(50).keys()].map(i => page(String(i))))).reduce((n, p) => n + p.length, 0)',
      'js'), String(50 * 'page  3'.length + 90))
    for (const [code, error] of [['fail()', 'RuntimeError'], ['page(1)', 'ValueError'], ["tools.hidden('x')",
      'PermissionError']]) same(await run(code), error)
    // A command that outlives the daemon continues its calls, and so does this process.
    const command = await sandbox.run("node -e 'const t = require(\"tools\"); t.slow({ n: 7 }).then(async v => " +
      "console.log(v, await t.slow({ n: 8 })))'", { background: true })
    await restarted
    same((await command.wait()).stdout, '49 64\n')
    same(calls, 2)
    await server.close()
    await server.ended
    same(await run("page('x')"), 'NameError')
    await sandbox.delete()
    await fails(sandbox.tools.serve({ page: () => 1 }), NotFoundError)
  },

  async errors ({ sdk, client, sandbox, url, closedPort, foreign }) {
    const { Sandbox, Client, ...E } = sdk
    const invalid = await fails(Sandbox.create({ client, idleTimeoutSeconds: -1 }), E.InvalidArgumentError,
      e => e.status === 400 && e.item === 'idle_timeout_seconds')
    check(invalid instanceof E.BerthError && invalid.requestId.startsWith('req_'), `${invalid.requestId}`)
    const stranger = new Client({ url, key: 'unknown' })
    await fails(stranger.info(), E.UnauthenticatedError, e => e.status === 401)
    await fails(Sandbox.create({ client, network: 'open' }), E.PermissionDeniedError, e => e.status === 403 && e.hint !== '')
    await fails(Sandbox.get('container_0000000000000000000000', { client }), E.NotFoundError, e => e.status === 404)
    // A browser does not send what the daemon's answer to its preflight lacks.
    if (!foreign) await fails(client.request({ method: 'PUT', path: ['info'], body: {} }), E.MethodNotAllowedError)
    await sandbox.update({ name: 'taken' })
    await fails(Sandbox.create({ client, name: 'taken' }), E.AlreadyExistsError, e => e.status === 409)
    await sandbox.run('echo 1', { idempotencyKey: 'k' })
    await fails(sandbox.run('echo 2', { idempotencyKey: 'k' }), E.ConflictError, e => e.status === 409)
    await fails(sandbox.run(': ' + 'x'.repeat(3 << 20)), E.TooLargeError, e => e.status === 413)
    await fails(sandbox.code.run('1', { language: 'r' }), E.UnsupportedError, e => e.status === 501)
    const full = await Sandbox.create({ client, limits: { diskBytes: 16 << 20 } })
    await fails(full.files.put('/workspace/large', new Uint8Array(64 << 20)), E.QuotaExceededError, e => e.status === 507)
    await full.delete()
    const brief = await Sandbox.create({ client, maxLifetimeSeconds: 1 })
    await sleep(Math.max(0, new Date(brief.info.maxExpiresAt) - Date.now()) + 50)
    await fails(brief.run('true'), E.ExpiredError, e => e.status === 410)
    const gone = new Client({ url: closedPort, key: 'k' })
    const began = Date.now()
    await fails(gone.info(), E.ConnectionFailedError, e => e instanceof E.UnavailableError && e.status === 0)
    check(Date.now() - began < 5000, 'a wrong URL is noticed late')
    await fails((async () => new Client({ url: 'ftp://x' }))(), E.InvalidArgumentError)
  },

  async rates ({ sdk: { Client, Sandbox, TooManyRequestsError }, client, url }) { // 429: waited for, or an error
    const key = await client.keys.create({ name: 'slow', quota: { requestsPerSecond: 2, burst: 1 } })
    const slow = new Client({ url, key: key.secret })
    const began = Date.now()
    const sandbox = await Sandbox.create({ client: slow })
    same((await Promise.all([1, 2].map(i => sandbox.run(`echo ${i}`)))).map(r => r.stdout), ['1\n', '2\n'])
    check(Date.now() - began > 900, 'no request waited')
    const hasty = new Client({ url, key: key.secret, retrySeconds: 0 })
    const answers = await Promise.allSettled([1, 2, 3, 4].map(() => hasty.info()))
    const refused = answers.filter(a => a.status === 'rejected').map(a => a.reason)
    check(refused.length > 0 && refused.every(e => e instanceof TooManyRequestsError && e.status === 429 &&
      e.retryAfter >= 1), JSON.stringify(answers))
    await (await Sandbox.get(sandbox.id, { client })).delete()
    await client.keys.delete(key.id)
  },

  async abort ({ sdk: { Sandbox }, client, sandbox }) {
    const stop = new AbortController()
    const running = sandbox.run('echo $$ >/workspace/pid; sleep 60', { signal: stop.signal })
    while (!await sandbox.files.exists('/workspace/pid')) await sleep(20)
    stop.abort(new Error('enough'))
    check((await running.catch(e => e)).message === 'enough', 'it goes on')
    const [ended] = (await sandbox.commands()).slice(-1)
    same((await sandbox.command(ended.id).wait()).returnCode, 137) // it does not run on
    for (const after of [1, 3, 10]) { // before the command's first event, too
      const early = sandbox.run('sleep 50', { signal: AbortSignal.timeout(after) })
      same((await early.catch(e => e)).name, 'TimeoutError')
    }
    for (const { id } of await sandbox.commands()) {
      same((await sandbox.command(id).wait({ signal: AbortSignal.timeout(5000) })).returnCode, 137)
    }
    const command = await sandbox.run('sleep 60', { background: true })
    const waits = command.wait({ signal: AbortSignal.timeout(100) })
    same((await waits.catch(e => e)).name, 'TimeoutError')
    same((await command.info()).state, 'running') // only the wait has ended
    await command.kill()
    for (const call of [Sandbox.create({ client, signal: AbortSignal.abort() }), sandbox.files.list('/',
      { signal: AbortSignal.abort() }), sandbox.pty({ signal: AbortSignal.abort() })]) {
      same((await call.catch(e => e)).name, 'AbortError')
    }
  },

  async resources ({ sdk: { NotFoundError, InvalidArgumentError }, client, sandbox, restart }) {
    const file = await client.files.upload('r.csv', 'a,b\n', { type: 'text/csv', expiresInSeconds: 3600 })
    same([file.filename, file.sizeBytes, file.mimeType], ['r.csv', 4, 'text/csv'])
    same(new TextDecoder().decode(await client.files.download(file.id)), 'a,b\n')
    check((await client.files.list()).some(f => f.id === file.id), 'the file is not listed')
    same((await sandbox.run('cat $INPUT_DIR/r.csv', { files: [file.id] })).stdout, 'a,b\n')
    await client.files.delete(file.id)
    await fails(client.files.get(file.id), NotFoundError)

    const name = 'skill-' + Date.now()
    const skill = await client.skills.create({ [`${name}/SKILL.md`]: `---\nname: ${name}\ndescription: Sings\n---\nSing.\n` })
    same((await client.skills.versions(skill.id)).length, 1)
    check((await client.skills.list()).some(s => s.id === skill.id && s.latestVersionId !== ''), 'no skill')
    same([...(await client.skills.download(skill.id)).slice(0, 2)], [80, 75]) // a zip archive
    await client.skills.delete(skill.id)

    same((await client.images.list()).map(i => i.name), ['base'])
    same(await client.builds.list(), [])
    await fails(client.builds.create('none', 'no tar'), InvalidArgumentError)
    const hook = await client.webhooks.create({ url: 'https://example.com/hook', types: ['exec.'] })
    check(hook.secret.startsWith('whsec_'), 'no secret')
    same((await client.webhooks.update(hook.id, { enabled: false })).enabled, false)
    same((await client.webhooks.list()).map(w => w.id), [hook.id])
    await client.webhooks.delete(hook.id)
    const key = await client.keys.create({ name: 'k', quota: { sessions: 3 } })
    same((await client.keys.update(key.id, { quota: { sessions: 4 } })).quota.sessions, 4)
    same((await client.keys.self()).admin, true)
    await client.keys.delete(key.id)
    same(await client.approvals.list(), [])
    check((await client.info()).runtimeClasses.includes('runc'), 'no class')
    const acts = []
    for await (const entry of client.audit.entries({ container: sandbox.id, last: 5 })) acts.push(entry.act)
    check(acts.includes('container.create') && (await client.audit.head()).seq > 3, `${acts}`)

    const events = client.events.follow({ container: sandbox.id, types: ['exec.ended'],
      since: sandbox.info.createdAt })
    const ended = []
    for (let i = 0; i < 3; i++) {
      if (i === 1) await restart()
      await sandbox.run(`exit ${i}`)
    }
    for await (const { exec } of events) {
      ended.push(exec.returnCode)
      if (ended.length === 4) break
    }
    same(ended, [0, 0, 1, 2]) // the first is that of the uploaded file
  }
}

// run runs the cases that were asked for, each in a container of its own, and reports each as a line.
export async function run ({ say, chosen, sdk, client, ...env }) {
  for (const [name, test] of Object.entries(cases)) {
    if (chosen.length > 0 && !chosen.includes(name)) continue
    let sandbox
    try {
      sandbox = await sdk.Sandbox.create({ client })
      await test({ sdk, client, sandbox, ...env })
      say(`PASS ${name}`)
    } catch (e) {
      say(`FAIL ${name} ${String(e?.stack ?? e).replaceAll('\n', ' ')}`)
    }
    await sandbox?.delete().catch(() => {})
  }
}
