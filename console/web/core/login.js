// Logging in: the page exchanges the secret of a one-time link for a cookie that no script can read.
import { html } from './view.js'
import { at, call } from './api.js'

// redeem logs in if the address has the secret of a link, which leaves the address and the history.
export async function redeem() {
	const secret = /^#login=([A-Za-z0-9]+)$/.exec(location.hash)?.[1]
	if (!secret) return
	history.replaceState(null, '', location.pathname)
	await call('POST', at('console', 'login'), { body: { secret } })
}

// known reports whether this browser is logged in.
export const known = async () => (await call('GET', at('console', 'login'))).key_id !== ''

export async function logout() {
	await call('DELETE', at('console', 'login'), { last: true })
	location.reload()
}

// Leaving is shown while the browser logs out.
export const Leaving = () => html`<main class="login" role="status">Logging out …</main>`

// Login is what a browser sees that is not logged in.
export function Login({ problem }) {
	return html`<main class="login">
		<h1><span class="mark" aria-hidden="true"></span>berth</h1>
		${problem && html`<p class="failed" role="alert">${problem}</p>`}
		<p>Log in with a one-time link. Run this on a machine that has an API key:</p>
		<pre><code>berth console</code></pre>
		<p class="dim">The link is good for one minute and one browser. You then stay logged in for a week,
			until you log
		out or the key is revoked.</p>
	</main>`
}
