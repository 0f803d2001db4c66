// The feed of events: one connection for the page, whatever it shows. While the page is hidden there is none; what
// happens meanwhile is read when it is back, since the feed continues behind the last event that was seen.
import { at, get, query } from './api.js'

const types = ['created', 'started', 'stopped', 'paused', 'resumed', 'changed', 'expired', 'deleted', 'reset',
	'restored'].map(t => 'container.' + t).concat('snapshot.created', 'snapshot.deleted', 'exec.started', 'exec.ended',
	'files.changed', 'approval.parked', 'approval.decided', 'port.opened', 'port.closed', 'gap')

const listeners = new Set()
let source, last = '', owner = '', stopped = false

// listen calls fn with each event until the function that it returns is called.
export function listen(fn) {
	listeners.add(fn)
	return () => listeners.delete(fn)
}

function tell(event) {
	for (const fn of listeners) fn(event)
}

function open() {
	source = new EventSource(query(at('events'), { owner, after: last }))
	source.onopen = () => tell({ type: 'connected' })
	source.onerror = () => {
		tell({ type: 'disconnected' })
		if (source.readyState !== EventSource.CLOSED) return // the browser tries again
		const old = source
		setTimeout(() => { if (source === old && !document.hidden && !stopped) open() }, 2000)
		get(at('keys', 'self')).catch(() => {}) // tells the page if the login is over
	}
	for (const type of types) {
		source.addEventListener(type, e => {
			last = e.lastEventId || last
			tell(JSON.parse(e.data))
		})
	}
}

function close() {
	source?.close()
	source = undefined
}

// stop ends the feed for good.
export function stop() {
	stopped = true
	close()
}

// start begins to follow the events of an owner.
export function start(of) {
	owner = of
	open()
	document.addEventListener('visibilitychange', () => {
		if (document.hidden) close()
		else if (!source && !stopped) open()
	})
}
