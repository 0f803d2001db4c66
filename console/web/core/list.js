// A table of any length that draws only the rows on the screen. Rows have one height. Arrow keys, j and k move between
// them, and the row that has the focus is never taken away.
import { html, useEffect, useRef, useState } from './view.js'
import { typing } from './keys.js'

// VirtualTable shows items. row returns the cells of one; shown is told which items are on the screen.
export function VirtualTable({ label, heads, items, keyOf, row, open, height = 45, shown }) {
	const box = useRef(), [top, setTop] = useState(0), [room, setRoom] = useState(700),
		[active, setActive] = useState(-1)
	useEffect(() => {
		const measure = () => box.current && setRoom(box.current.clientHeight)
		const seen = new ResizeObserver(measure)
		seen.observe(box.current)
		measure()
		return () => seen.disconnect()
	}, [])
	const first = Math.max(0, Math.floor(top / height) - 4)
	const last = Math.min(items.length, Math.ceil((top + room) / height) + 4)
	const part = items.slice(first, last)
	useEffect(() => { shown?.(part) }, [part.map(keyOf).join()])

	const move = to => {
		const at = Math.max(0, Math.min(items.length - 1, to))
		setActive(at)
		const el = box.current
		if (at * height < el.scrollTop) el.scrollTop = at * height
		else if ((at + 2) * height > el.scrollTop + el.clientHeight) el.scrollTop = (at + 2) * height - el.clientHeight
		requestAnimationFrame(() => requestAnimationFrame(() =>
			el.querySelector(`[data-index="${at}"] a`)?.focus({ preventScroll: true })))
	}
	const keys = e => {
		if (typing(e) || e.ctrlKey || e.metaKey || e.altKey) return
		const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: 10, PageUp: -10, Home: -1e9, End: 1e9 }[e.key]
		if (!step || !items.length) return
		e.preventDefault()
		move(active < 0 && step !== 1e9 ? 0 : active + step)
	}
	useEffect(() => {
		addEventListener('keydown', keys)
		return () => removeEventListener('keydown', keys)
	})
	return html`<div class="table" role="table" aria-label=${label} aria-rowcount=${items.length + 1} ref=${box}
		tabindex="0" onScroll=${e => setTop(e.currentTarget.scrollTop)}>
		<div class="tr head" role="row" aria-rowindex="1">${heads.map(h => html`<div key=${h.name}
			class=${'td ' + h.css}
			role="columnheader">${h.hidden ? html`<span class="sr">${h.name}</span>` : h.name}</div>`)}</div>
		<div role="presentation" style=${{ height: first * height + 'px' }}></div>
		${part.map((item, i) => html`<div key=${keyOf(item)} class="tr" role="row" data-index=${first + i}
			aria-rowindex=${first + i + 2} onFocusIn=${() => setActive(first + i)} onClick=${e => {
				if (!e.target.closest('a, button') && !getSelection().toString()) open(item)
			}}>${row(item).map((cell, n) => html`<div key=${heads[n].name} class=${'td ' + heads[n].css}
				role="cell">${cell}</div>`)}</div>`)}
		<div role="presentation" style=${{ height: (items.length - last) * height + 'px' }}></div>
	</div>`
}
