// Keys that work on every page. A page adds its own where they make sense; ? shows all.
import { html, useEffect, useState } from './view.js'
import { go } from './router.js'
import { Dialog } from './ui.js'

// typing reports whether a key belongs to a field or a terminal.
export const typing = e => e.target.closest?.('input, textarea, select, [contenteditable], .xterm, dialog')

const places = { c: 'containers', a: 'approvals', k: 'keys', h: 'host' }

const all = [['g then c, a, k, h', 'Containers, approvals, keys, host'], ['/', 'Filter the list'],
	['n', 'New container'],
	['↑ ↓ or j k', 'Move in a list'], ['Enter', 'Open'], ['y', 'Approve the chosen request'],
	['x', 'Refuse the chosen request'], ['?', 'This help']]

// useKeys moves between pages by g and a letter. It returns whether the help is open.
export function useKeys() {
	const [help, setHelp] = useState(false)
	useEffect(() => {
		let lead = 0
		const pressed = e => {
			if (typing(e) || e.ctrlKey || e.metaKey || e.altKey) return
			if (e.key === '?') setHelp(true)
			else if (e.key === 'g') lead = e.timeStamp
			else if (places[e.key] && e.timeStamp - lead < 1200) {
				lead = 0
				e.stopImmediatePropagation()
				go(places[e.key])
			}
		}
		addEventListener('keydown', pressed, true)
		return () => removeEventListener('keydown', pressed, true)
	}, [])
	return [help, setHelp]
}

export const Help = ({ close }) => html`<${Dialog} title="Keys" verb="Close" close=${close} submit=${() => {}}>
	<dl class="keys">${all.map(([key, what]) => html`<div key=${key}><dt><kbd>${key}</kbd></dt><dd>${what}</dd>
		</div>`)}</dl>
	</${Dialog}>`
