// The page: its frame with the navigation, and which page is shown. Pages are loaded when they are first opened.
import { html, render, useEffect, useState } from './view.js'
import { abandon, at, get, signedOut } from './api.js'
import { begin } from './store.js'
import { start, stop } from './feed.js'
import { Leaving, Login, known, logout, redeem } from './login.js'
import { link, useRoute } from './router.js'
import { Button, Loading, Notices, Problem } from './ui.js'
import { Icon } from './icons.js'
import { usePending } from './pending.js'
import { Help, useKeys } from './keys.js'

const root = document.getElementById('app')

// leave logs out. The page goes first, with its requests: the daemon would cut them off, which the browser reports.
async function leave() {
	stop()
	abandon()
	render(html`<${Leaving} />`, root)
	await logout().catch(() => location.reload())
}

const pages = {
	containers: { title: 'Containers', icon: 'box', load: () => import('../pages/containers.js') },
	container: { load: () => import('../pages/container.js'), under: 'containers' },
	approvals: { title: 'Approvals', icon: 'bell', load: () => import('../pages/approvals.js') },
	keys: { title: 'Keys', icon: 'key', load: () => import('../pages/keys.js') },
	host: { title: 'Host', icon: 'host', load: () => import('../pages/host.js') },
}

// Page loads a page and shows it.
function Page({ name, parts, self }) {
	const [{ view: View, error }, set] = useState({})
	useEffect(() => {
		set({})
		pages[name].load().then(m => set({ view: m.default }), error => set({ error }))
	}, [name])
	if (error) return html`<${Problem} error=${error} />`
	if (!View) return html`<${Loading} />`
	return html`<${View} parts=${parts} self=${self} />`
}

function Shell({ self }) {
	const [first = 'containers', ...rest] = useRoute()
	const pending = usePending()
	const name = first === 'containers' && rest.length ? 'container' : pages[first] ? first : 'containers'
	const here = pages[name].under || name
	const [help, setHelp] = useKeys(here)
	useEffect(() => {
		document.title = `${pending.length ? `(${pending.length}) ` : ''}${pages[here].title} · berth`
	}, [here, pending.length])
	return html`
		<a class="skip" href="#content" onClick=${e => {
			e.preventDefault()
			document.getElementById('content').focus()
		}}>Skip to content</a>
		<header class="top">
			<a class="brand" href=${link('containers')} aria-label="berth, to the containers">
				<span class="mark" aria-hidden="true"></span>berth</a>
			<nav aria-label="Pages"><ul>${Object.entries(pages).filter(([, p]) => p.title).map(([key, p]) => html`
				<li key=${key}><a href=${link(key)} aria-current=${here === key ? 'page' : undefined}>
					<${Icon} name=${p.icon} /><span>${p.title}</span>
					${key === 'approvals' && pending.length > 0 && html`<span class="badge" role="status"
						aria-label=${`${pending.length} waiting`}>${pending.length}</span>`}
				</a></li>`)}</ul></nav>
			<div class="who"><span title=${`Key ${self.name || self.id}`}>${self.owner}${self.admin && html`
				<span class="tag">admin</span>`}</span>
				<${Button} icon="out" label="Log out" action=${leave} /></div>
		</header>
		<main id="content" tabindex="-1"><${Page} key=${name} name=${name} parts=${rest} self=${self} /></main>
		<${Notices} />
		${help && html`<${Help} close=${() => setHelp(false)} />`}`
}

async function boot() {
	const ask = problem => render(html`<${Login} problem=${problem} />`, root)
	let self
	try {
		await redeem()
		if (!await known()) {
			ask()
			return
		}
		self = await get(at('keys', 'self'))
	} catch (err) {
		ask(err.message)
		return
	}
	signedOut.addEventListener('signedout', () => ask('You were logged out, or the API key ended.'), { once: true })
	start(self.owner)
	begin()
	root.textContent = ''
	render(html`<${Shell} self=${self} />`, root)
}

boot()
