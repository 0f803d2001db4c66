// The list of containers: live states, what they use, a filter; making and deleting one.
import { html, useEffect, useRef, useState } from '../core/view.js'
import { containers, drop, load, put, watch } from '../core/store.js'
import { at, post, remove } from '../core/api.js'
import { ago, bytes, short } from '../core/format.js'
import { go, link } from '../core/router.js'
import { typing } from '../core/keys.js'
import { VirtualTable } from '../core/list.js'
import { Spark, useStats } from '../core/spark.js'
import { Button, Dialog, Empty, Loading, Problem, State, notify, useTick } from '../core/ui.js'
import { Create } from './create.js'

const states = ['running', 'paused', 'stopped', 'creating']

const heads = [{ name: 'Name', css: 'name' }, { name: 'State', css: 'statecell' }, { name: 'Image', css: 'image' },
	{ name: 'CPU', css: 'cpu' }, { name: 'Memory', css: 'memory' }, { name: 'Commands', css: 'execs' },
	{ name: 'Last used', css: 'used' }, { name: 'Actions', css: 'acts', hidden: true }]

// matches reports whether all words of a filter are in what a container is called by.
function matches(c, words) {
	if (!words.length) return true
	const text = [c.name, c.id, c.image, c.runtime_class, ...Object.entries(c.labels).map(l => l.join('='))].join(' ')
		.toLowerCase()
	return words.every(w => text.includes(w))
}

const last = list => list?.[list.length - 1]

function Use({ list, read, most, text }) {
	const values = (list || []).map(read).filter(v => v !== null && v !== undefined)
	if (!values.length) return html`<span class="dim">–</span>`
	return html`<${Spark} values=${values} most=${most} label=${text} /><span class="number">${text}</span>`
}

// Remove asks before it deletes.
export const Remove = ({ container: c, close, done }) => html`<${Dialog} title="Delete this container?" verb="Delete"
	danger close=${close} submit=${async () => {
		await remove(at('containers', c.id))
		drop(c.id)
		notify(`Deleted ${c.name || short(c.id)}`)
		done?.()
	}}><p><strong>${c.name || c.id}</strong> and its files will be gone. ${c.running_execs > 0 &&
		`${c.running_execs} running command${c.running_execs > 1 ? 's' : ''} will end.`}</p></${Dialog}>`

// act changes the state of a container.
export async function act(c, verb) {
	put(await post(at('containers', c.id, verb)))
}

export default function Containers() {
	const [, draw] = useState(0), [filter, setFilter] = useState(''), [state, setState] = useState('')
	const [making, setMaking] = useState(false), [removing, setRemoving] = useState(null),
		[visible, setVisible] = useState([])
	const field = useRef()
	useEffect(() => watch(() => draw(n => n + 1)), [])
	useTick(10)
	useEffect(() => {
		const pressed = e => {
			if (typing(e) || e.ctrlKey || e.metaKey || e.altKey) return
			if (e.key === '/') { e.preventDefault(); field.current.focus() }
			if (e.key === 'n') { e.preventDefault(); setMaking(true) }
		}
		addEventListener('keydown', pressed)
		return () => removeEventListener('keydown', pressed)
	}, [])
	const { list, loaded, failed } = containers()
	const words = filter.toLowerCase().split(/\s+/).filter(Boolean)
	const counts = {}
	for (const c of list) counts[c.state] = (counts[c.state] || 0) + 1
	const chosen = list.filter(c => (!state || c.state === state) && matches(c, words))
		.sort((a, b) => a.created_at < b.created_at ? 1 : -1)
	const live = visible.filter(c => c.state === 'running' || c.state === 'paused').map(c => c.id)
	const stats = useStats(live)
	const row = c => {
		const mine = c.state === 'running' || c.state === 'paused' ? stats.get(c.id) : null, now = last(mine)
		const cpu = now?.cpu.percent
		return [
			html`<a href=${link('containers', c.id)} title=${c.id}>${c.name || short(c.id)}</a>
				${c.name && html`<span class="dim id">${short(c.id)}</span>`}`,
			html`<${State} state=${c.state} />`,
			html`<span title=${c.image}>${c.image}</span>${c.runtime_class !== 'runc' && html`
				<span class="tag">${c.runtime_class}</span>`}`,
			html`<${Use} list=${mine} read=${s => s.cpu.percent} most=${100 * (c.limits.cpus || 1)}
				text=${cpu === null || cpu === undefined ? '–' : `${cpu < 10 ? cpu.toFixed(1)
					: Math.round(cpu)} %`} />`,
			html`<${Use} list=${mine} read=${s => s.memory.used_bytes} most=${c.limits.memory_bytes}
				text=${bytes(now?.memory.used_bytes)} />`,
			c.running_execs || html`<span class="dim">–</span>`,
			html`<span title=${c.last_used_at}>${ago(c.last_used_at)}</span>`,
			html`${c.state === 'stopped' ? html`<${Button} icon="play" label=${`Start ${c.name || c.id}`}
				action=${() => act(c, 'start')} />` : html`<${Button} icon="stop" label=${`Stop ${c.name || c.id}`}
				action=${() => act(c, 'stop')} />`}<${Button} icon="trash" label=${`Delete ${c.name || c.id}`}
				action=${() => setRemoving(c)} />`,
		]
	}
	return html`<div class="page full">
		<div class="row head"><h1>Containers</h1>
			<p class="counts" role="status">${list.length} in all${states.filter(s => counts[s]).map(s =>
				` · ${counts[s]} ${s}`).join('')}</p>
			<${Button} icon="plus" kind="primary" action=${() => setMaking(true)}>New container</${Button}></div>
		<div class="row tools" role="search">
			<input ref=${field} type="search" placeholder="Filter by name, ID, image or label" aria-label="Filter"
				value=${filter} onInput=${e => setFilter(e.target.value)}
				onKeyDown=${e => { if (e.key === 'Escape') { setFilter(''); e.target.blur() } }} />
			<select aria-label="State" value=${state} onChange=${e => setState(e.target.value)}>
				<option value="">All states</option>
				${states.map(s => html`<option key=${s} value=${s}>${s} (${counts[s] || 0})</option>`)}</select>
		</div>
		${failed && html`<${Problem} error=${failed} again=${load} />`}
		${!loaded && !list.length ? html`<${Loading} />` : !list.length && !failed ? html`<${Empty}
			title="No containers yet">
			<p>Make one here, or with <code>berth create</code>. It keeps its files until it is deleted.</p>
			<${Button} icon="plus" kind="primary" action=${() => setMaking(true)}>New container</${Button}></${Empty}>`
		: !chosen.length ? html`<${Empty} title="Nothing matches"><p>No container matches this filter.</p>
			<${Button} action=${() => { setFilter(''); setState('') }}>Show all</${Button}></${Empty}>`
		: html`<${VirtualTable} label="Containers" heads=${heads} items=${chosen} keyOf=${c => c.id} row=${row}
			open=${c => go('containers', c.id)} shown=${setVisible} />`}
		${making && html`<${Create} close=${() => setMaking(false)} />`}
		${removing && html`<${Remove} container=${removing} close=${() => setRemoving(null)} />`}
	</div>`
}
