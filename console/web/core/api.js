// Requests to the daemon's API. The browser adds the cookie; a failed request throws a Failure, which says in the
// daemon's words what is wrong and what to do.

// A Failure is an answer with an error, or none.
export class Failure extends Error {
	constructor(status, error = {}, requestID = '') {
		super(error.message || (status ? `The daemon answered ${status}.` : 'The daemon does not answer.'))
		this.status = status
		this.code = error.code || ''
		this.item = error.item || ''
		this.requestID = requestID
	}
}

// signedOut is told when the login is over.
export const signedOut = new EventTarget()

// at makes a path of an API route; each part is escaped.
export const at = (...parts) => '/v1/' + parts.map(p => encodeURIComponent(p)).join('/')

// query appends the parameters that are set.
export function query(path, params = {}) {
	const q = new URLSearchParams()
	for (const [name, value] of Object.entries(params)) {
		for (const one of [value].flat()) if (one !== undefined && one !== '' && one !== null) q.append(name, one)
	}
	const text = q.toString()
	return text ? `${path}?${text}` : path
}

// abandon ends all requests of the page, and refuses further ones: the login is about to end.
const page = new AbortController()
export const abandon = () => page.abort()

// send makes a request and returns its response if the daemon answers well. last: abandon does not concern it.
export async function send(method, path, { params, body, raw, signal, accept, last } = {}) {
	const headers = accept ? { Accept: accept } : {}
	if (body !== undefined) headers['Content-Type'] = 'application/json'
	const signals = [signal, !last && page.signal].filter(Boolean)
	let res
	try {
		res = await fetch(query(path, params), {
			method, headers, signal: AbortSignal.any(signals), cache: 'no-store', credentials: 'same-origin',
			body: raw !== undefined ? raw : body === undefined ? undefined : JSON.stringify(body),
		})
	} catch (err) {
		if (err.name === 'AbortError') throw err
		throw new Failure(0)
	}
	if (res.ok) return res
	const told = await res.json().catch(() => ({}))
	if (res.status === 401 && path.startsWith('/v1/')) signedOut.dispatchEvent(new Event('signedout'))
	throw new Failure(res.status, told.error, told.request_id)
}

// call makes a request and returns the JSON of its answer, or null without one.
export async function call(method, path, options) {
	const res = await send(method, path, options)
	return res.status === 204 ? null : res.json()
}

export const get = (path, params, signal) => call('GET', path, { params, signal })
export const post = (path, body) => call('POST', path, { body })
export const remove = (path, params) => call('DELETE', path, { params })

// pages reads a list to its end and calls each with every page.
export async function pages(path, params, each, signal) {
	for (let after = ''; ;) {
		const page = await get(path, { ...params, after }, signal)
		each(page.data)
		if (!page.has_more) return
		after = page.next_after
	}
}

// socket opens a websocket below the API.
export function socket(path) {
	const ws = new WebSocket(location.origin.replace(/^http/, 'ws') + path)
	ws.binaryType = 'arraybuffer'
	return ws
}
