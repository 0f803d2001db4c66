// Jobs and their manifests as a picture: commands on the left, files on the right, and a line from a command to each
// file
// that it made or changed.
import { classes, html, useEffect, useState } from '../../core/view.js'
import { at, get } from '../../core/api.js'
import { listen } from '../../core/feed.js'
import { ago, bytes, clock, many } from '../../core/format.js'
import { link } from '../../core/router.js'
import { Empty, Loading, Problem, useLoaded } from '../../core/ui.js'

const high = 52, gap = 120, most = 200

// edges are pairs of indexes: command, file.
export function edges(execs, files) {
	const at = new Map(execs.map((x, i) => [x.id, i])), list = []
	files.forEach((f, to) => {
		const makers = new Set(execs.flatMap((x, i) => x.produced?.includes(f.path) ? [i] : []))
		if (at.has(f.exec_id)) makers.add(at.get(f.exec_id))
		for (const from of makers) list.push([from, to])
	})
	return list
}

function Picture({ container, manifest: m }) {
	const [lit, light] = useState(null)
	const files = m.files.slice(0, most), execs = m.execs.slice(-most), lines = edges(execs, files)
	const on = (side, i) => lit && (lit[0] === side ? lit[1] === i : lines.some(l => l[lit[0]] === lit[1]
		&& l[side] === i))
	const y = i => i * high + high / 2 - 3, rows = Math.max(execs.length, files.length)
	if (!rows) return html`<${Empty} title="This job is empty"><p>It has no commands and no files yet.</p></${Empty}>`
	return html`<div class="picture-of-job" style=${{ '--high': high + 'px' }}>
		<ol class="plain" aria-label="Commands">${execs.map((x, i) => html`<li key=${x.id}
			class=${classes('node', on(0, i) && 'lit')}
			onMouseEnter=${() => light([0, i])} onMouseLeave=${() => light(null)}>
			<a href=${link('containers', container, 'commands', x.id)} onFocus=${() => light([0, i])}
				onBlur=${() => light(null)}
				title=${x.command}><code>${x.command}</code></a>
			<small><span class=${x.return_code === 0 ? '' : 'badtext'}>${x.reason === 'exit' ? `exit ${x.return_code}`
				: x.reason}</span>${' · '}
				${ago(x.started_at)}${x.produced?.length ? html`<span class="sr"> made ${x.produced.join(', ')}</span>`
					: ''}</small></li>`)}</ol>
		<svg width="100%" height=${rows * high} viewBox=${`0 0 ${gap} ${rows * high}`} preserveAspectRatio="none"
			aria-hidden="true">${lines.map(([from, to]) => html`<path key=${`${from}-${to}`}
			class=${classes(lit && on(0, from) && on(1, to) && 'lit')}
			d=${`M0 ${y(from)} C ${gap / 2} ${y(from)} ${gap / 2} ${y(to)} ${gap} ${y(to)}`} />`)}</svg>
		<ol class="plain" aria-label="Files">${files.map((f, i) => html`<li key=${f.path}
			class=${classes('node', on(1, i) && 'lit')}
			onMouseEnter=${() => light([1, i])} onMouseLeave=${() => light(null)}>
			<a href=${link('containers', container, 'files', `/workspace/${m.job_id}/${f.path}`)}
				onFocus=${() => light([1, i])}
				onBlur=${() => light(null)}>${f.path}</a>
			<small>${bytes(f.size_bytes)} · ${ago(f.modified_at)}${f.file_id ? ' · published' : ''}</small></li>`)}
		</ol></div>
		${(m.truncated || m.files.length > most) && html`<p class="dim">The job has more than is shown.</p>`}`
}

export default function Jobs({ container: c, parts: [chosen] }) {
	const { value: list, error, reload } = useLoaded(async () => (await get(at('containers', c.id, 'jobs'))).data,
		[c.id])
	const id = chosen || list?.[0]?.job_id
	const one = useLoaded(() => id ? get(at('containers', c.id, 'jobs', id, 'manifest')) : null, [c.id, id])
	useEffect(() => listen(e => {
		if (e.container_id !== c.id || !/^(exec\.ended|files\.)/.test(e.type)) return
		reload()
		one.reload()
	}), [c.id, id])
	if (error && !list) return html`<${Problem} error=${error} again=${reload} />`
	if (!list) return html`<${Loading} />`
	if (!list.length) return html`<${Empty} title="No jobs yet">
		<p>A job is a directory of the workspace. Its manifest says which
		command made which file.</p></${Empty}>`
	return html`<div class="split">
		<ul class="plain picks" aria-label="Jobs">${list.map(j => html`<li key=${j.job_id}><a
			class=${classes('pick', j.job_id === id &&
			'chosen')} href=${link('containers', c.id, 'jobs', j.job_id)} aria-current=${j.job_id === id ? 'true'
				: undefined}>
			<code>${j.job_id}</code><small title=${clock(j.updated_at)}>
				${many(j.files, 'file')}, ${bytes(j.size_bytes)} · ${ago(j.updated_at)}
			</small></a></li>`)}</ul>
		<section class="details scroll" tabindex="0" aria-label="The chosen job">${one.error ? html`<${Problem}
			error=${one.error} again=${one.reload} />`
			: one.value ? html`<${Picture} container=${c.id} manifest=${one.value} />` : html`<${Loading} />`}</section>
				</div>`
}
