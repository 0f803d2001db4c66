// One container: its name and state, what can be done to it, and its parts as tabs.
import { html, useEffect, useState } from '../core/view.js'
import { at, call, get, post } from '../core/api.js'
import { find, put, watch } from '../core/store.js'
import { go, link } from '../core/router.js'
import { Button, Dialog, Empty, Field, Loading, Problem, State, copy, notify } from '../core/ui.js'
import { Icon } from '../core/icons.js'
import { Remove, act } from './containers.js'

const tabs = {
	overview: { title: 'Overview', load: () => import('./container/overview.js') },
	terminal: { title: 'Terminal', load: () => import('./container/terminal.js') },
	commands: { title: 'Commands', load: () => import('./container/commands.js') },
	files: { title: 'Files', load: () => import('./container/files.js') },
	jobs: { title: 'Jobs', load: () => import('./container/jobs.js') },
	code: { title: 'Notebook', load: () => import('./container/code.js') },
	ports: { title: 'Ports', load: () => import('./container/ports.js') },
	snapshots: { title: 'Snapshots', load: () => import('./container/snapshots.js') },
	network: { title: 'Network', load: () => import('./container/network.js') },
}

// useContainer returns a container of the store, or reads it. It is given anew whenever it changes.
function useContainer(id) {
	const [state, set] = useState({ container: find(id) })
	useEffect(() => {
		let gone = false
		const look = () => {
			const container = find(id)
			set(old => container ? { container } : old.container ? { gone: true, container: old.container } : old)
		}
		if (!find(id)) {
			get(at('containers', id)).then(c => { if (!gone) { put(c); set({ container: c }) } },
				error => { if (!gone) set({ error }) })
		} else look()
		const leave = watch(look)
		return () => { gone = true; leave() }
	}, [id])
	return state
}

// Tab loads a tab and shows it.
function Tab({ name, container, parts }) {
	const [{ view: View, error }, set] = useState({})
	useEffect(() => {
		tabs[name].load().then(m => set({ view: m.default }), error => set({ error }))
	}, [])
	if (error) return html`<${Problem} error=${error} />`
	if (!View) return html`<${Loading} />`
	return html`<${View} container=${container} parts=${parts} />`
}

export async function fork(c) {
	const made = await post(at('containers', c.id, 'fork'), {})
	made.data.forEach(put)
	notify('Made a copy')
	go('containers', made.data[0].id)
}

const Rename = ({ container: c, close }) => html`<${Dialog} title="Rename" verb="Rename" close=${close}
	submit=${async form => put(await call('PATCH', at('containers', c.id),
		{ body: { name: form.get('name').trim() } }))}>
	<${Field} label="Name" hint="Empty takes the name away."><input name="name" value=${c.name || ''} maxlength="63"
		pattern="[0-9A-Za-z][0-9A-Za-z_.\\-]*" autocomplete="off" /></${Field}></${Dialog}>`

export default function Container({ parts: [id, tab = 'overview', ...rest] }) {
	const { container: c, error, gone } = useContainer(id)
	const [asking, ask] = useState('')
	useEffect(() => { // the tabs scroll where they do not fit
		document.querySelector('.tabs [aria-current]')?.scrollIntoView({ inline: 'center', block: 'nearest' })
	}, [tab, !c])
	if (error?.status === 404) return html`<div class="page"><${Missing} id=${id} /></div>`
	if (error) return html`<div class="page"><${Back} /><${Problem} error=${error} /></div>`
	if (!c) return html`<div class="page"><${Loading} /></div>`
	const name = tabs[tab] ? tab : 'overview'
	const live = !gone && c.state !== 'expired'
	return html`<div class="page full">
		<div class="row head"><${Back} />
			<h1>${c.name || c.id}</h1><${State} state=${gone ? 'deleted' : c.state} />
			<div class="row actions">${live && html`
				${c.state === 'stopped' && html`<${Button} icon="play"
					action=${() => act(c, 'start')}>Start</${Button}>`}
				${c.state === 'paused' && html`<${Button} icon="play"
					action=${() => act(c, 'resume')}>Resume</${Button}>`}
				${c.state === 'running' && html`<${Button} icon="pause"
					action=${() => act(c, 'pause')}>Pause</${Button}>`}
				${c.state !== 'stopped' && html`<${Button} icon="stop" action=${() => act(c, 'stop')}>Stop</${Button}>`}
				<${Button} icon="fork" action=${() => fork(c)}>Fork</${Button}>
				<${Button} action=${() => ask('rename')}>Rename</${Button}>
				<${Button} icon="trash" kind="danger" action=${() => ask('remove')}>Delete</${Button}>`}</div></div>
		<p class="id">${c.name && html`<code>${c.id}</code> `}<${Button} icon="copy" label="Copy the ID"
			action=${() => copy(c.id)} /></p>
		<nav class="tabs" aria-label="Parts of the container"><ul>${Object.entries(tabs).map(([key, t]) => html`<li
			key=${key}>
			<a href=${link('containers', id, key)} aria-current=${key === name ? 'page' : undefined}>${t.title}</a>
				</li>`)}
		</ul></nav>
		${gone ? html`<p class="problem" role="alert">This container was deleted or has expired.</p>`
			: html`<${Tab} key=${id + name} name=${name} container=${c} parts=${rest} />`}
		${asking === 'remove' && html`<${Remove} container=${c} close=${() => ask('')}
			done=${() => go('containers')} />`}
		${asking === 'rename' && html`<${Rename} container=${c} close=${() => ask('')} />`}
	</div>`
}

const Missing = ({ id }) => html`<${Empty} title="This container does not exist">
	<p><code>${id}</code> was deleted, has expired, or is another owner's.</p>
	<a class="button primary" href=${link('containers')}>Show the containers</a></${Empty}>`

const Back = () => html`<a class="button square" href=${link('containers')} aria-label="Back to the containers">
	<${Icon} name="back" /></a>`
