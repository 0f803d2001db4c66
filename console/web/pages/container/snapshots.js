// Snapshots of a container: keep its files, go back to them, or make a copy of it.
import { html, useEffect, useState } from '../../core/view.js'
import { at, get, post, remove } from '../../core/api.js'
import { put } from '../../core/store.js'
import { listen } from '../../core/feed.js'
import { ago, bytes, clock, short } from '../../core/format.js'
import { go } from '../../core/router.js'
import { Button, Dialog, Empty, Field, Loading, Problem, notify, useLoaded } from '../../core/ui.js'

export default function Snapshots({ container: c }) {
	const { value: list, error, reload } = useLoaded(async () => (await get(at('containers', c.id, 'snapshots'))).data,
		[c.id])
	const [asking, ask] = useState(null)
	useEffect(() => listen(e => { if (e.container_id === c.id && e.type.startsWith('snapshot.')) reload() }), [c.id])
	if (error && !list) return html`<${Problem} error=${error} again=${reload} />`
	if (!list) return html`<${Loading} />`
	const copyOf = async s => {
		const made = await post(at('containers'), { snapshot: s.id })
		put(made)
		notify('Made a container of the snapshot')
		go('containers', made.id)
	}
	const sized = list.some(s => s.size_bytes !== undefined)
	const create = html`<${Button} icon="camera" kind="primary"
		action=${() => ask({ make: true })}>Take a snapshot</${Button}>`
	return html`<div class="scroll">
		${list.length > 0 && html`<div class="row tools">${create}</div>`}
		${!list.length ? html`<${Empty} title="No snapshots"><p>A snapshot keeps all files as they are now,
			while commands run. Go back
			to it, or make copies of it.</p>${create}</${Empty}>` : html`<table class="stack"><thead><tr><th
				scope="col">Name</th>
			<th scope="col">Taken</th>${sized && html`<th scope="col" class="num">Size</th>
			<th scope="col" class="num">Its own</th>`}
			<th scope="col"><span class="sr">Actions</span></th></tr></thead><tbody>${list.map(s => html`<tr
				key=${s.id}>
			<td><b>${s.name || short(s.id)}</b></td><td data-label="Taken"><span title=${clock(s.created_at)}>
				${ago(s.created_at)}</span></td>
			${sized && html`<td class="num" data-label="Size">${bytes(s.size_bytes)}</td>
			<td class="num" data-label="Its own">${bytes(s.exclusive_bytes)}</td>`}
			<td><div class="row"><${Button} icon="undo" action=${() => ask({ restore: s })}>Restore</${Button}>
				<${Button} icon="fork" action=${() => copyOf(s)}>Fork</${Button}>
				<${Button} icon="trash" label=${`Delete ${s.name || s.id}`} action=${() => ask({ remove: s })} /></div>
					</td></tr>`)}
			</tbody></table>`}
		${asking?.make && html`<${Dialog} title="Take a snapshot" verb="Take" close=${() => ask(null)}
			submit=${async form => {
			const name = form.get('name').trim()
			await post(at('containers', c.id, 'snapshots'), name ? { name } : {})
			reload()
		}}><${Field} label="Name" hint="Optional."><input name="name" maxlength="63"
			pattern="[0-9A-Za-z][0-9A-Za-z_.\\-]*"
			autocomplete="off" /></${Field}></${Dialog}>`}
		${asking?.restore && html`<${Dialog} title="Go back to this snapshot?" verb="Restore" danger
			close=${() => ask(null)}
			submit=${async () => {
				put(await post(at('containers', c.id, 'restore'), { snapshot: asking.restore.id }))
				notify('Restored')
			}}><p>Processes end, and what was changed since <b>${clock(asking.restore.created_at)}</b> is lost.</p>
				</${Dialog}>`}
		${asking?.remove && html`<${Dialog} title="Delete this snapshot?" verb="Delete" danger close=${() => ask(null)}
			submit=${async () => { await remove(at('snapshots', asking.remove.id)); reload() }}>
			<p><b>${asking.remove.name || asking.remove.id}</b>. Containers that were made of it stay.</p></${Dialog}>`}
	</div>`
}
