// Sparklines: the last minute of what containers use. Only the containers that are on the screen are measured.
import { html, useEffect, useState } from './view.js'
import { at, get } from './api.js'

const kept = 30, most = 100
const samples = new Map()

// useStats measures the containers with these IDs every two seconds while the page is visible.
export function useStats(ids) {
	const [, draw] = useState(0)
	const key = ids.slice(0, most).join()
	useEffect(() => {
		if (!key) return
		const leave = new AbortController()
		let timer
		const measure = async () => {
			if (!document.hidden) {
				try {
					const now = await get(at('stats'), { container: key.split(',') }, leave.signal)
					for (const s of now.data) add(s)
					draw(n => n + 1)
				} catch (err) {
					if (err.name === 'AbortError') return // one that is gone fails all; the list will change
				}
			}
			timer = setTimeout(measure, 2000)
		}
		timer = setTimeout(measure, 100) // not for each step of a scroll
		return () => { leave.abort(); clearTimeout(timer) }
	}, [key])
	return samples
}

function add(s) {
	const list = samples.get(s.container_id) || []
	list.push(s)
	if (list.length > kept) list.shift()
	samples.set(s.container_id, list)
}

// Spark draws values from 0 to most as a line.
export function Spark({ values, most, label }) {
	if (values.length < 2) return html`<svg class="spark" viewBox="0 0 60 18" role="img" aria-label=${label}></svg>`
	const x = i => 60 - (values.length - 1 - i) * (60 / (kept - 1))
	const y = v => 17 - 16 * Math.min(1, v / (most || 1))
	const line = values.map((v, i) => `${x(i).toFixed(1)},${y(v).toFixed(1)}`).join(' ')
	return html`<svg class="spark" viewBox="0 0 60 18" role="img" aria-label=${label} preserveAspectRatio="none">
		<polygon points=${`${x(0).toFixed(1)},18 ${line} 60,18`} /><polyline points=${line} /></svg>`
}
