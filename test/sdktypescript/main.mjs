// Runs the cases of cases.mjs in Node. A line "restart" asks the test that runs this to restart the daemon.
import http from 'node:http'
import net from 'node:net'
import { createInterface } from 'node:readline'
import * as sdk from '@berth/sdk'
import { cases, check, run, same } from './cases.mjs'

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]()
const restart = async () => {
  console.log('restart')
  await lines.next()
}

// listen starts a server on a free port.
const listen = server => new Promise(resolve => server.listen(0, '127.0.0.1', () => resolve(server.address().port)))

// What a page cannot do: cut connections, read a file with the key.
Object.assign(cases, {
  async brokenConnections ({ sdk: { Client, Sandbox }, url, sandbox }) { // a network that cuts everything, often
    const daemon = new URL(url)
    const open = new Set()
    let broken = 0
    const proxy = net.createServer(socket => {
      const up = net.connect(daemon.port, daemon.hostname)
      open.add(socket)
      for (const [a, b] of [[socket, up], [up, socket]]) {
        a.pipe(b)
        a.on('error', () => {}).on('close', () => b.destroy())
      }
      socket.on('close', () => open.delete(socket))
    })
    const port = await listen(proxy)
    const cutting = setInterval(() => {
      broken += open.size
      for (const socket of open) socket.destroy()
    }, 150)
    const client = new Client({ url: `http://127.0.0.1:${port}` })
    const cut = await Sandbox.get(sandbox.id, { client })
    let text = ''
    const command = 'echo run >>/workspace/cut; for i in $(seq 0 19); do echo $i; sleep 0.05; done'
    const results = await Promise.all([...Array(4)].map((_, i) => cut.run(command, i === 0
      ? { onStdout: t => { text += t } }
      : {})))
    const want = [...Array(20).keys()].map(i => `${i}\n`).join('')
    same(results.map(r => r.stdout), [want, want, want, want])
    same(text, want)
    same(await sandbox.files.read('/workspace/cut'), 'run\nrun\nrun\nrun\n')
    clearInterval(cutting)
    check(broken > 8, `${broken} connections were cut`)
    proxy.close()
  },

  async answersOfOthers ({ sdk: { Client, ...E } }) { // what a proxy in between may say
    let answer
    const server = http.createServer((req, res) => {
      res.writeHead(answer[0], { 'Content-Type': 'text/html', ...answer[2] })
      res.end(answer[1])
    })
    const client = new Client({ url: `http://127.0.0.1:${await listen(server)}`, key: 'k', retrySeconds: 0 })
    const envelope = code => JSON.stringify({ error: { code, message: 'no; do this' }, request_id: 'req_1' })
    for (const [status, body, type, code] of [[502, '<h1>', E.UnavailableError, 'unavailable'],
      [504, envelope('deadline_exceeded'), E.DeadlineExceededError, 'deadline_exceeded'],
      [499, envelope('canceled'), E.CanceledError, 'canceled'], [500, envelope('internal'), E.InternalError, 'internal'],
      [503, envelope('unavailable'), E.UnavailableError, 'unavailable'], [418, '', E.InternalError, 'internal'],
      [200, '<html>', E.UnavailableError, 'unavailable'], [400, envelope('later_code'), E.BerthError, 'later_code']]) {
      answer = [status, body, {}]
      const e = await client.info().then(() => undefined, e => e)
      check(e?.constructor === type && e.code === code && e.status === status, `${status}: ${e?.name} ${e?.code}`)
      if (body.startsWith('{')) same([e.hint, e.requestId], ['do this', 'req_1'])
    }
    server.close()
  },

  async environment ({ sdk: { Client }, url, key }) { // where the URL and the key come from
    const { BERTH_API_KEY, BERTH_API_KEY_FILE, BERTH_URL } = process.env
    try {
      same(await new Client().transport.key(), key)
      same(new Client().url, url)
      delete process.env.BERTH_API_KEY
      process.env.BERTH_API_KEY_FILE = process.env.BERTH_TEST_KEY_FILE
      same(await new Client().transport.key(), key)
      check((await new Client().info()).version !== '', 'no version')
      delete process.env.BERTH_URL
      process.env.BERTH_HOST = 'localhost:1'
      same(new Client().url, 'http://localhost:1')
    } finally {
      delete process.env.BERTH_HOST
      Object.assign(process.env, { BERTH_API_KEY, BERTH_URL })
      if (BERTH_API_KEY_FILE === undefined) delete process.env.BERTH_API_KEY_FILE
    }
  }
})

const closed = net.createServer()
const closedPort = `http://127.0.0.1:${await listen(closed)}`
await new Promise(resolve => closed.close(resolve))
const { BERTH_URL: url, BERTH_API_KEY: key } = process.env
await run({ say: console.log, chosen: process.argv.slice(2), sdk, client: new sdk.Client(), restart, url, key, closedPort })
process.exit(0)
