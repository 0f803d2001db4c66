// Runs the cases of cases.mjs in Chromium: with a key, on a page of another origin, and with a cookie, on a page of the
// daemon's own origin. A line "restart" asks the test that runs this to restart the daemon.
import { readFile } from 'node:fs/promises'
import http from 'node:http'
import net from 'node:net'
import path from 'node:path'
import { createInterface } from 'node:readline'
import { chromium } from 'playwright-core'

const { BERTH_URL: url, BERTH_API_KEY: key, BERTH_CHROMIUM, BERTH_SDK, BERTH_PAGE_PORT } = process.env
const chosen = process.argv.slice(2)
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]()
const listen = (server, port = 0) => new Promise(resolve => server.listen(port, 'localhost', () => resolve(server.address().port)))

// page answers with the page and its modules.
async function page (req, res) {
  const name = req.url.split('?')[0]
  if (name === '/') return res.writeHead(200, { 'Content-Type': 'text/html' }).end('<!doctype html><title>SDK</title>')
  const file = name === '/cases.mjs' ? path.join(import.meta.dirname ?? '.', 'cases.mjs') : path.join(BERTH_SDK, name)
  try {
    const text = await readFile(file)
    res.writeHead(200, { 'Content-Type': 'text/javascript' }).end(text)
  } catch {
    res.writeHead(404).end()
  }
}

// A server that serves the page, and the API to who has its cookie, as the daemon does with a console. It takes no key
// from the page.
const session = 'session=granted'
const mayPass = headers => headers.cookie?.includes(session) && headers['x-api-key'] === undefined &&
  !headers['sec-websocket-protocol']?.includes('berth.key')
const daemon = new URL(url)
const own = http.createServer((req, res) => {
  if (!req.url.startsWith('/v1/')) return page(req, res)
  if (!mayPass(req.headers)) return res.writeHead(401).end()
  const headers = { ...req.headers, 'x-api-key': key }
  delete headers.origin
  const up = http.request({ host: daemon.hostname, port: daemon.port, method: req.method, path: req.url, headers }, answer => {
    res.writeHead(answer.statusCode, answer.headers)
    answer.pipe(res)
    answer.on('error', () => res.destroy())
  })
  up.on('error', () => res.destroy())
  res.on('close', () => up.destroy())
  req.pipe(up)
})
own.on('upgrade', (req, socket, head) => {
  if (!mayPass(req.headers)) return socket.end('HTTP/1.1 401 Unauthorized\r\n\r\n')
  const up = net.connect(daemon.port, daemon.hostname)
  const raw = Object.entries({ ...req.headers, host: daemon.host, 'x-api-key': key, origin: url })
  up.write(`GET ${req.url} HTTP/1.1\r\n${raw.map(([k, v]) => `${k}: ${v}\r\n`).join('')}\r\n`)
  up.write(head)
  for (const [a, b] of [[socket, up], [up, socket]]) a.pipe(b).on('error', () => a.destroy()).on('close', () => a.destroy())
})

const foreign = http.createServer(page)
const pages = {
  key: [`http://localhost:${await listen(foreign, Number(BERTH_PAGE_PORT))}`, { url, key }],
  cookie: [`http://localhost:${await listen(own)}`, { credentials: 'same-origin' }]
}
const closed = net.createServer()
const closedPort = `http://127.0.0.1:${await listen(closed)}`
closed.close()

const browser = await chromium.launch({ executablePath: BERTH_CHROMIUM, args: ['--no-sandbox'] })
for (const [name, [address, options]] of Object.entries(pages)) {
  const context = await browser.newContext()
  if (name === 'cookie') await context.addCookies([{ name: 'session', value: 'granted', url: address, httpOnly: true }])
  const tab = await context.newPage()
  await tab.exposeFunction('say', text => { console.log(text.replace(/^(PASS|FAIL) /, `$1 ${name}/`)) })
  await tab.exposeFunction('restart', async () => {
    console.log('restart')
    await lines.next()
  })
  tab.on('pageerror', e => { console.log(`FAIL ${name}/page ${e.message}`) })
  await tab.goto(address)
  await tab.evaluate(async ({ options, chosen, url, closedPort }) => {
    const sdk = await import('/dist/index.js')
    const { cases, run } = await import('/cases.mjs')
    if (options.credentials) { // these use clients with keys
      delete cases.errors
      delete cases.rates
    }
    await run({ say: window.say, restart: window.restart, foreign: !options.credentials, sdk, client: new sdk.Client(options), url, closedPort, chosen })
  }, { options, chosen, url, closedPort })
  await context.close()
}
await browser.close()
process.exit(0)
