// What a container is, and what it has used in the last hour.
import { html, useEffect, useRef } from '../../core/view.js'
import { at, get } from '../../core/api.js'
import { bytes, clock, span, until } from '../../core/format.js'
import { Problem, useLoaded, useTick } from '../../core/ui.js'
import { chart } from './chart.js'

// Chart draws lines over time and updates them in place.
function Chart({ title, samples, lines, most, format, bytes }) {
	const box = useRef(), plot = useRef()
	const data = [samples.map(s => new Date(s.timestamp) / 1000), ...lines.map(l => samples.map(l.read))]
	useEffect(() => {
		plot.current = chart(box.current, { lines, most, format, bytes })
		return () => plot.current.dispose()
	}, [])
	useEffect(() => { plot.current.show(data) }, [samples.length, samples.at(-1)?.timestamp])
	return html`<figure class="card chart"><figcaption><h2>${title}</h2>${lines.map(l => html`<span key=${l.name}
		class=${'key ' + l.css}>${l.name} <b>${format(samples.length ? l.read(samples.at(-1)) : null)}</b>
			</span>`)}</figcaption>
		<div ref=${box} role="img" aria-label=${title + ' over the last hour'}></div></figure>`
}

const percent = n => n === null || n === undefined ? '–' : `${n < 10 ? n.toFixed(1) : Math.round(n)} %`

const Facts = ({ title, facts }) => html`<section class="card"><h2>${title}</h2><dl class="facts">${facts.filter(f =>
	f[1] !== undefined && f[1] !== '').map(([name, value]) => html`<dt key=${name}>${name}</dt><dd>${value}</dd>`)}</dl>
		</section>`

export default function Overview({ container: c }) {
	const { value, error, reload } = useLoaded(() => get(at('containers', c.id, 'stats')), [c.id])
	useTick(5)
	useEffect(() => {
		const timer = setInterval(() => { if (!document.hidden) reload() }, 5000)
		return () => clearInterval(timer)
	}, [c.id])
	const samples = value ? [...value.data, value.current].filter((s, i, all) => i === 0
		|| s.timestamp > all[i - 1].timestamp)
		: []
	const network = c.network.mode + (c.network.allow?.length ? `: ${c.network.allow.join(', ')}` : '') +
		(c.network.ask ? ', asks about others' : '')
	return html`<div class="scroll" tabindex="0" role="region" aria-label="Overview">
		${error && html`<${Problem} error=${error} again=${reload} />`}
		<div class="cards">
			<${Chart} title="CPU" samples=${samples} most=${100 * (c.limits.cpus || 1)} format=${percent}
				lines=${[{ name: 'of one core', css: 'one', read: s => s.cpu.percent }]} />
			<${Chart} title="Memory" samples=${samples} most=${c.limits.memory_bytes} format=${bytes} bytes
				lines=${[{ name: 'used', css: 'one', read: s => s.memory.used_bytes },
					{ name: 'cache', css: 'two', read: s => s.memory.cache_bytes }]} />
			<${Facts} title="Container" facts=${[['Image', c.image], ['Isolation', c.runtime_class],
				['Network', network],
				['Labels', Object.entries(c.labels).map(([k, v]) => `${k}=${v}`).join(', ')],
				['Secrets', c.secret_names.join(', ')], ['Generation', c.generation], ['Created', clock(c.created_at)],
				['Last used', clock(c.last_used_at)],
				['Next', c.next && html`<span title=${clock(c.next.at)}>${c.next.action} ${c.running_execs
					&& new Date(c.next.at) < Date.now() ? 'once its commands have ended' : until(c.next.at)}</span>`],
				['Removed', html`<span title=${clock(c.max_expires_at)}>${until(c.max_expires_at)}</span>`]]} />
			<${Facts} title="Limits and use" facts=${[['CPUs', c.limits.cpus], ['Memory', bytes(c.limits.memory_bytes)],
				['Processes', `${value?.current.processes ?? '–'} of ${c.limits.pids}`],
				['Workspace', `${bytes(value?.current.disk.workspace_bytes)} of ${bytes(c.limits.disk_bytes)}`],
				['Layer', `${bytes(value?.current.disk.layer_bytes)} of ${bytes(c.limits.disk_bytes)}`],
				['Sent', bytes(value?.current.network.sent_bytes)],
					['Received', bytes(value?.current.network.received_bytes)],
				['Running commands', c.running_execs], ['Idle timeout', span(c.idle_timeout_seconds)]]} />
		</div></div>`
}
