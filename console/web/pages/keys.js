// API keys: who has one, what it may use and what it has used. An admin makes and revokes keys; others see their own.
import { html, useState } from '../core/view.js'
import { at, get, post, remove } from '../core/api.js'
import { ago, bytes, clock, span, until } from '../core/format.js'
import { Button, Dialog, Field, Loading, Problem, copy, useLoaded } from '../core/ui.js'

// Meter shows use against a bound; without a bound only the use.
const Meter = ({ name, used, most, format = n => n }) => html`<div class="meter"><span>${name}</span>
	<span class="number">${format(used)}${most ? ` of ${format(most)}` : ''}</span>
	${most ? html`<progress max=${most} value=${Math.min(used, most)} aria-label=${name}></progress>` : ''}</div>`

function Use({ id }) {
	const { value: k, error } = useLoaded(() => get(at('keys', id)), [id])
	if (error) return html`<${Problem} error=${error} />`
	if (!k) return html`<${Loading} />`
	return html`<section class="card use"><h2>${k.name || k.id}</h2>
		<${Meter} name="Containers" used=${k.usage.sessions} most=${k.quota.sessions} />
		<${Meter} name="CPU time today" used=${k.usage.cpu_seconds_today} most=${k.quota.cpu_seconds_per_day}
			format=${span} />
		<${Meter} name="Stored files" used=${k.usage.storage_bytes} most=${k.quota.storage_bytes} format=${bytes} />
		${k.usage.owner_disk_bytes !== undefined && html`<${Meter} name="Disk of the owner"
			used=${k.usage.owner_disk_bytes}
			most=${k.usage.owner_disk_limit_bytes} format=${bytes} />`}
		<p class="dim">${k.quota.requests_per_second ? `${k.quota.requests_per_second} requests per second. `
			: ''}CPU time counts anew${' '}
			${until(k.usage.cpu_resets_at)}.</p></section>`
}

const number = (form, name) => form.get(name) ? Number(form.get(name)) : undefined

function Create({ close, made }) {
	return html`<${Dialog} title="New API key" verb="Create" close=${close} submit=${async form => {
		made(await post(at('keys'), { name: form.get('name').trim(), owner: form.get('owner').trim() || undefined,
			admin: !!form.get('admin'), expires_in_seconds: number(form, 'days') && number(form, 'days') * 86400,
			quota: { sessions: number(form, 'sessions'), requests_per_second: number(form, 'rate') } }))
	}}><${Field} label="Name"><input name="name" maxlength="128" autocomplete="off" /></${Field}>
		<${Field} label="Owner" hint="All keys of an owner see the same containers. Empty: yours."><input name="owner"
			maxlength="64"
			pattern="[0-9A-Za-z][0-9A-Za-z._\\-]*" autocomplete="off" /></${Field}>
		<div class="pair"><${Field} label="Containers at once"><input name="sessions" type="number" min="1"
			placeholder="no bound" /></${Field}>
		<${Field} label="Requests per second"><input name="rate" type="number" min="0.001" step="any"
			placeholder="no bound" /></${Field}></div>
		<${Field} label="Ends after days"><input name="days" type="number" min="1" max="3650" placeholder="never" />
			</${Field}>
		<label class="check"><input type="checkbox" name="admin" /> Admin: makes keys and sees the whole daemon</label>
			</${Dialog}>`
}

export default function Keys({ self }) {
	const { value: list, error, reload } = useLoaded(async () => self.admin ? (await get(at('keys'))).data : [], [])
	const [asking, ask] = useState(null), [secret, setSecret] = useState(null), [chosen, choose] = useState('self')
	const valid = (list || []).filter(k => !k.revoked_at)
	return html`<div class="page"><div class="row head"><h1>Keys</h1>${self.admin && html`<p>${valid.length} valid</p>
		<${Button} icon="plus" kind="primary" action=${() => ask({ make: true })}>New key</${Button}>`}</div>
		${secret && html`<section class="card secret" role="status"><h2>The secret of ${secret.name || secret.id}</h2>
			<p>It is shown this once.</p><div class="row"><code>${secret.secret}</code>
			<${Button} icon="copy" action=${() => copy(secret.secret)}>Copy</${Button}>
			<${Button} action=${() => setSecret(null)}>Done</${Button}></div></section>`}
		<${Use} key=${chosen} id=${chosen} />
		${error && html`<${Problem} error=${error} again=${reload} />`}
		${self.admin && valid.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label="Keys"><table
			class="stack"><thead><tr><th scope="col">Name</th><th scope="col">Owner</th>
			<th scope="col">Last used</th><th scope="col">Ends</th><th scope="col"><span class="sr">Actions</span></th>
				</tr></thead><tbody>
			${valid.map(k => html`<tr key=${k.id}><td><b>${k.name || k.id}</b>${k.admin && html`<span
				class="tag">admin</span>`}
				${k.id === self.id && html`<span class="tag">this login</span>`}</td><td data-label="Owner">
					${k.owner}</td>
			<td data-label="Last used">${k.last_used_at ? html`<span title=${clock(k.last_used_at)}>
				${ago(k.last_used_at)}</span>` : 'never'}</td>
			<td data-label="Ends">${k.expires_at ? html`<span title=${clock(k.expires_at)}>
				${until(k.expires_at)}</span>` : 'never'}</td>
			<td><div class="row"><${Button} action=${() => choose(k.id)}>Show use</${Button}>${!k.file
				&& html`<${Button} icon="trash"
				kind="danger" label=${`Revoke ${k.name || k.id}`} action=${() => ask({ revoke: k })} />`}</div></td>
					</tr>`)}
			</tbody></table></div>`}
		${asking?.make && html`<${Create} close=${() => ask(null)} made=${k => { setSecret(k); reload() }} />`}
		${asking?.revoke && html`<${Dialog} title="Revoke this key?" verb="Revoke" danger close=${() => ask(null)}
			submit=${async () => {
			await remove(at('keys', asking.revoke.id))
			reload()
		}}><p><b>${asking.revoke.name || asking.revoke.id}</b> ends at once and for good,
			with its running requests and logins.
			What was made with it stays.</p></${Dialog}>`}
	</div>`
}
