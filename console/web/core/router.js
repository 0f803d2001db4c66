// The address of a page is behind the number sign, so every page is a link and "back" works.
import { useEffect, useState } from './view.js'

// parse returns the parts of the present address.
const parse = () => location.hash.replace(/^#\/?/, '').split('/').filter(Boolean).map(decode)

function decode(part) {
	try {
		return decodeURIComponent(part)
	} catch {
		return part
	}
}

export const link = (...parts) => '#/' + parts.map(encodeURIComponent).join('/')

export function go(...parts) {
	location.hash = link(...parts)
}

export function useRoute() {
	const [parts, set] = useState(parse)
	useEffect(() => {
		const changed = () => set(parse())
		addEventListener('hashchange', changed)
		return () => removeEventListener('hashchange', changed)
	}, [])
	return parts
}
