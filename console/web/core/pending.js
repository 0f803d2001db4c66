// What waits for a decision. The page shows how much it is wherever it is, so this is read whatever page is open. A
// hidden page gets no events and asks now and then, since its title has the number.
import { useEffect, useState } from './view.js'
import { at, get } from './api.js'
import { listen } from './feed.js'

let pending = [], timer = null
const watchers = new Set()

async function read() {
	timer = null
	try {
		pending = (await get(at('approvals'))).data
	} catch {
		return // the next event or the next turn tries again
	}
	for (const fn of watchers) fn(pending)
}

// reload reads the list soon, once for several reasons.
export function reload() {
	timer ??= setTimeout(read, 50)
}

listen(e => {
	if (e.type.startsWith('approval.') || e.type === 'connected' || e.type === 'gap'
		|| e.type === 'exec.ended') reload()
})
setInterval(() => { if (document.hidden || pending.length) reload() }, 15_000)

export function usePending() {
	const [list, set] = useState(pending)
	useEffect(() => {
		watchers.add(set)
		reload()
		return () => watchers.delete(set)
	}, [])
	return list
}
