// Commands of a container: a line to run one, what ran, its output as it comes, and the files that it made.
import { classes, html, useEffect, useRef, useState } from '../../core/view.js'
import { at, get, post } from '../../core/api.js'
import { listen } from '../../core/feed.js'
import { ago, bytes, clock, span } from '../../core/format.js'
import { link } from '../../core/router.js'
import { Button, Empty, Loading, Problem, useLoaded, useTick } from '../../core/ui.js'

// more output than this is not shown; the newest part is
const mostShown = 200_000

export const words = x => x.command || (x.argv || []).join(' ')

// How says how a command ended.
export function How({ exec: x }) {
	if (x.state === 'running') return html`<span class="state running">running</span>`
	const good = x.end?.reason === 'exit' && x.end.return_code === 0
	return html`<span class=${'state ' + (good ? 'ok' : 'failed')}>${x.end?.reason === 'exit'
		? `exit ${x.end.return_code}`
		: x.end?.reason}</span>`
}

// useOutput follows the output of a command from its beginning.
function useOutput(container, id) {
	const [pieces, set] = useState([])
	useEffect(() => {
		let all = [], drawn = false
		const add = (css, text) => {
			const last = all[all.length - 1]
			if (last?.css === css && last.text.length < 20_000) last.text += text
			else all.push({ css, text })
			let size = all.reduce((n, p) => n + p.text.length, 0)
			while (size > mostShown && all.length > 1) size -= all.shift().text.length
			if (drawn) return
			drawn = true
			requestAnimationFrame(() => { drawn = false; set([...all]) })
		}
		set([])
		const source = new EventSource(at('containers', container, 'execs', id, 'events'))
		for (const css of ['stdout', 'stderr']) {
			source.addEventListener(css, e => {
				const { data, data_base64: raw } = JSON.parse(e.data)
				add(css, data ?? new TextDecoder().decode(Uint8Array.from(atob(raw), c => c.charCodeAt(0))))
			})
		}
		source.addEventListener('gap', () => add('gap', '\n[output left out]\n'))
		source.addEventListener('exit', () => source.close())
		source.onerror = () => { if (source.readyState !== EventSource.CONNECTING) source.close() }
		return () => source.close()
	}, [container, id])
	return pieces
}

function Details({ container, exec: x, changed }) {
	const output = useOutput(container.id, x.id), box = useRef(), stick = useRef(true)
	const { value: made } = useLoaded(async () => {
		if (x.state === 'running') return []
		const manifest = await get(at('containers', container.id, 'jobs', x.job_id, 'manifest')).catch(() => null)
		return manifest?.execs.find(e => e.id === x.id)?.produced || []
	}, [x.id, x.state])
	useEffect(() => { if (stick.current) box.current.scrollTop = box.current.scrollHeight }, [output])
	const seconds = ((x.ended_at ? new Date(x.ended_at) : Date.now()) - new Date(x.started_at)) / 1000
	return html`<section class="details" aria-label="The chosen command">
		<div class="row"><${How} exec=${x} /><span class="dim" title=${clock(x.started_at)}>
			${ago(x.started_at)} · ${span(seconds)}${' · '}
			${x.user}${x.end?.peak_memory_bytes ? ` · ${bytes(x.end.peak_memory_bytes)}` : ''}</span>
			${x.state === 'running' && html`<${Button} icon="stop" kind="danger" action=${async () => {
				await post(at('containers', container.id, 'execs', x.id, 'signal'), { signal: 'KILL' })
				changed()
			}}>Kill</${Button}>`}</div>
		<pre class="command">${words(x)}</pre>
		${x.end?.message && html`<p class="dim">${x.end.message}</p>`}
		<pre class="output" ref=${box} tabindex="0" role="log" aria-label="Output" onScroll=${e => {
			const el = e.currentTarget
			stick.current = el.scrollTop + el.clientHeight > el.scrollHeight - 30
		}}>${output.map((p, i) => html`<span key=${i} class=${p.css}>${p.text}</span>`)}${!output.length && html`<span
			class="dim">No output${x.state === 'running' ? ' yet' : ''}</span>`}</pre>
		${made?.length > 0 && html`<p class="dim">Made or changed:</p><ul class="files">${made.map(p => html`<li
			key=${p}>
			<a href=${link('containers', container.id, 'files', `/workspace/${x.job_id}/${p}`)}>${p}</a></li>`)}</ul>`}
	</section>`
}

export default function Commands({ container, parts: [chosen] }) {
	const { value: list, error, reload } = useLoaded(async () => (await get(at('containers', container.id,
		'execs'))).data
		.reverse(), [container.id])
	const [picked, pick] = useState(chosen), [text, setText] = useState('')
	useTick(5)
	useEffect(() => listen(e => {
		if (e.container_id === container.id && e.type.startsWith('exec.')) reload()
	}), [container.id])
	if (error && !list) return html`<${Problem} error=${error} again=${reload} />`
	if (!list) return html`<${Loading} />`
	const run = async e => {
		e?.preventDefault()
		if (!text.trim()) return
		const started = await post(at('containers', container.id, 'exec'), { command: text, background: true })
		setText('')
		pick((started.exec || started).id)
		reload()
	}
	const shown = list.find(x => x.id === picked) || list[0]
	return html`<div class="fill">
		<form class="row tools" onSubmit=${e => e.preventDefault()}>
			<input class="grow mono" aria-label="Command" placeholder="Command for bash" value=${text}
				autocomplete="off"
				spellcheck="false" onInput=${e => setText(e.target.value)} />
			<${Button} icon="play" kind="primary" action=${run} type="submit">Run</${Button}></form>
		${!list.length ? html`<${Empty} title="No commands yet"><p>What runs in this container, by the API or here,
			is listed with
			its output.</p></${Empty}>` : html`<div class="split">
			<ul class="plain picks" aria-label="Commands">${list.map(x => html`<li key=${x.id}><button type="button"
				class=${classes('pick', x === shown && 'chosen')} aria-pressed=${x === shown}
					onClick=${() => pick(x.id)}>
				<code>${words(x)}</code><span class="row"><${How} exec=${x} /><span class="dim">
					${ago(x.started_at)}</span></span>
				</button></li>`)}</ul>
			<${Details} key=${shown.id} container=${container} exec=${shown} changed=${reload} /></div>`}
	</div>`
}
