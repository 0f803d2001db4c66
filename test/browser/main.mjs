// Visits ports of containers with Chromium. Each case is a line: PASS or FAIL, a name, and why. Arguments choose cases;
// none is all.
import { execFile, spawn } from 'node:child_process'
import fs from 'node:fs'
import net from 'node:net'
import path from 'node:path'
import { createInterface } from 'node:readline'
import { promisify } from 'node:util'
import grpc from '@grpc/grpc-js'
import { chromium } from 'playwright-core'

const { BERTH_URL, BERTH_API_KEY, BERTH_BINARY, BERTH_CHROMIUM, BERTH_APPS, BERTH_MODULES, BERTH_PACKAGES } = process.env
const secure = BERTH_URL.startsWith('https:')
const daemon = new URL(BERTH_URL)
const chosen = process.argv.slice(2)
const apps = name => path.join(BERTH_APPS, name)

function check(ok, what) {
	if (!ok) throw new Error(what)
}

async function api(method, route, body) {
	const raw = body === undefined || body instanceof Buffer
	const headers = { 'X-Api-Key': BERTH_API_KEY, ...!raw && { 'Content-Type': 'application/json' } }
	const res = await fetch(BERTH_URL + '/v1' + route, { method, headers, body: raw ? body : JSON.stringify(body) })
	const text = await res.text()
	check(res.ok, `${method} ${route}: ${res.status} ${text}`)
	return text && JSON.parse(text)
}

// A Container is one with programs that listen.
class Container {
	static async make(more = {}) {
		const c = new Container()
		c.id = (await api('POST', '/containers', more)).id
		c.at = `/containers/${c.id}`
		made.push(c)
		return c
	}

	put(name, data) {
		return api('PUT', `${this.at}/fs/content?path=${encodeURIComponent(name)}`, Buffer.from(data))
	}

	// copy copies a local directory into the container.
	async copy(from, to) {
		await promisify(execFile)(BERTH_BINARY, ['cp', '-q', from, `${this.id}:${to}`])
	}

	// serve starts a program and returns the URL of the port when the event says that it is open.
	async serve(port, argv, env = {}) {
		const since = encodeURIComponent(new Date(Date.now() - 1).toISOString())
		await api('POST', `${this.at}/exec`, { argv, env, background: true })
		const ended = AbortSignal.timeout(90_000)
		const feed = await fetch(`${BERTH_URL}/v1/events?container=${this.id}&type=port.opened&since=${since}`,
			{ headers: { 'X-Api-Key': BERTH_API_KEY, Accept: 'text/event-stream' }, signal: ended })
		let text = ''
		for await (const data of feed.body.pipeThrough(new TextDecoderStream())) {
			text += data
			const open = text.matchAll(/^data: (.*)\n/gm)
			if ([...open].some(m => JSON.parse(m[1]).port?.port === port)) break
		}
		return this.url(port)
	}

	async url(port) {
		return (await api('GET', `${this.at}/ports`)).data.find(p => p.port === port).url
	}

	async signed(port) {
		return (await api('POST', `${this.at}/ports/${port}/url`, {})).url
	}

	async app(title = 'app') {
		await this.put('app.mjs', fs.readFileSync(apps('app.mjs')))
		return this.serve(8000, ['node', '/workspace/app.mjs', '8000', title])
	}

	async state() {
		return (await api('GET', this.at)).state
	}
}

const made = []
let browser

// visitor opens a browser without cookies, as another person has it.
async function visitor(options = {}) {
	const context = await browser.newContext(options)
	context.setDefaultTimeout(60_000)
	return context.newPage()
}

const cases = {
	async signed() { // a signed URL opens its port, and is no longer in the address
		const c = await Container.make(), base = await c.app()
		const p = await visitor()
		await p.goto(await c.signed(8000))
		check(p.url() === base + '/', `the address is ${p.url()}`)
		check(await p.title() === 'app', 'the page is another one')
		check(await p.evaluate(() => document.cookie) === '', 'the page reads the cookie')
		const echo = await p.evaluate(async () => (await fetch('/echo')).json())
		check(!echo.headers.cookie && !JSON.stringify(echo).includes('berth_token'), `it gets ${JSON.stringify(echo)}`)
		const text = await p.evaluate(() => new Promise((done, fail) => {
			const ws = new WebSocket(location.origin.replace('http', 'ws') + '/ws')
			ws.onopen = () => ws.send('hello')
			ws.onmessage = e => done(e.data)
			ws.onerror = () => fail(new Error('the websocket does not open'))
		}))
		check(text === 'hello', `the websocket says ${text}`)
		const events = await p.evaluate(() => new Promise(done => {
			const list = [], source = new EventSource('/events')
			source.onmessage = e => {
				list.push(e.data)
				if (e.data === 'one') fetch('/go')
				else { source.close(); done(list) }
			}
		}))
		check(events.join() === 'one,two', `the events are ${events}`)
		const sent = await p.evaluate(async () => (await fetch('/count', { method: 'POST',
			body: new Blob([new Uint8Array(64 << 20)]) })).text())
		check(sent === String(64 << 20), `it got ${sent} bytes`)
		const [download] = await Promise.all([p.waitForEvent('download'), p.click('#blob')])
		const file = await download.path()
		check(fs.statSync(file).size === 1 << 30, `the download has ${fs.statSync(file).size} bytes`)
		await download.delete()
		const stranger = await visitor()
		const res = await stranger.goto(base)
		check(res.status() === 401, `a stranger gets ${res.status()}`)
	},

	async wakes() { // a click wakes a paused and a stopped container
		const c = await Container.make()
		await c.app()
		const p = await visitor()
		await p.goto(await c.signed(8000))
		await p.evaluate(() => { window.before = 1 })
		await settled(() => api('POST', `${c.at}/pause`))
		check(await c.state() === 'paused', 'it is not paused')
		await Promise.all([p.waitForFunction(() => !window.before), p.click('#again')])
		check(await p.title() === 'app' && await c.state() === 'running', `after a click it is ${await c.state()}`)
		await api('POST', `${c.at}/stop`)
		const [res] = await Promise.all([p.waitForNavigation(), p.click('#again')])
		check(res.status() === 502 && (await p.textContent('body')).includes('listens'), `the answer is ${res.status()}`)
		check(await c.state() === 'running', `after a click it is ${await c.state()}`)
		await c.app()
		await p.reload()
		check(await p.title() === 'app', 'the page does not come back')
	},

	async public() { // a public port opens for anyone until it is private again
		const c = await Container.make(), base = await c.app(), p = await visitor()
		check((await p.goto(base)).status() === 401, 'a private port opens')
		await api('PUT', `${c.at}/public-ports/8000`)
		check((await p.goto(base)).status() === 200 && await p.title() === 'app', 'a public port does not open')
		await api('DELETE', `${c.at}/public-ports/8000`)
		check((await p.goto(base)).status() === 401, 'it stays open')
	},

	async path() { // a page below the API's path has an origin of its own, and reaches neither API nor cookies
		const c = await Container.make()
		await c.app()
		const p = await visitor({ extraHTTPHeaders: { 'X-Api-Key': BERTH_API_KEY } })
		await p.goto(`${BERTH_URL}/v1${c.at}/ports/8000/toss`)
		check(await p.title() === 'tossed', 'the page is another one')
		const found = await p.evaluate(async () => {
			const trial = async fn => { try { return String(await fn()) } catch (e) { return e.name } }
			return {
				origin: self.origin,
				api: await trial(async () => (await fetch('/v1/containers')).status),
				write: await trial(async () => (await fetch('/v1/containers', { method: 'POST', body: '{}' })).status),
				cookie: await trial(() => document.cookie),
				storage: await trial(() => localStorage.length),
				worker: await trial(() => navigator.serviceWorker.register('sw.js')),
			}
		})
		check(found.origin === 'null' && found.api === 'TypeError' && found.write === 'TypeError' &&
			found.cookie === 'SecurityError' && found.storage === 'SecurityError' && /Error$/.test(found.worker),
		JSON.stringify(found))
		const cookies = (await p.context().cookies()).map(k => k.name + ' ' + k.path)
		check(cookies.every(k => k.endsWith(`/v1${c.at}/ports/8000/`)), `cookies are ${cookies}`)
	},

	async cookies() { // no cookie of one container reaches another one, or another port
		const a = await Container.make(), b = await Container.make()
		const mine = await a.app('mine')
		await b.app('theirs')
		const p = await visitor()
		await p.goto(await b.signed(8000))
		await p.goto((await b.url(8000)) + '/toss')
		await p.evaluate(() => {
			for (const domain of ['localhost', '.localhost', location.hostname]) {
				document.cookie = `tossed=1; path=/; domain=${domain}`
			}
		})
		const own = await p.evaluate(async () => (await (await fetch('/echo')).json()).headers.cookie)
		check(own.includes('own=1'), `its own cookie is ${own}`)
		await p.goto(await a.signed(8000))
		await p.goto(mine + '/echo')
		const got = JSON.parse(await p.textContent('body')).headers.cookie
		check(!got, `the other container gets ${got}`)
		const res = await p.goto(BERTH_URL.replace(daemon.hostname, 'localhost') + '/v1/version')
		const sent = (await res.request().allHeaders()).cookie
		check(!sent, `the API gets ${sent}`)
	},

	async neighbour() { // a page of one container can use neither another container's nor the API
		const a = await Container.make(), b = await Container.make()
		const mine = await a.app('mine')
		await b.app('theirs')
		const p = await visitor()
		await p.goto(await a.signed(8000)) // this browser may use both
		await p.goto(await b.signed(8000))
		const trial = (url, options) => p.evaluate(async ([url, options]) => {
			try {
				const res = await fetch(url, options)
				return res.status + (await res.text())
			} catch (e) {
				return e.name
			}
		}, [url, options])
		const refused = async (what, url, options) => {
			const got = await trial(url, options)
			check(got === 'TypeError' || got === '0', `${what}: ${got.slice(0, 200)}`)
		}
		await refused('it reads', mine + '/echo', { credentials: 'include' })
		await refused('it reads without an answer', mine + '/echo', { credentials: 'include', mode: 'no-cors' })
		for (const at of [BERTH_URL, BERTH_URL.replace(daemon.hostname, 'localhost')]) {
			await refused('it reads the API', at + '/v1/containers', { credentials: 'include' })
			await refused('it reads the API with a key', at + '/v1/containers', { headers: { 'X-Api-Key': BERTH_API_KEY } })
			await refused('it writes', at + '/v1/containers', { method: 'POST', mode: 'no-cors', body: '{}' })
		}
		const opened = await p.evaluate(url => new Promise(done => {
			const ws = new WebSocket(url.replace('http', 'ws') + '/ws')
			ws.onopen = () => done(true)
			ws.onerror = () => done(false)
		}), mine)
		check(!opened, 'it opens a websocket of another container')
		await p.evaluate(url => {
			const frame = document.createElement('iframe')
			frame.id = 'frame'
			frame.src = url
			document.body.append(frame)
		}, mine)
		await p.waitForFunction(() => document.getElementById('frame').contentDocument === null)
		const inner = await (await p.waitForSelector('#frame')).contentFrame()
		await inner.waitForLoadState()
		check(await inner.title() !== 'mine', 'it frames another container with its cookie')
		const [popup] = await Promise.all([p.waitForEvent('popup'), p.evaluate(url => { window.other = open(url) }, mine)])
		await popup.waitForLoadState()
		const read = await p.evaluate(() => { try { return window.other.document.title } catch (e) { return e.name } })
		check(read === 'SecurityError', `it reads a window: ${read}`)
		const back = await popup.evaluate(() => { try { return opener.document.title } catch (e) { return e.name } })
		check(back === 'SecurityError' || back === 'TypeError', `the window reads its opener: ${back}`)
		const [sent] = await Promise.all([p.waitForNavigation(), p.evaluate(url => {
			const form = document.createElement('form')
			form.method = 'POST'
			form.action = url
			document.body.append(form)
			form.submit()
		}, mine + '/echo')])
		check(sent.status() >= 400, `its form is answered with ${sent.status()}`)
	},

	async worker() { // a service worker of one port catches nothing of another one
		const c = await Container.make(), base = await c.app()
		await c.serve(8001, ['node', '/workspace/app.mjs', '8001', 'second'])
		const p = await visitor()
		await p.goto(await c.signed(8000))
		const scope = await p.evaluate(async () => {
			const r = await navigator.serviceWorker.register('/sw.js')
			await navigator.serviceWorker.ready
			return r.scope
		})
		check(scope === base + '/', `its scope is ${scope}`)
		await p.reload()
		check(await p.textContent('body') === 'caught', 'it catches nothing of its own')
		await p.goto(await c.signed(8001))
		check(await p.title() === 'second', 'it catches requests to another port')
	},

	async rebinding() { // a name that leads to this machine has nobody's credentials, and opens neither API nor ports
		const c = await Container.make()
		await c.app()
		await api('PUT', `${c.at}/public-ports/8000`)
		const p = await visitor()
		await p.goto(await c.signed(8000))
		for (const route of ['/v1/containers', `/v1${c.at}/ports/8000/`, '/echo', '/']) {
			const res = await p.goto(`${daemon.protocol}//evil.test:${daemon.port}${route}`)
			const text = await p.textContent('body')
			check([400, 401, 403, 404, 421].includes(res.status()) && !text.includes(c.id) && await p.title() !== 'app',
				`${route}: ${res.status()} ${text}`)
		}
	},

	async many() { // 1,000 connections are open at a time, and the page works beside them
		const c = await Container.make(), base = new URL(await c.app())
		if (secure) return // the connections below are plain
		const open = await Promise.all(Array.from({ length: 1000 }, (_, i) => new Promise((done, fail) => {
			const s = net.connect(Number(daemon.port), daemon.hostname)
			let text = ''
			s.on('error', fail)
			s.on('close', () => fail(new Error(`connection ${i} closes: ${text.slice(0, 300)}`)))
			s.on('data', data => {
				text += data.toString('latin1')
				if (text.includes('\r\n\r\n')) {
					check(text.startsWith('HTTP/1.1 101'), text)
					done(s)
				}
			})
			s.write(`GET /ws HTTP/1.1\r\nHost: ${base.host}\r\nX-Api-Key: ${BERTH_API_KEY}\r\nUpgrade: websocket\r\n` +
				'Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n')
		})))
		const p = await visitor()
		await p.goto(await c.signed(8000))
		check(await p.title() === 'app', 'the page does not open')
		await Promise.all(open.map((s, i) => new Promise((done, fail) => {
			const text = String(i).padStart(4, '0')
			s.removeAllListeners('data')
			s.once('data', data => data.subarray(2).toString() === text ? done() : fail(new Error(`${i} gets ${data}`)))
			s.write(Buffer.concat([Buffer.from([0x81, 0x84, 0, 0, 0, 0]), Buffer.from(text)]))
		})))
		for (const s of open) s.removeAllListeners('close').destroy()
	},

	async vite() { // a change of a module arrives without a reload
		const c = await Container.make()
		await c.copy(BERTH_MODULES, 'node_modules')
		const shown = text => c.put('shown.js', `document.getElementById('text').textContent = '${text}'\n` +
			'import.meta.hot.accept()\n')
		await c.put('index.html', fs.readFileSync(apps('vite.html')))
		await c.put('vite.config.js', fs.readFileSync(apps('vite.config.js')))
		await shown('first')
		await c.serve(5173, ['node', '/workspace/node_modules/vite/bin/vite.js', '/workspace'])
		const p = await visitor()
		await p.goto(await c.signed(5173))
		await p.waitForFunction(() => document.getElementById('text').textContent === 'first')
		await p.evaluate(() => { window.before = 1 })
		await shown('second')
		await p.waitForFunction(() => document.getElementById('text').textContent === 'second')
		check(await p.evaluate(() => window.before) === 1, 'the page was loaded again')
	},

	async flask() { // a form, and a session in a cookie
		const c = await python()
		await c.put('flask_app.py', fs.readFileSync(apps('flask_app.py')))
		await c.serve(5000, ['python3', '-m', 'flask', '--app', '/workspace/flask_app.py', 'run', '--port', '5000'], packages)
		const p = await visitor()
		await p.goto(await c.signed(5000))
		await p.fill('input', 'Ada')
		await Promise.all([p.waitForNavigation(), p.press('input', 'Enter')])
		await p.reload()
		check(await p.textContent('#name') === 'Ada', `it knows ${await p.textContent('#name')}`)
	},

	async jupyter() { // a notebook runs a cell
		const c = await python()
		await c.serve(8888, ['python3', '-m', 'jupyterlab', '--no-browser', '--port=8888', '--ServerApp.token=',
			'--ServerApp.allow_remote_access=True', '--ServerApp.root_dir=/workspace'],
		{ ...packages, JUPYTER_PATH: '/workspace/site-packages/share/jupyter', JUPYTERLAB_DIR:
			'/workspace/site-packages/share/jupyter/lab', JUPYTER_CONFIG_PATH: '/workspace/site-packages/etc/jupyter' })
		const p = await visitor()
		await p.goto(await c.signed(8888))
		await p.click('.jp-LauncherCard[data-category="Notebook"]')
		await p.waitForSelector('.jp-Notebook .cm-content')
		await p.waitForSelector('.jp-Notebook-ExecutionIndicator[data-status="idle"]') // the kernel is there
		await p.click('.jp-Notebook .cm-content')
		await p.keyboard.type('print(6 * 7)')
		await p.keyboard.press('Shift+Enter')
		await p.waitForFunction(() => document.querySelector('.jp-OutputArea-output')?.textContent.trim() === '42')
	},

	async streamlit() { // a button runs the script again
		const c = await python()
		await c.put('streamlit_app.py', fs.readFileSync(apps('streamlit_app.py')))
		await c.serve(8501, ['python3', '-m', 'streamlit', 'run', '/workspace/streamlit_app.py', '--server.headless=true',
			'--server.address=127.0.0.1', '--browser.gatherUsageStats=false'], packages)
		const p = await visitor()
		await p.goto(await c.signed(8501))
		await p.click('button:has-text("press")')
		await p.waitForSelector('text=pressed')
	},

	async grpc() { // calls and streams through `berth forward`
		const c = await python()
		await c.put('grpc_app.py', fs.readFileSync(apps('grpc_app.py')))
		await c.serve(50051, ['python3', '/workspace/grpc_app.py'], packages)
		const forward = spawn(BERTH_BINARY, ['forward', c.id, '0:50051'], { stdio: ['ignore', 'pipe', 'inherit'] })
		try {
			const { value } = await createInterface(forward.stdout)[Symbol.asyncIterator]().next()
			const client = new grpc.Client(value.split(' ')[0], grpc.credentials.createInsecure())
			const same = data => data
			const sent = Buffer.alloc(1 << 20, 3)
			const got = await new Promise((done, fail) => client.makeUnaryRequest('/test.Echo/Echo', same, same, sent,
				(err, answer) => err ? fail(err) : done(answer)))
			check(sent.equals(got), `${got.length} bytes come back`)
			let n = 0
			for await (const one of client.makeServerStreamRequest('/test.Echo/Thrice', same, same, sent)) {
				check(sent.equals(one), `${one.length} bytes come back`)
				n++
			}
			check(n === 3, `${n} messages come`)
			client.close()
		} finally {
			forward.kill()
		}
	},
}

// settled tries again while a container is in use.
async function settled(fn) {
	for (let i = 0; ; i++) {
		try {
			return await fn()
		} catch (e) {
			if (i === 100 || !String(e).includes('409')) throw e
		}
	}
}

const packages = { PYTHONPATH: '/workspace/site-packages' }
let shared

// python returns the container that has the Python packages.
async function python() {
	if (!shared) {
		shared = await Container.make()
		await shared.copy(BERTH_PACKAGES, 'site-packages') // Streamlit expects that name
	}
	return shared
}

async function main() {
	browser = await chromium.launch({ executablePath: BERTH_CHROMIUM, args: ['--no-sandbox',
		'--host-resolver-rules=MAP evil.test 127.0.0.1'] })
	try {
		for (const [name, run] of Object.entries(cases)) {
			if (chosen.length > 0 && !chosen.includes(name)) continue
			try {
				await run()
				console.log('PASS', name)
			} catch (e) {
				console.log('FAIL', name, String(e.stack).replaceAll('\n', ' | ').slice(0, 1500))
			}
			for (const context of browser.contexts()) await context.close()
		}
	} finally {
		await browser.close()
		for (const c of made) await api('DELETE', c.at).catch(e => console.log('FAIL', 'cleanup', e))
	}
}

await main()
