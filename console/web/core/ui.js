// Parts that all pages are made of: buttons, dialogs, notices, empty and failed states.
import { html, classes, useEffect, useRef, useState } from './view.js'
import { Icon } from './icons.js'

// Button runs an action. While a promise of it is open the button is busy, and a failure becomes a notice.
export function Button({ icon, kind, action, label, children, disabled, ...more }) {
	const [busy, setBusy] = useState(false)
	const alive = useRef(true)
	useEffect(() => () => { alive.current = false }, [])
	const run = async e => {
		e.stopPropagation()
		setBusy(true)
		try {
			await action(e)
		} catch (err) {
			notify(err.message, 'bad')
		} finally {
			if (alive.current) setBusy(false)
		}
	}
	return html`<button type="button" class=${classes('button', kind, !children && 'square')} onClick=${run}
		disabled=${busy || disabled} aria-busy=${busy} aria-label=${label} title=${label} ...${more}>
		${icon && html`<${Icon} name=${icon} />`}${children && html`<span>${children}</span>`}</button>`
}

// State shows the state of a container by word and colour.
export const State = ({ state }) => html`<span class=${'state ' + state}>${state}</span>`

// Empty is shown where there is nothing, with what to do about it.
export const Empty = ({ title, children }) => html`<div class="empty"><h2>${title}</h2>${children}</div>`

// Loading is shown until there is something; not at once, so that quick answers do not flicker.
export const Loading = ({ what = 'Loading …' }) => html`<p class="loading" role="status">${what}</p>`

// Problem shows why something is not there.
export const Problem = ({ error, again }) => html`<div class="problem" role="alert">
	<p>${error.message}</p>
	${error.requestID && html`<p class="dim">Request ${error.requestID}</p>`}
	${again && html`<${Button} action=${again}>Try again</${Button}>`}</div>`

// Dialog is a modal window with a form. submit may fail, which the dialog shows.
export function Dialog({ title, verb, danger, close, submit, children }) {
	const box = useRef(), [failed, setFailed] = useState(null), [busy, setBusy] = useState(false)
	useEffect(() => {
		box.current.showModal()
		box.current.querySelector('input:not([type=hidden]), select, textarea, button')?.focus()
	}, [])
	const send = async e => {
		e.preventDefault()
		setBusy(true)
		setFailed(null)
		try {
			await submit(new FormData(e.target))
			close()
		} catch (err) {
			setFailed(err)
			setBusy(false)
		}
	}
	return html`<dialog ref=${box} aria-labelledby="dialog-title" onClose=${close}>
		<form onSubmit=${send}>
			<h2 id="dialog-title">${title}</h2>
			${children}
			${failed && html`<p class="failed" role="alert">${failed.message}</p>`}
			<div class="row end">
				<button type="button" class="button" onClick=${close}>Cancel</button>
				<button class=${classes('button', danger ? 'danger' : 'primary')} disabled=${busy}
					aria-busy=${busy}>${verb}</button>
			</div>
		</form></dialog>`
}

// Field is an input with its label, and a hint below it.
export const Field = ({ label, hint, children }) => html`<label class="field"><span>${label}</span>${children}
	${hint && html`<small>${hint}</small>`}</label>`

// Notices are short messages in a corner. Screen readers read them.
let setNotices, counter = 0
const notices = []

export function notify(text, kind = 'good') {
	const one = { id: ++counter, text, kind }
	notices.push(one)
	setNotices?.([...notices])
	setTimeout(() => drop(one.id), kind === 'bad' ? 12000 : 4000)
}

function drop(id) {
	const i = notices.findIndex(n => n.id === id)
	if (i >= 0) notices.splice(i, 1)
	setNotices?.([...notices])
}

export function Notices() {
	const [list, set] = useState([])
	setNotices = set
	return html`<div class="notices" role="status" aria-live="polite">${list.map(n => html`<div key=${n.id}
		class=${'notice ' + n.kind}><span>${n.text}</span><button type="button" aria-label="Dismiss"
		onClick=${() => drop(n.id)}><${Icon} name="cross" /></button></div>`)}</div>`
}

// copy puts text on the clipboard.
export async function copy(text) {
	await navigator.clipboard.writeText(text)
	notify('Copied')
}

// useLoaded loads something, and again when a key changes or reload is called.
export function useLoaded(load, keys) {
	const [state, set] = useState({}), turn = useRef(0)
	const reload = async () => {
		const mine = ++turn.current
		try {
			const value = await load()
			if (mine === turn.current) set({ value })
		} catch (error) {
			if (mine === turn.current) set(old => ({ ...old, error }))
		}
	}
	useEffect(() => {
		reload()
		return () => { turn.current++ }
	}, keys)
	return { ...state, reload }
}

// useTick draws again every few seconds, for times that pass.
export function useTick(seconds = 10) {
	const [, set] = useState(0)
	useEffect(() => {
		const timer = setInterval(() => set(n => n + 1), seconds * 1000)
		return () => clearInterval(timer)
	}, [seconds])
}
