// Previews of files: text, images, tables of CSV, PDF, and HTML in a frame with an origin of its own. The bytes are
// fetched and shown as what they are taken for here, so the daemon never serves a file of a container as a page.
import { html, useEffect, useRef, useState } from '../../core/view.js'
import { at, send } from '../../core/api.js'
import { Loading, Problem, useLoaded } from '../../core/ui.js'
import { bytes } from '../../core/format.js'
import { parseCSV } from './csv.js'

// how much of a file is fetched, by its kind
const mostText = 512 << 10, mostWhole = 32 << 20

const images = { png: 'png', jpg: 'jpeg', jpeg: 'jpeg', gif: 'gif', webp: 'webp', svg: 'svg+xml', bmp: 'bmp',
	ico: 'x-icon' }

export function kindOf(path) {
	const ext = /\.([^./]+)$/.exec(path)?.[1].toLowerCase() || ''
	if (images[ext]) return { kind: 'image', media: 'image/' + images[ext] }
	if (ext === 'pdf') return { kind: 'pdf', media: 'application/pdf' }
	if (ext === 'csv' || ext === 'tsv') return { kind: 'csv', comma: ext === 'tsv' ? '\t' : ',' }
	if (ext === 'html' || ext === 'htm') return { kind: 'html' }
	return { kind: 'text' }
}

// useAddress gives bytes an address that only this page has.
function useAddress(data, media) {
	const [url, set] = useState('')
	useEffect(() => {
		const made = URL.createObjectURL(new Blob([data], { type: media }))
		set(made)
		return () => URL.revokeObjectURL(made)
	}, [data, media])
	return url
}

function Image({ data, media, name }) {
	const url = useAddress(data, media), [bad, setBad] = useState(false)
	if (bad) return html`<p class="dim">This is no image that the browser can show.</p>`
	return url && html`<div class="picture"><img src=${url} alt=${name} onError=${() => setBad(true)} /></div>`
}

function PDF({ data, name }) {
	const url = useAddress(data, 'application/pdf')
	const head = new TextDecoder().decode(data.slice(0, 5))
	if (head !== '%PDF-') return html`<p class="dim">This is no PDF file.</p>`
	return url && html`<iframe class="frame" src=${url} title=${name}></iframe>`
}

export function Table({ rows, cut }) {
	const [head = [], ...rest] = rows, shown = rest.slice(0, 500)
	const numeric = head.map((_, n) => shown.some(row => row[n]) && shown.every(row => !row[n] || !isNaN(row[n])))
	return html`<div class="scroll" tabindex="0" role="region" aria-label="Table"><table class="sheet"><thead><tr>
		${head.map((h, i) => html`
		<th key=${i} scope="col" class=${numeric[i] ? 'num' : ''}>${h}</th>`)}</tr></thead><tbody>
			${shown.map((row, i) => html`<tr key=${i}>
		${head.map((_, n) => html`<td key=${n} class=${numeric[n] ? 'num' : ''}>${row[n]}</td>`)}</tr>`)}
		</tbody></table>${(rest.length > 500 || cut) && html`<p class="dim">Only the first ${shown.length} rows are
		shown.</p>`}</div>`
}

// Page shows HTML in the frame, which has an origin of its own, runs none of its scripts and has no network.
export function Page({ text, name }) {
	const box = useRef()
	useEffect(() => {
		const give = e => {
			if (e.source === box.current?.contentWindow && e.data === 'ready') {
				e.source.postMessage({ html: text }, '*') // the frame has no origin that could be named
			}
		}
		addEventListener('message', give)
		box.current.src = '/console/preview'
		return () => removeEventListener('message', give)
	}, [text])
	return html`<iframe ref=${box} class="frame" sandbox="allow-scripts" title=${name}></iframe>`
}

// Text shows text, or says that it is none.
function Text({ data, size }) {
	const shown = data.slice(0, mostText)
	if (shown.includes(0)) return html`<p class="dim">This is a binary file of ${bytes(size)}; download it.</p>`
	return html`<pre class="output" tabindex="0">${new TextDecoder().decode(shown)}</pre>
		${size > shown.length && html`<p class="dim">Only
			the first ${bytes(shown.length)} of ${bytes(size)} are shown.</p>`}`
}

export function Preview({ container, file }) {
	const { kind, media, comma } = kindOf(file.path), whole = kind === 'image' || kind === 'pdf'
	const { value: data, error, reload } = useLoaded(async () => {
		if (file.type !== 'file' && file.target_type !== 'file') return null
		if (whole && file.size_bytes > mostWhole) return null
		const leave = new AbortController()
		const res = await send('GET', at('containers', container, 'fs', 'content'),
			{ params: { path: file.path }, signal: leave.signal })
		return read(res, whole ? mostWhole : mostText, leave)
	}, [file.path])
	if (error) return html`<${Problem} error=${error} again=${reload} />`
	if (data === undefined) return html`<${Loading} />`
	if (data === null) return html`<p class="dim">There is no preview of this; download it.</p>`
	if (kind === 'image') return html`<${Image} data=${data} media=${media} name=${file.path} />`
	if (kind === 'pdf') return html`<${PDF} data=${data} name=${file.path} />`
	if (kind === 'csv') return html`<${Table} rows=${parseCSV(new TextDecoder().decode(data), comma)}
		cut=${file.size_bytes > data.length} />`
	if (kind === 'html') return html`<${Page} text=${new TextDecoder().decode(data)} name=${file.path} />`
	return html`<${Text} data=${data} size=${file.size_bytes} />`
}

// read reads a body up to a size and leaves the rest.
async function read(res, size, leave) {
	const parts = [], reader = res.body.getReader()
	let n = 0
	for (;;) {
		const { done, value } = await reader.read()
		if (done) break
		parts.push(value)
		if ((n += value.length) >= size) {
			leave.abort()
			break
		}
	}
	const all = new Uint8Array(n)
	let at = 0
	for (const p of parts) {
		all.set(p, at)
		at += p.length
	}
	return all.slice(0, size)
}
