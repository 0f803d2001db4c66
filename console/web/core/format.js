// Numbers and times for people.

const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB']

// bytes writes a size, 1536 as 1.5 KiB.
export function bytes(n) {
	if (n === null || n === undefined) return '–'
	let unit = 0
	for (; n >= 1024 && unit < units.length - 1; unit++) n /= 1024
	return `${unit === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)} ${units[unit]}`
}

// span writes a number of seconds in its two largest units.
export function span(seconds) {
	if (seconds < 1) return `${Math.round(seconds * 1000)} ms`
	if (seconds < 10) return `${Number.isInteger(seconds) ? seconds : seconds.toFixed(1)} s`
	const parts = [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']]
	const first = parts.findIndex(([size]) => seconds >= size)
	const [size, unit] = parts[first]
	const rest = parts[first + 1] && Math.floor(seconds % size / parts[first + 1][0])
	return `${Math.floor(seconds / size)} ${unit}` + (rest ? ` ${rest} ${parts[first + 1][1]}` : '')
}

// ago writes how long ago a moment was, and until how long it takes, roughly.
export function ago(time, now = Date.now()) {
	const seconds = (now - new Date(time)) / 1000
	return seconds < 5 ? 'just now' : `${span(Math.max(1, coarse(seconds)))} ago`
}

export function until(time, now = Date.now()) {
	const seconds = (new Date(time) - now) / 1000
	return seconds <= 0 ? 'now' : `in ${span(Math.max(1, coarse(seconds)))}`
}

// coarse leaves out what does not matter any more.
function coarse(seconds) {
	const step = seconds > 86400 ? 3600 : seconds > 3600 ? 60 : seconds > 60 ? 60 : 1
	return Math.floor(seconds / step) * step
}

// many writes a number with its noun.
export const many = (n, noun) => `${n} ${noun}${n === 1 ? '' : 's'}`

export const clock = time => new Date(time).toLocaleString([], { dateStyle: 'medium', timeStyle: 'medium' })

// short is the part of an ID by which people tell it apart.
export const short = id => id.length > 16 ? '…' + id.slice(-8) : id
