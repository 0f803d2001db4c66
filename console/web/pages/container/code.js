// A notebook: cells run in a context, which keeps their variables, and show figures and tables.
import { html, useRef, useState } from '../../core/view.js'
import { at, call, get, post } from '../../core/api.js'
import { span } from '../../core/format.js'
import { Button, Problem, notify, useLoaded } from '../../core/ui.js'
import { Page } from './preview.js'

const languages = ['python', 'js', 'ts', 'r', 'bash']

// pictures are the types of images, best first.
const pictures = ['image/svg+xml', 'image/png', 'image/jpeg']

// Shown is one result, as the richest type that this page can show.
function Shown({ bundle, text }) {
	const picture = pictures.find(t => bundle?.[t])
	if (picture) {
		const data = picture === 'image/svg+xml' ? 'data:image/svg+xml;utf8,' + encodeURIComponent(bundle[picture])
			: `data:${picture};base64,${bundle[picture].replace(/\s/g, '')}`
		return html`<div class="picture"><img src=${data} alt=${bundle['text/plain'] || 'Figure'} /></div>`
	}
	if (bundle?.['text/html']) return html`<${Page} text=${[bundle['text/html']].flat().join('')} name="Table" />`
	return html`<pre class="output">${text ?? JSON.stringify(bundle, null, 2)}</pre>`
}

// plain takes colours of terminals out of a traceback.
const plain = text => text.replace(/\x1b\[[0-9;]*m/g, '')

function Answer({ answer: a }) {
	const out = a.logs.stdout.join(''), err = a.logs.stderr.join('')
	return html`<div class="answer">
		${out && html`<pre class="output">${out}</pre>`}${err && html`<pre class="output stderr">${err}</pre>`}
		${a.results.map((text, i) => html`<${Shown} key=${i} bundle=${a.rich[i]} text=${text} />`)}
		${(a.error || a.error_detail) && html`<pre class="output failed" role="alert">${plain(a.error_detail?.traceback
			|| a.error)}</pre>`}
		${a.notes?.map(n => html`<p key=${n} class="dim">${n}</p>`)}
		<p class="dim">${span(a.duration_ms / 1000)}</p></div>`
}

let numbers = 0
const fresh = () => ({ id: ++numbers, code: '' })

export default function Notebook({ container: c }) {
	const [language, setLanguage] = useState('python'), [cells, setCells] = useState(() => [fresh()])
	const name = `console-${language}`, list = useRef()
	const contexts = useLoaded(async () => (await get(at('containers', c.id, 'contexts'))).data, [c.id, language])
	const change = (id, what) => setCells(all => all.map(x => x.id === id ? { ...x, ...what } : x))
	const run = async cell => {
		change(cell.id, { busy: true, failed: null })
		try {
			const answer = await call('POST', at('containers', c.id, 'contexts', name, 'run'),
				{ body: { code: cell.code, language } })
			change(cell.id, { busy: false, answer, count: answer.execution_count })
			setCells(all => all[all.length - 1].id === cell.id ? [...all, fresh()] : all)
			requestAnimationFrame(() => {
				const fields = [...list.current.querySelectorAll('textarea')]
				fields[cells.findIndex(x => x.id === cell.id) + 1]?.focus()
			})
		} catch (err) {
			change(cell.id, { busy: false, failed: err })
		}
		contexts.reload()
	}
	const known = contexts.value?.some(x => x.name === name), busy = cells.some(x => x.busy)
	return html`<div class="scroll" tabindex="0" role="region" aria-label="Notebook" ref=${list}>
		<div class="row tools"><select aria-label="Language" value=${language}
			onChange=${e => setLanguage(e.target.value)}>
			${languages.map(l => html`<option key=${l}>${l}</option>`)}</select>
			${busy && html`<${Button} icon="stop" action=${() => post(at('containers', c.id, 'contexts', name,
				'interrupt'))}>Interrupt</${Button}>`}
			${known && html`<${Button} icon="undo" action=${async () => {
				await post(at('containers', c.id, 'contexts', name, 'restart'))
				notify('The interpreter starts anew; its variables are gone')
			}}>Restart</${Button}>`}<span class="dim">Shift+Enter runs a cell.</span></div>
		${cells.map(cell => html`<section key=${cell.id} class="card cell" aria-label=${`Cell ${cell.count || ''}`}
			aria-busy=${!!cell.busy}>
			<div class="row"><span class="count mono" aria-hidden="true">[${cell.busy ? '*' : cell.count || ' '}]</span>
				<textarea class="grow mono" aria-label="Code" spellcheck="false" value=${cell.code}
					rows=${Math.min(20, Math.max(2, cell.code.split('\n').length))} onInput=${e => change(cell.id,
						{ code: e.target.value })}
					onKeyDown=${e => { if (e.key === 'Enter'
						&& e.shiftKey) { e.preventDefault(); if (!cell.busy) run(cell) } }}></textarea>
				<${Button} icon="play" label="Run this cell" disabled=${cell.busy} action=${() => run(cell)} /></div>
			${cell.failed && html`<${Problem} error=${cell.failed} />`}${cell.answer && html`<${Answer}
				answer=${cell.answer} />`}
			</section>`)}</div>`
}
