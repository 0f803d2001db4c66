// What a container may reach, what it asks for, and what it tried: a host that was refused can be allowed here.
import { html, useEffect } from '../../core/view.js'
import { at, call, send } from '../../core/api.js'
import { put } from '../../core/store.js'
import { usePending } from '../../core/pending.js'
import { ago, bytes, clock } from '../../core/format.js'
import { Button, Empty, Field, Problem, notify, useLoaded } from '../../core/ui.js'
import { Waiting } from '../approvals.js'

// change gives a container another network.
export async function change(c, network) {
	put(await call('PATCH', at('containers', c.id), { body: { network } }))
	notify('Changed the network')
}

// attempts reads the newest decisions about connections out of the audit log, which an admin's key may read.
async function attempts(id) {
	const res = await send('GET', '/v1/audit', { params: { container: id, act: 'egress.', last: 300 } })
	const list = (await res.text()).split('\n').filter(Boolean).map(line => JSON.parse(line)).filter(e => e.egress)
	return list.filter(e => e.act !== 'egress.begin').reverse()
}

function Attempts({ container: c }) {
	const { value, error, reload } = useLoaded(() => attempts(c.id), [c.id])
	useEffect(() => {
		const timer = setInterval(() => { if (!document.hidden) reload() }, 3000)
		return () => clearInterval(timer)
	}, [c.id])
	if (error?.status === 403) return html`<p class="dim">Only an admin's key reads what the container tried.</p>`
	if (error && !value) return html`<${Problem} error=${error} again=${reload} />`
	if (!value?.length) return html`<${Empty} title="No connections yet">
		<p>Each connection that the container tries is listed here
		with the decision about it.</p></${Empty}>`
	const allowed = c.network.allow || []
	const allow = host => change(c, { ...c.network, mode: 'allowlist', allow: [...allowed, host] })
	return html`<table class="stack"><thead><tr><th scope="col">When</th><th scope="col">Host</th><th
		scope="col">Decision</th>
		<th scope="col" class="num">Sent</th><th scope="col" class="num">Received</th>
		<th scope="col"><span class="sr">Actions</span></th></tr></thead><tbody>${value.map(e => {
			const refused = e.act === 'egress.refuse' || e.outcome !== 'ok'
			const host = e.egress.host + (e.egress.port && ![80, 443].includes(e.egress.port) ? `:${e.egress.port}`
				: '')
			return html`<tr key=${e.seq}><td title=${clock(e.time)}>${ago(e.time)}</td><td><code>${host}</code>${' '}
				<span class="dim">${e.egress.method}</span></td><td><span class=${'state ' + (refused ? 'refused'
					: 'ok')}>
				${refused ? 'refused' : 'allowed'}</span> <span class="dim">${e.note}</span></td>
				<td class="num" data-label="Sent">${refused ? '' : bytes(e.egress.sent_bytes)}</td>
				<td class="num" data-label="Received">${refused ? '' : bytes(e.egress.received_bytes)}</td>
				<td>${refused && e.egress.host && !allowed.includes(host) && html`<${Button} icon="check"
					label=${`Allow ${host}`}
					action=${() => allow(host)}>Allow</${Button}>`}</td></tr>`
		})}</tbody></table>`
}

export default function Network({ container: c }) {
	const waiting = usePending().filter(a => a.container_id === c.id && a.kind === 'network')
	const save = async e => {
		const form = new FormData(e.target.form || e.target.closest('form'))
		const mode = form.get('mode'), hosts = (form.get('allow') || '').split(/[\s,]+/).filter(Boolean)
		await change(c, { mode, ...mode === 'allowlist' && { allow: hosts }, ...form.get('ask') && { ask: true },
			...c.network.deny?.length && { deny: c.network.deny } })
	}
	return html`<div class="scroll" tabindex="0" role="region" aria-label="Network">
		${waiting.length > 0 && html`<ul class="plain" aria-label="Waiting connections">
			${waiting.map(a => html`<${Waiting}
			key=${a.id} approval=${a} choose=${() => {}} />`)}</ul>`}
		<form class="card" onSubmit=${e => e.preventDefault()}><h2>May reach</h2>
			<div class="pair"><${Field} label="Network"><select name="mode" key=${c.network.mode}>
				${['none', 'allowlist', 'open'].map(m =>
				html`<option key=${m} value=${m} selected=${m === c.network.mode}>
					${{ none: 'None', allowlist: 'Listed hosts',
				open: 'Any public host' }[m]}</option>`)}</select></${Field}>
			<${Field} label="Hosts" hint="Separated by spaces"><input name="allow" key=${(c.network.allow || []).join()}
				defaultValue=${(c.network.allow || []).join(' ')} autocomplete="off" /></${Field}></div>
			<label class="check"><input type="checkbox" name="ask"
				defaultChecked=${c.network.ask} /> Ask me about other hosts</label>
			${c.network.deny?.length > 0 && html`<p class="dim">Always refused: ${c.network.deny.join(', ')}</p>`}
			<${Button} kind="primary" action=${save} type="submit">Save</${Button}></form>
		<h2>Decisions</h2><${Attempts} container=${c} /></div>`
}
