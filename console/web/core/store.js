// The containers that the page knows: read once, then kept up to date by the feed of events.
import { at, get, pages } from './api.js'
import { listen } from './feed.js'

const all = new Map(), watchers = new Set()
let loaded = false, failed = null, drawn = false

// draw tells the watchers at most once a frame, however many containers change.
function draw() {
	if (drawn) return
	drawn = true
	requestAnimationFrame(() => {
		drawn = false
		for (const fn of watchers) fn()
	})
}

// containers is what is known now.
export const containers = () => ({ list: [...all.values()], loaded, failed })
export const find = id => all.get(id)

// watch calls fn after changes until the function that it returns is called.
export function watch(fn) {
	watchers.add(fn)
	return () => watchers.delete(fn)
}

// put takes a container over that an answer described.
export function put(container) {
	if (container.state === 'expired') all.delete(container.id)
	else all.set(container.id, container)
	draw()
}

export function drop(id) {
	all.delete(id)
	draw()
}

// load reads all containers. A page of 100 is read and drawn before the next one.
export async function load() {
	failed = null
	const before = new Set(all.keys())
	try {
		await pages(at('containers'), { limit: 100 }, list => {
			for (const c of list) {
				all.set(c.id, c)
				before.delete(c.id)
			}
			draw()
		})
		for (const id of before) all.delete(id)
	} catch (err) {
		failed = err
	}
	loaded = true
	draw()
}

// What changed is described again, each container once, a few at a time.
const stale = new Set()
let busy = 0, waiting = null

function refresh(id) {
	stale.add(id)
	waiting ??= setTimeout(() => { waiting = null; work() }, 150)
}

async function work() {
	while (stale.size && busy < 3) {
		const [id] = stale
		stale.delete(id)
		busy++
		get(at('containers', id)).then(put, err => { if (err.status === 404 || err.status === 410) drop(id) })
			.finally(() => { busy--; work() })
	}
}

// begin loads the containers and follows their events.
export function begin() {
	let lost = false
	load()
	return listen(e => {
		if (e.type === 'gap' || e.type === 'connected' && lost) load()
		lost = e.type === 'disconnected' || lost && e.type !== 'connected'
		if (e.type === 'container.deleted' || e.type === 'container.expired') drop(e.container_id)
		else if (e.container_id && /^(container|exec)\./.test(e.type)) refresh(e.container_id)
	})
}
