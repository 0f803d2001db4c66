// What waits for a person: calls of tools, runs of stored tools, connections to hosts. One click or one key decides.
import { classes, html, useEffect, useState } from '../core/view.js'
import { at, post } from '../core/api.js'
import { find } from '../core/store.js'
import { reload, usePending } from '../core/pending.js'
import { ago, until } from '../core/format.js'
import { link } from '../core/router.js'
import { typing } from '../core/keys.js'
import { Button, Empty, notify, useTick } from '../core/ui.js'
import { Icon } from '../core/icons.js'

const kinds = {
	network: { icon: 'globe', title: 'Connection to', text: a => a.connections > 1 ? `${a.connections} connections wait`
		: '' },
	tool_call: { icon: 'tool', title: 'Call of', text: () => '' },
	tool_run: { icon: 'tool', title: 'Run of', text: () => '' },
}

// decide approves or refuses. Somebody else may have been faster, which the daemon says.
export async function decide(a, verb, scope) {
	await post(at('approvals', a.id, verb), scope ? { for: scope } : {})
	notify(`${verb === 'approve' ? 'Approved' : 'Refused'}: ${a.item}`)
	reload()
}

const input = value => typeof value === 'string' ? value : JSON.stringify(value, null, 2)

// Waiting is one request with its buttons.
export function Waiting({ approval: a, chosen, choose }) {
	const kind = kinds[a.kind] || { icon: 'bell', title: a.kind, text: () => '' }
	const c = a.container_id && find(a.container_id)
	return html`<li class=${classes('card waiting', chosen && 'chosen')} onFocusIn=${choose} onClick=${choose}>
		<div class="what"><h2><${Icon} name=${kind.icon} /> ${kind.title} <code>${a.item}</code></h2>
			<p class="dim">${a.container_id && html`<a href=${link('containers', a.container_id)}>${c?.name
				|| a.container_id}</a> · `}
				asked ${ago(a.created_at)}${a.expires_at && ` · expires ${until(a.expires_at)}`}${kind.text(a)
					&& ` · ${kind.text(a)}`}</p>
			${a.input !== undefined && html`<pre class="input" tabindex="0">${input(a.input)}</pre>`}</div>
		<div class="row">
			<${Button} icon="check" kind="primary" action=${() => decide(a, 'approve')}>${a.kind === 'network'
				? 'Allow once'
				: 'Approve'}</${Button}>
			${a.kind === 'network' && html`<${Button}
				action=${() => decide(a, 'approve', 'life')}>Allow always</${Button}>`}
			<${Button} icon="cross" kind="danger" action=${() => decide(a, 'refuse')}>Refuse</${Button}>
			${a.kind === 'network' && html`<${Button} kind="danger"
				action=${() => decide(a, 'refuse', 'life')}>Refuse always</${Button}>`}
		</div></li>`
}

export default function Approvals() {
	const list = usePending(), [chosen, choose] = useState(null)
	useTick(5)
	const at = Math.max(0, list.findIndex(a => a.id === chosen)), one = list[at]
	useEffect(() => {
		const pressed = e => {
			if (typing(e) || e.ctrlKey || e.metaKey || e.altKey || !one) return
			const step = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[e.key]
			if (step) {
				e.preventDefault()
				choose(list[Math.max(0, Math.min(list.length - 1, at + step))].id)
			}
			if (e.key === 'y' || e.key === 'x') {
				decide(one, e.key === 'y' ? 'approve' : 'refuse').catch(err => { notify(err.message, 'bad'); reload() })
			}
		}
		addEventListener('keydown', pressed)
		return () => removeEventListener('keydown', pressed)
	})
	return html`<div class="page">
		<div class="row head"><h1>Approvals</h1><p role="status">${list.length ? `${list.length} waiting`
			: 'Nothing waits'}</p></div>
		${list.length ? html`<p class="dim"><kbd>y</kbd> approves the
			marked request, <kbd>x</kbd> refuses it, <kbd>j</kbd> and${' '}
			<kbd>k</kbd> move the mark.</p>
			<ul class="plain" aria-label="Waiting requests">${list.map((a, i) => html`<${Waiting} key=${a.id}
				approval=${a}
				chosen=${i === at} choose=${() => choose(a.id)} />`)}</ul>`
		: html`<${Empty} title="Nothing waits for you"><p>Tool calls that need approval, runs of stored tools,
			and connections of
			containers that ask appear here at once.</p></${Empty}>`}
	</div>`
}
