// Ports that programs in a container listen on. Opening one makes a signed URL for this browser.
import { html, useEffect } from '../../core/view.js'
import { at, get, post } from '../../core/api.js'
import { listen } from '../../core/feed.js'
import { Button, Empty, Loading, Problem, copy, useLoaded } from '../../core/ui.js'

async function open(c, port) {
	const tab = window.open('about:blank', '_blank') // before the request, or the browser takes it for a pop-up
	try {
		const { url } = await post(at('containers', c.id, 'ports', String(port), 'url'), {})
		if (tab) {
			tab.opener = null
			tab.location = url
		} else location.assign(url)
	} catch (err) {
		tab?.close()
		throw err
	}
}

export default function Ports({ container: c }) {
	const awake = c.state === 'running' || c.state === 'paused'
	const { value: list, error, reload } = useLoaded(async () => awake ? (await get(at('containers', c.id,
		'ports'))).data : [],
		[c.id, c.state])
	useEffect(() => listen(e => { if (e.container_id === c.id && e.type.startsWith('port.')) reload() }), [c.id])
	if (error && !list) return html`<${Problem} error=${error} again=${reload} />`
	if (!list) return html`<${Loading} />`
	if (!list.length) return html`<${Empty} title="No port is open"><p>
		${awake ? `When a program in the container listens, such as
		a web server, its port appears here.` : `The container is ${c.state}, so no program listens.`}</p></${Empty}>`
	return html`<div class="scroll"><table class="stack"><thead><tr><th scope="col">Port</th><th
		scope="col">Address</th>
		<th scope="col">Program</th><th scope="col">URL</th><th scope="col"><span class="sr">Actions</span></th></tr>
			</thead>
		<tbody>${list.map(p => html`<tr key=${p.port + p.address}><td data-label="Port"><b>${p.port}</b></td><td
			data-label="Address">${p.address}</td>
		<td data-label="Program">${p.program || '–'}${p.pid ? html` <span class="dim">${p.pid}</span>` : ''}</td>
		<td>${p.url ? html`<code>${p.url}</code>` : '–'} ${p.public && html`<span class="tag">public</span>`}</td>
		<td><div class="row"><${Button} icon="open" action=${() => open(c, p.port)}>Open</${Button}>
		${p.url && html`<${Button} icon="copy" label=${`Copy the URL of port ${p.port}`}
			action=${() => copy(p.url)} />`}</div>
		</td></tr>`)}</tbody></table></div>`
}
