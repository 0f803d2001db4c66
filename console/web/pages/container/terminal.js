// Terminals of a container: xterm.js over the live websocket. A terminal is a command that outlives its window: closing
// the page leaves it, and opening the page again attaches to it.
import { html, useEffect, useRef, useState } from '../../core/view.js'
import { at, get, post } from '../../core/api.js'
import { Button, Empty, Loading, Problem, useLoaded } from '../../core/ui.js'
import { ago } from '../../core/format.js'
import { Connection } from './live.js'
import { screen } from './screen.js'

// shell starts bash, or sh in images without it.
const shell = ['sh', '-c', 'command -v bash >/dev/null && exec bash -l; exec sh -l']

// Screen shows one terminal: a running one with that ID, or a new one.
function Screen({ container, exec, started, ended }) {
	const box = useRef(), [state, setState] = useState('connecting')
	useEffect(() => {
		const view = screen(box.current)
		const link = new Connection({
			container: container.id, exec, tail: 256 << 10,
			command: () => ({ argv: shell, detach: true, tty: view.size(), env: { TERM: 'xterm-256color' },
				timeout_seconds: 86400 }),
			output: bytes => view.write(bytes), state: setState,
			started: id => { started(id); link.resize(view.size()) },
			ended: end => {
				view.note(`\r\n[${end ? `ended: ${end.reason} ${end.return_code}` : 'ended'}]\r\n`)
				ended()
			},
		})
		view.onData(text => link.input(text))
		view.onResize(size => link.resize(size))
		link.open()
		view.focus()
		return () => { link.close(); view.dispose() }
	}, [])
	return html`<div class="term"><div class="screen" ref=${box}></div>
		<p class="status" role="status">${{ connecting: 'Connecting …', open: '', ended: 'Ended',
			again: 'The connection broke; connecting again …' }[state] ?? state}</p></div>`
}

export default function Terminals({ container }) {
	const { value, error, reload } = useLoaded(async () => (await get(at('containers', container.id, 'execs'))).data
		.filter(x => x.terminal && x.state === 'running'), [])
	const [open, setOpen] = useState(null)
	useEffect(() => {
		if (value && !open) setOpen(value.length ? { exec: value[value.length - 1].id } : null)
	}, [value])
	if (error) return html`<${Problem} error=${error} again=${reload} />`
	if (!value) return html`<${Loading} />`
	const fresh = () => setOpen({ key: Date.now() })
	return html`<div class="fill">
		${open && html`<div class="row tools"><div class="choices" role="group" aria-label="Terminals">
			${value.map((x, i) => html`
			<button key=${x.id} type="button" class="button" aria-pressed=${open?.exec === x.id
				|| open?.started === x.id}
				onClick=${() => setOpen({ exec: x.id })}>Terminal ${i + 1}
				<span class="dim">${ago(x.started_at)}</span></button>`)}</div>
			<${Button} icon="plus" action=${fresh}>New terminal</${Button}>
			${(open?.exec || open?.started) && html`<${Button} action=${async () => {
				await post(at('containers', container.id, 'execs', open.started || open.exec, 'signal'),
					{ signal: 'HUP' })
			}}>End this one</${Button}>`}</div>`}
		${open ? html`<${Screen} key=${open.key || open.exec} container=${container} exec=${open.exec}
			started=${id => { setOpen(o => ({ ...o, started: id })); reload() }} ended=${reload} />`
		: html`<${Empty} title="No terminal is open"><p>${container.state === 'running'
			? 'A terminal is a shell in the container.'
			: `The container is ${container.state}; a terminal wakes it.`} It goes on when you close this page.</p>
			<${Button} icon="plus" kind="primary" action=${fresh}>Open a terminal</${Button}></${Empty}>`}
	</div>`
}
