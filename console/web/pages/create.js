// The form for a new container.
import { html, useState } from '../core/view.js'
import { at, get, post } from '../core/api.js'
import { put } from '../core/store.js'
import { go } from '../core/router.js'
import { Dialog, Field, notify, useLoaded } from '../core/ui.js'

// request makes the request of what the form has. What is empty is the daemon's default.
export function request(form) {
	const text = name => (form.get(name) || '').trim(), req = { labels: {} }
	for (const name of ['name', 'image', 'runtime_class']) if (text(name)) req[name] = text(name)
	const limits = {}
	if (text('cpus')) limits.cpus = Number(text('cpus'))
	if (text('memory')) limits.memory_bytes = Math.round(Number(text('memory')) * 2 ** 20)
	if (Object.keys(limits).length) req.limits = limits
	for (const pair of text('labels').split(/[\s,]+/).filter(Boolean)) {
		const [key, ...value] = pair.split('=')
		req.labels[key] = value.join('=')
	}
	if (text('network') === 'open') req.network = { mode: 'open' }
	if (text('network') === 'allowlist') {
		req.network = { mode: 'allowlist', allow: text('allow').split(/[\s,]+/).filter(Boolean) }
		if (form.get('ask')) req.network.ask = true
	}
	return req
}

export function Create({ close }) {
	const [network, setNetwork] = useState('none')
	const { value } = useLoaded(async () => {
		const [info, images] = await Promise.all([get(at('info')), get(at('images'))])
		return { info, images: images.data }
	}, [])
	const info = value?.info
	const submit = async form => {
		const made = await post(at('containers'), request(form))
		put(made)
		notify(`Created ${made.name || made.id}`)
		go('containers', made.id)
	}
	const most = info?.network_max || 'none'
	return html`<${Dialog} title="New container" verb="Create" close=${close} submit=${submit}>
		<${Field} label="Name" hint="Optional. Usable wherever the ID is.">
			<input name="name" autocomplete="off" maxlength="63" pattern="[0-9A-Za-z][0-9A-Za-z_.\\-]*" /></${Field}>
		<${Field} label="Image"><select name="image">${(value?.images || []).map(i => html`<option key=${i.name}
			selected=${i.name === info.default_image}>${i.name}</option>`)}</select></${Field}>
		${info?.runtime_classes.length > 1 && html`<${Field} label="Isolation"><select name="runtime_class">
			${info.runtime_classes.map(c => html`<option key=${c} selected=${c === info.default_runtime_class}>
				${c}</option>`)}
			</select></${Field}>`}
		<div class="pair"><${Field} label="CPUs"><input name="cpus" type="number" step="any" min="0.01"
			placeholder=${info?.default_limits.cpus} /></${Field}>
		<${Field} label="Memory, MiB"><input name="memory" type="number" min="16"
			placeholder=${info && Math.round(info.default_limits.memory_bytes / 2 ** 20)} /></${Field}></div>
		<${Field} label="Network" hint=${most === 'none' ? 'This daemon gives containers no network.' : ''}>
			<select name="network" value=${network} onChange=${e => setNetwork(e.target.value)}>
			<option value="none">None</option>
			<option value="allowlist" disabled=${most === 'none'}>Listed hosts</option>
			<option value="open" disabled=${most !== 'open'}>Any public host</option></select></${Field}>
		${network === 'allowlist' && html`<${Field} label="Hosts" hint="Such as api.github.com, *.example.com:8443">
			<textarea name="allow" rows="2"></textarea></${Field}>
			<label class="check"><input type="checkbox" name="ask" /> Ask me about other hosts</label>`}
		<${Field} label="Labels" hint="key=value, separated by spaces"><input name="labels" autocomplete="off" />
			</${Field}>
	</${Dialog}>`
}
