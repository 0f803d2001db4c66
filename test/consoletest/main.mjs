// Works in the console with Chromium. Each case is a line: PASS or FAIL, a name, and why. Arguments choose cases;
// none is all. No case may leave an error in the browser's log.
import fs from 'node:fs'
import path from 'node:path'
import { createRequire } from 'node:module'
import { chromium } from 'playwright-core'

const { BERTH_URL, BERTH_API_KEY, BERTH_CHROMIUM, BERTH_SHOTS } = process.env
const axe = fs.readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const chosen = process.argv.slice(2)
const hostile = '<img src=x onerror="window.pwned=1">'

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

const make = more => api('POST', '/containers', { labels: { run: hostile }, ...more })
const run = (c, command, more) => api('POST', `/containers/${c.id}/exec`, { command, ...more })
const put = (c, name, data) => api('PUT', `/containers/${c.id}/fs/content?path=${encodeURIComponent(name)}`,
	Buffer.from(data))

let browser
const faults = []

// open logs a new browser in and opens a page.
async function open(at = 'containers', options = {}) {
	const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options })
	context.setDefaultTimeout(30_000)
	const p = await context.newPage()
	p.on('console', m => { if (m.type() === 'error') faults.push(m.text()) })
	p.on('pageerror', e => faults.push(e.stack))
	p.on('dialog', d => { faults.push(`a dialog: ${d.message()}`); d.dismiss() })
	const link = await api('POST', '/console/links', {})
	await p.goto(BERTH_URL + link.path)
	await p.waitForSelector('nav')
	if (at !== 'containers') await visit(p, at)
	return p
}

async function visit(p, at) {
	await p.goto(`${BERTH_URL}/console#/${at}`)
	await p.waitForSelector('.loading, .boot', { state: 'detached' })
}

const tab = (c, name) => `containers/${c.id}/${name}`

// accessible checks the AA rules of axe, and its best practices.
const rules = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']

async function accessible(p, where) {
	await p.evaluate(axe)
	const { violations } = await p.evaluate(runOnly => window.axe.run({ runOnly }), rules)
	const found = violations.map(v => `${v.id} ${v.nodes.map(n => n.html.slice(0, 200))}`)
	check(!found.length, `${where}: ${found.join('; ')}`)
}

// safe checks that no hostile text has run.
async function safe(p, where) {
	check(await p.evaluate(() => window.pwned === undefined), `${where}: a text has run as code`)
	check(await p.locator('img[src=x]').count() === 0, `${where}: a text became an element`)
}

// ready gives a container files and commands of all kinds.
async function ready() {
	const c = await make({ network: { mode: 'allowlist', allow: ['allowed.test'], ask: true } })
	await run(c, `printf 'city,degrees\\nOslo,4\\n"${hostile.replaceAll('"', '""')}",1\\n' >data.csv
cp data.csv copy.csv
touch '${hostile.replaceAll('/', '')}'; echo '<script>window.pwned=1</script>'; echo warn >&2`, { job_id: 'report' })
	await run(c, "printf '%%PDF-1.4\\n' >a.pdf; echo text >notes.txt; printf 'a\\0b' >binary", { job_id: 'report' })
	await put(c, 'report/page.html', `<style>p { color: red }</style><h1 style="color: blue">Title</h1>
		<script>parent.pwned = 1
		top.pwned = 1</script><p onclick="x()">text ${hostile}</p><iframe src="javascript:top.pwned=1"></iframe>`)
	await put(c, 'report/drawing.svg', '<svg xmlns="http://www.w3.org/2000/svg" width="50" height="50" ' +
		'onload="top.pwned=1"><script>top.pwned = 1</script><circle cx="25" cy="25" r="20" fill="green"/></svg>')
	await api('POST', `/containers/${c.id}/snapshots`, { name: `s-${c.id.slice(-6)}` })
	return c
}

const cases = {
	async login() { // a link logs one browser in, once, and no script reads the cookie
		const context = await browser.newContext(), p = await context.newPage()
		p.on('console', m => { if (m.type() === 'error') faults.push(m.text()) })
		await p.goto(BERTH_URL + '/console')
		await p.waitForSelector('text=berth console')
		const link = await api('POST', '/console/links', {})
		await p.goto(BERTH_URL + link.path)
		await p.reload() // a new fragment alone loads nothing
		await p.waitForSelector('nav')
		check(!p.url().includes('login'), `the address is ${p.url()}`)
		check(await p.evaluate(() => document.cookie) === '', 'a script reads the cookie')
		await p.click('[aria-label="Log out"]')
		await p.waitForSelector('text=berth console')
		const [cookie] = await context.cookies()
		check(!cookie, `the cookie is still there: ${cookie?.name}`)
	},

	async list() { // states are live, the filter finds, keys work
		const c = await make({ name: 'listed' })
		const p = await open()
		const row = p.locator('[role=row]', { hasText: 'listed' })
		await row.locator('text=running').waitFor()
		await api('POST', `/containers/${c.id}/stop`)
		await row.locator('text=stopped').waitFor()
		await p.keyboard.press('/')
		await p.keyboard.type('no-such-name')
		await p.waitForSelector('text=Nothing matches')
		await p.keyboard.press('Escape')
		await row.waitFor()
		await p.keyboard.press('n')
		await p.waitForSelector('dialog')
		await p.keyboard.press('Escape')
		await row.locator('[aria-label^="Delete"]').click()
		await p.click('dialog button:has-text("Delete")')
		await row.waitFor({ state: 'detached' })
	},

	async create() { // the form makes what it says
		const p = await open()
		await p.click('text=New container')
		await p.fill('[name=name]', 'made-here')
		await p.fill('[name=labels]', 'team=red')
		await p.fill('[name=memory]', '512')
		await p.click('dialog button:has-text("Create")')
		await p.waitForSelector('h1:has-text("made-here")')
		const c = await api('GET', '/containers/made-here')
		check(c.labels.team === 'red' && c.limits.memory_bytes === 512 << 20, JSON.stringify(c))
		await p.click('text=New container').catch(() => {})
	},

	async terminal() { // a terminal runs, outlives its page, and comes back; a paused container wakes
		const c = await make()
		let p = await open(tab(c, 'terminal'))
		await p.click('text=Open a terminal')
		const said = text => p.waitForFunction(t => document.querySelector('.xterm-rows')?.textContent.includes(t),
			text)
		await said('$')
		await p.keyboard.type('X=4; echo answer $((X*10+2))\n')
		await said('answer 42')
		await p.close()
		await api('POST', `/containers/${c.id}/pause`)
		p = await open(tab(c, 'terminal'))
		await said('answer 42')
		await p.click('.xterm')
		await p.keyboard.type('echo still $X\n')
		await said('still 4')
		check((await api('GET', `/containers/${c.id}`)).state === 'running', 'it is not running')
	},

	async commands() { // a command runs with its output as it comes, and what it made is linked
		const c = await make()
		const p = await open(tab(c, 'commands'))
		await p.fill('[aria-label=Command]', 'echo first; read -t 2 x </dev/zero; echo made >out.txt; echo last')
		await p.click('button:has-text("Run")')
		await p.locator('[role=log]', { hasText: 'first' }).waitFor()
		await p.locator('[role=log]', { hasText: 'last' }).waitFor()
		await p.click('text=out.txt >> nth=-1')
		await p.locator('pre', { hasText: 'made' }).waitFor()
	},

	async upload() { // a file is dropped and shown
		const c = await make()
		const p = await open(tab(c, 'files'))
		const data = await p.evaluateHandle(() => {
			const d = new DataTransfer()
			d.items.add(new File(['dropped content'], 'dropped.txt'))
			return d
		})
		await p.dispatchEvent('.split', 'drop', { dataTransfer: data })
		await p.click('a:has-text("dropped.txt")')
		await p.locator('pre', { hasText: 'dropped content' }).waitFor()
	},

	async previews() { // text, image, table, PDF and HTML are shown, and nothing of them runs
		const c = await ready(), p = await open()
		const see = async (name, what) => {
			await visit(p, tab(c, `files/${encodeURIComponent('/workspace/report/' + name)}`))
			await p.locator(what).first().waitFor()
			await safe(p, name)
		}
		await see('data.csv', 'td:has-text("Oslo")')
		check(await p.locator('td', { hasText: hostile }).count() === 1, 'the table has not the text of the cell')
		await see('notes.txt', 'pre:has-text("text")')
		await see('binary', 'text=binary file')
		await see('drawing.svg', '.picture img')
		await see('a.pdf', 'iframe')
		await see('page.html', 'iframe')
		const frame = p.frameLocator('iframe')
		await frame.locator('h1', { hasText: 'Title' }).waitFor()
		const color = await frame.locator('h1').evaluate(el => getComputedStyle(el).color)
		check(color === 'rgb(0, 0, 255)', 'it has no style')
		check(await frame.locator('h1').evaluate(() => self.origin) === 'null', 'the frame has an origin')
		await safe(p, 'page.html')
	},

	async approvals() { // what waits is shown at once with a badge, and a key decides
		const c = await make({ network: { mode: 'allowlist', allow: ['allowed.test'], ask: true } })
		const p = await open('approvals')
		await p.waitForSelector('text=Nothing waits for you')
		await run(c, 'curl -s -m 60 http://asked.test/', { background: true })
		await p.waitForSelector('.badge')
		await p.locator('h2', { hasText: 'asked.test' }).waitFor()
		check((await p.title()).startsWith('(1)'), `the title is ${await p.title()}`)
		await accessible(p, 'approvals')
		await p.keyboard.press('x')
		await p.waitForSelector('text=Nothing waits for you')
		const [decided] = (await api('GET', `/events?container=${c.id}&type=approval.decided`)).data
		check(decided.decision === 'refuse', JSON.stringify(decided))
	},

	async network() { // a refused host is allowed by one click
		const c = await make({ network: { mode: 'allowlist', allow: ['allowed.test'] } })
		await run(c, 'curl -s -m 5 http://refused.test/ || true')
		const p = await open(tab(c, 'network'))
		await p.click('[aria-label="Allow refused.test"]')
		await p.waitForSelector('text=Changed the network')
		const { network } = await api('GET', `/containers/${c.id}`)
		check(network.allow.includes('refused.test'), JSON.stringify(network))
	},

	async jobs() { // the picture has a line from a command to what it made
		const c = await ready(), p = await open(tab(c, 'jobs/report'))
		await p.waitForSelector('.picture-of-job path', { state: 'attached' })
		check(await p.locator('.picture-of-job path').count() >= 5, 'there are few lines')
		await safe(p, 'jobs')
	},

	async notebook() { // a cell keeps variables, and shows figures and tables
		const c = await make(), p = await open(tab(c, 'code'))
		const cell = async (n, code) => {
			await p.locator('textarea').nth(n).fill(code)
			await p.locator('textarea').nth(n).press('Shift+Enter')
			await p.locator('.cell').nth(n).locator('.answer').waitFor({ timeout: 60_000 })
		}
		await cell(0, 'x = 20\nprint("<b>out</b>")\nx * 2')
		await p.locator('.answer pre', { hasText: '40' }).waitFor()
		await cell(1, 'import pandas as pd\npd.DataFrame({"a": [x, 2]})')
		await p.frameLocator('.answer iframe').locator('td', { hasText: '20' }).waitFor()
		await cell(2, '1/0')
		await p.locator('.answer [role=alert]', { hasText: 'ZeroDivisionError' }).waitFor()
		await accessible(p, 'notebook')
	},

	async ports() { // a port opens in a page of its own
		const c = await make()
		await run(c, 'mkdir -p www; echo "<h1>app</h1>" >www/index.html; python3 -m http.server -d www 8000',
			{ background: true })
		const p = await open(tab(c, 'ports'))
		const [app] = await Promise.all([p.context().waitForEvent('page'), p.click('button:has-text("Open")')])
		await app.locator('h1', { hasText: 'app' }).waitFor()
	},

	async snapshots() { // a snapshot is taken and restored, and a copy is made
		const c = await make()
		await run(c, 'echo one >/workspace/f')
		const p = await open(tab(c, 'snapshots'))
		await p.click('text=Take a snapshot')
		await p.fill('[name=name]', 'kept')
		await p.click('dialog button:has-text("Take")')
		await p.locator('td', { hasText: 'kept' }).waitFor()
		await run(c, 'echo two >/workspace/f')
		await p.click('button:has-text("Restore")')
		await p.click('dialog button:has-text("Restore")')
		await p.waitForSelector('text=Restored')
		const { result } = await run(c, 'cat /workspace/f')
		check(result.stdout === 'one\n', JSON.stringify(result))
		await p.click('td button:has-text("Fork")')
		await p.waitForSelector('text=Made a container of the snapshot')
	},

	async keys() { // a key is made, shown once and revoked
		const p = await open('keys')
		await p.click('text=New key')
		await p.fill('[name=name]', hostile)
		await p.click('dialog button:has-text("Create")')
		const secret = await p.locator('.secret code').textContent()
		const res = await fetch(BERTH_URL + '/v1/containers', { headers: { 'X-Api-Key': secret } })
		check(res.ok, 'the key does not work')
		await safe(p, 'keys')
		await p.click(`[aria-label^="Revoke"]`)
		await p.click('dialog button:has-text("Revoke")')
		await p.locator('[aria-label^="Revoke"]').waitFor({ state: 'detached' })
	},

	async pages() { // every page meets the AA rules in both schemes and on narrow screens
		const c = await ready()
		await run(c, 'true')
		const places = ['containers', 'approvals', 'keys', 'host', ...['overview', 'terminal', 'commands', 'files',
			'jobs/report', 'code', 'ports', 'snapshots', 'network'].map(name => tab(c, name)),
		tab(c, `files/${encodeURIComponent('/workspace/report/data.csv')}`)]
		const narrow = { viewport: { width: 390, height: 800 } }
		for (const options of [{ colorScheme: 'light' }, { colorScheme: 'dark' }, narrow]) {
			const p = await open('containers', options)
			for (const place of places) {
				await visit(p, place)
				await p.waitForTimeout(600) // until what fades in is there
				const where = `${place} ${JSON.stringify(options)}`
				await accessible(p, where)
				await safe(p, where)
				const wide = await p.evaluate(() => document.documentElement.scrollWidth - innerWidth)
				check(wide <= 0, `${where}: ${wide} pixels stand out`)
			}
			await p.context().close()
		}
	},

	async fast() { // the first paint is quick and no request is slow, at ten containers and at a thousand
		for (let n = (await all()).length; n < 10; n++) await make()
		await quick('at ten containers')
		const more = Array.from({ length: 1000 - (await all()).length })
		await Promise.all(Array.from({ length: 8 }, async () => {
			while (more.pop() !== undefined || more.length) await api('POST', `/containers/${(await make()).id}/stop`)
		}))
		await quick('at a thousand containers')
		const p = await open(), count = (await all()).length
		await p.locator('.counts', { hasText: `${count} in all` }).waitFor()
		await p.keyboard.press('End')
		await p.locator(`[role=row][aria-rowindex="${count + 1}"] a:focus`).waitFor()
		check(await p.locator('[role=row]').count() < 60, 'the list draws rows that are not on the screen')
		await accessible(p, 'containers, a thousand')
	},
}

// pictures takes those of docs/console.md, of a work that could be somebody's.
async function pictures(dir) {
	const shot = (p, name) => p.screenshot({ path: path.join(dir, `console-${name}.png`) })
	const size = { viewport: { width: 1100, height: 620 } }
	const names = ['scraper', 'chart-bot', 'evaluation-17', 'notebook', 'ci-runner', 'web-preview', 'data-cleaning']
	const calm = { labels: { team: 'red' } }
	for (const [i, name] of names.entries()) {
		const c = await make({ name, ...calm })
		if (i > 3) await run(c, 'while :; do for i in $(seq 20000); do :; done; sleep 0.4; done', { background: true })
		else await api('POST', `/containers/${c.id}/${i === 3 ? 'pause' : 'stop'}`)
	}
	const c = await make({ name: 'report-writer', network: { mode: 'allowlist', allow: ['api.github.com'], ask: true },
		...calm })
	await run(c, `seq 12 | awk 'BEGIN { srand(3); print "month,units" }
	{ print $1 "," int(80 + 320 * rand()) }' >sales.csv
echo '# Report' >report.md`, { job_id: 'report' })
	await run(c, `python3 -c "import matplotlib; matplotlib.use('Agg')
import pandas as pd
d = pd.read_csv('sales.csv')
d.plot.bar(x='month').figure.savefig('revenue.png')
d.describe().to_html('summary.html')"`, { job_id: 'report' })
	await run(c, 'sed -i "s/^# Report/# Sales in 2026/" report.md; wc -w report.md', { job_id: 'report' })
	let p = await open('containers', size)
	await p.waitForTimeout(45_000) // until the lines of use are long enough to be seen
	await shot(p, 'containers')
	await visit(p, tab(c, 'jobs/report'))
	await p.locator('.picture-of-job a').nth(1).hover()
	await shot(p, 'jobs')
	await run(c, 'curl -s -m 60 https://pypi.example/simple/', { background: true })
	await p.locator('.badge').waitFor()
	await visit(p, 'approvals')
	await p.setViewportSize({ width: 1100, height: 250 })
	await shot(p, 'approvals')
	await p.context().close()
	p = await open(tab(c, 'terminal'), { ...size, colorScheme: 'dark' })
	await p.click('text=Open a terminal')
	await p.locator('.xterm-rows', { hasText: '$' }).waitFor()
	await p.keyboard.type('cd /workspace/report; ls -l --color; head -4 sales.csv\n')
	await p.locator('.xterm-rows', { hasText: 'month,units' }).waitFor()
	await shot(p, 'terminal')
}

// all returns the containers, page by page.
async function all() {
	const list = []
	for (let page = { has_more: true }; page.has_more; list.push(...page.data)) {
		page = await api('GET', `/containers?limit=100${page.next_after ? `&after=${page.next_after}` : ''}`)
	}
	return list
}

// quick loads the list and a container, and checks how long the first paint and each request take. The best of five
// tries counts, since other work on the machine slows single requests. Streams last as long as the page.
async function quick(where) {
	const p = await open(), running = await make(), count = (await all()).length, tries = []
	for (let i = 0; i < 5; i++) {
		await visit(p, 'containers')
		const used = p.waitForResponse(/\/v1\/stats/)
		await p.reload()
		await p.locator('.counts', { hasText: `${count} in all` }).waitFor()
		await used
		const list = await measure(p)
		await visit(p, tab(running, 'overview'))
		await p.locator('.chart canvas').first().waitFor()
		const one = await measure(p)
		tries.push({ paint: list.paint, slowest: Math.max(list.slowest, one.slowest), which: [list.which, one.which] })
		if (list.paint <= 1000 && tries[i].slowest <= 100) break
	}
	const best = tries.sort((a, b) => a.slowest - b.slowest)[0]
	console.error(`${where}: first paint ${Math.round(best.paint)} ms, slowest request ${Math.round(best.slowest)} ms`)
	check(best.paint <= 1000 && best.slowest <= 100, `${where}: ${JSON.stringify(tries)}`)
	await p.context().close()
}

const measure = p => p.evaluate(() => {
	const requests = performance.getEntriesByType('resource').filter(r => !/\/events\b/.test(r.name))
		.sort((a, b) => b.duration - a.duration)
	return { paint: performance.getEntriesByName('first-contentful-paint')[0].startTime, slowest: requests[0].duration,
		which: `${requests[0].name} ${Math.round(requests[0].duration)}` }
})

browser = await chromium.launch({ executablePath: BERTH_CHROMIUM, args: ['--no-sandbox'] })
let failed = 0
if (BERTH_SHOTS) await pictures(BERTH_SHOTS)
for (const [name, work] of Object.entries(cases)) {
	if (chosen.length && !chosen.includes(name)) continue
	faults.length = 0
	try {
		await work()
		check(!faults.length, `the browser's log has ${faults.join(' | ')}`)
		console.log(`PASS ${name}`)
	} catch (err) {
		failed++
		console.log(`FAIL ${name} ${String(err.message).replaceAll('\n', ' ').slice(0, 900)}`)
	}
	for (const context of browser.contexts()) await context.close()
}
await browser.close()
process.exitCode = failed ? 1 : 0
