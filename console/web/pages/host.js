// The host: what the daemon is and allows, its images, and the gauges of its metrics.
import { html } from '../core/view.js'
import { at, get, send } from '../core/api.js'
import { containers } from '../core/store.js'
import { bytes, clock, span } from '../core/format.js'
import { Loading, Problem, useLoaded } from '../core/ui.js'

// gauges reads the metrics that are one number each: no histograms and no counters of requests.
export function gauges(text) {
	const kinds = new Map(), list = []
	for (const line of text.split('\n')) {
		const kind = /^# TYPE (\S+) (\S+)/.exec(line)
		if (kind) kinds.set(kind[1], kind[2])
		const value = /^(berth_[a-z_]+)(?:\{(.*)\})? (\S+)$/.exec(line)
		if (value && kinds.get(value[1]) === 'gauge') list.push({ name: value[1], labels: value[2]
			|| '', value: Number(value[3]) })
	}
	return list
}

const written = g => g.name.endsWith('_bytes') ? bytes(g.value) : g.name.endsWith('_seconds') && g.value < 1e9
	? span(g.value)
	: g.value.toLocaleString()

// names are gauges in words. Others keep the name of their metric.
const names = { containers: 'Containers', execs_running: 'Running commands', workspaces: 'Workspaces',
	warm_members: 'Prestarted containers' }

// told writes the gauges for people: one line for each metric and image.
function told(metrics, images) {
	const lines = new Map()
	for (const g of metrics) {
		const name = g.name.replace(/^berth_/, '')
		if (name === 'build_info' || g.labels.includes('"expired"')) continue
		const labels = Object.fromEntries([...g.labels.matchAll(/(\w+)="([^"]*)"/g)].map(m => [m[1], m[2]]))
		const { state, image, ...rest } = labels
		const of = image ? images.find(i => i.digest === image)?.name || image.slice(0, 15) : ''
		const title = [names[name] || name.replaceAll('_', ' '), of && `of ${of}`, ...Object.values(rest)]
			.filter(Boolean).join(' ')
		lines.set(title, [...lines.get(title) || [], state ? `${written(g)} ${state}` : written(g)])
	}
	return [...lines].map(([title, values]) => [title, values.join(', ')])
}

const Facts = ({ title, facts }) => html`<section class="card"><h2>${title}</h2><dl class="facts">
	${facts.map(([name, value]) =>
	html`<dt key=${name}>${name}</dt><dd>${value}</dd>`)}</dl></section>`

export default function Host() {
	const { value, error, reload } = useLoaded(async () => {
		const [info, images, metrics] = await Promise.all([get(at('info')), get(at('images')),
			send('GET', '/metrics', { accept: 'text/plain' }).then(r => r.text()).catch(() => '')])
		return { info, images: images.data, metrics: gauges(metrics) }
	}, [])
	if (error) return html`<div class="page"><${Problem} error=${error} again=${reload} /></div>`
	if (!value) return html`<div class="page"><${Loading} /></div>`
	const { info, images, metrics } = value, limits = info.default_limits
	return html`<div class="page"><div class="row head"><h1>Host</h1><p>berth ${info.version}</p></div>
		<div class="cards">
			<${Facts} title="Daemon" facts=${[['Version', info.version], ['Isolation', info.runtime_classes.join(', ')],
				['Network, at most', info.network_max], ['Ports, at most', info.ports_max],
				['Idle timeout', span(info.idle_timeout_seconds)], ['Lifetime', span(info.max_lifetime_seconds)],
				['Largest stored file', bytes(info.max_file_bytes)], ['Your containers', containers().list.length]]} />
			<${Facts} title="Limits of a container" facts=${[['CPUs', limits.cpus],
				['Memory', bytes(limits.memory_bytes)],
				['Processes', limits.pids], ['Disk', bytes(limits.disk_bytes)], ['Open files', limits.open_files]]} />
			${metrics.length > 0 && html`<${Facts} title="Now" facts=${told(metrics, images)} />`}
		</div>
		<h2 class="over">Images</h2>
		${images.length ? html`<div class="scroll" tabindex="0" role="region" aria-label="Images"><table class="stack">
			<thead><tr><th scope="col">Name</th><th scope="col">Digest</th>
			<th scope="col" class="num">Size</th><th scope="col">Made</th></tr></thead><tbody>${images.map(i => html`<tr
				key=${i.name}><td><b>${i.name}</b></td>
			<td><code>${(i.digest || '').slice(0, 19)}</code></td><td class="num" data-label="Size">
				${bytes(i.size_bytes)}</td>
			<td data-label="Made">${i.created_at ? clock(i.created_at) : '–'}</td></tr>`)}</tbody></table></div>`
		: html`<p class="dim">There is no image yet: <code>berth image build base</code></p>`}
		<p class="dim over">What the host lacks: <code>berth doctor</code></p></div>`
}
