// Files of a container: a directory, uploads by drop, and a preview of the chosen file.
import { classes, html, useState } from '../../core/view.js'
import { at, get, post, query, remove, send } from '../../core/api.js'
import { bytes, ago } from '../../core/format.js'
import { go, link } from '../../core/router.js'
import { Button, Dialog, Empty, Field, Loading, Problem, notify, useLoaded } from '../../core/ui.js'
import { Icon } from '../../core/icons.js'
import { Preview } from './preview.js'

const most = 1000

const parent = path => path.replace(/\/[^/]*$/, '') || '/'
const base = path => path.replace(/.*\//, '') || '/'
const join = (dir, name) => `${dir === '/' ? '' : dir}/${name}`

// Crumbs are the directories above, as links.
function Crumbs({ container, path }) {
	const parts = path.split('/').filter(Boolean)
	return html`<nav class="crumbs" aria-label="Path"><a href=${link('containers', container, 'files', '/')}>/</a>
		${parts.map((p, i) => html`<a key=${i} href=${link('containers', container, 'files', '/' + parts.slice(0,
			i + 1).join('/'))}>
			${p}</a>`)}</nav>`
}

// upload puts files into a directory, one after the other.
async function upload(container, dir, files, told) {
	for (const file of files) {
		told(`Uploading ${file.name} …`)
		await send('PUT', at('containers', container, 'fs', 'content'), { params: { path: join(dir, file.name) },
			raw: file })
	}
	notify(files.length === 1 ? `Uploaded ${files[0].name}` : `Uploaded ${files.length} files`)
}

export default function Files({ container: c, parts: [asked = '/workspace'] }) {
	const [over, setOver] = useState(false), [busy, setBusy] = useState(''), [asking, ask] = useState(null)
	const { value, error, reload } = useLoaded(async () => {
		const file = asked === '/' ? { type: 'directory', path: '/' } : await get(at('containers', c.id, 'fs', 'stat'),
			{ path: asked })
		const dir = file.type === 'directory' || file.target_type === 'directory' ? asked : parent(asked)
		const page = await get(at('containers', c.id, 'fs', 'list'), { path: dir, limit: most })
		const list = page.data.sort((a, b) => (b.type === 'directory') - (a.type === 'directory')
			|| a.path.localeCompare(b.path))
		return { dir, list, more: page.has_more, chosen: dir === asked ? null : file }
	}, [c.id, asked])
	if (error && !value) return html`<${Problem} error=${error} again=${reload} />`
	if (!value) return html`<${Loading} />`
	const { dir, list, more, chosen } = value
	const put = async files => {
		try {
			if (files.length) await upload(c.id, dir, files, setBusy)
		} catch (err) {
			notify(err.message, 'bad')
		}
		setBusy('')
		reload()
	}
	const drop = e => {
		e.preventDefault()
		setOver(false)
		put([...e.dataTransfer.files])
	}
	return html`<div class="fill">
		<div class="row tools"><${Crumbs} container=${c.id} path=${dir} />
			<label class="button"><${Icon} name="up" /><span>Upload</span><input class="sr" type="file" multiple
				onChange=${e => { put([...e.target.files]); e.target.value = '' }} /></label>
			<${Button} icon="folder" action=${() => ask({ mkdir: true })}>New directory</${Button}>
			<a class="button" href=${query(at('containers', c.id, 'fs', 'tar'), { path: dir })}
				download=${`${base(dir)}.tar`}>
				<${Icon} name="down" /><span>Download all</span></a></div>
		<p role="status" class="dim upload">${busy}</p>
		<div class=${classes('split files', over && 'over')} onDragOver=${e => { e.preventDefault(); setOver(true) }}
			onDragLeave=${() => setOver(false)} onDrop=${drop}>
			<ul class="plain picks tree" aria-label=${`Files in ${dir}`}>
				${dir !== '/' && html`<li><a class="pick" href=${link('containers', c.id, 'files', parent(dir))}>
					<span><${Icon} name="folder" /> ..</span></a></li>`}
				${list.map(f => html`<li key=${f.path}><a class=${classes('pick', chosen?.path === f.path && 'chosen')}
					href=${link('containers', c.id, 'files', join(dir, base(f.path)))}
					aria-current=${chosen?.path === f.path ? 'true' : undefined}>
					<span><${Icon} name=${f.type === 'directory' ? 'folder' : 'file'} /> ${base(f.path)}</span>
					<small>${f.type === 'file' ? bytes(f.size_bytes) : f.target ? `→ ${f.target}` : ''}</small></a>
						</li>`)}
				${!list.length && html`<li class="dim pad">This directory is empty. Drop files here.</li>`}
				${more && html`<li class="dim pad">Only the first ${most} entries are shown.</li>`}</ul>
			${chosen ? html`<section class="details" aria-label="The chosen file">
				<div class="row"><h2>${base(chosen.path)}</h2><span class="dim">
					${bytes(chosen.size_bytes)} · ${chosen.mode}${' · '}
					${chosen.owner || chosen.uid} · ${ago(chosen.modified_at)}</span>
					<a class="button" download=${base(chosen.path)} href=${query(at('containers', c.id, 'fs',
						'content'),
						{ path: chosen.path })}><${Icon} name="down" /><span>Download</span></a>
					<${Button} icon="trash" kind="danger" label=${`Delete ${base(chosen.path)}`}
						action=${() => ask({ remove: chosen })} /></div>
				<${Preview} key=${chosen.path + chosen.modified_at} container=${c.id} file=${chosen} /></section>`
			: html`<${Empty} title="No file chosen">
				<p>Choose a file to see it, or drop files here to upload them to${' '}
				<code>${dir}</code>.</p></${Empty}>`}</div>
		${asking?.mkdir && html`<${Dialog} title="New directory" verb="Make" close=${() => ask(null)}
			submit=${async form => {
			await post(at('containers', c.id, 'fs', 'mkdir'), { path: join(dir, form.get('name')) })
			reload()
		}}><${Field} label="Name"><input name="name" required autocomplete="off" /></${Field}></${Dialog}>`}
		${asking?.remove && html`<${Dialog} title="Delete this file?" verb="Delete" danger close=${() => ask(null)}
			submit=${async () => {
			await remove(at('containers', c.id, 'fs', 'content'), { path: asking.remove.path })
			go('containers', c.id, 'files', dir)
		}}><p><code>${asking.remove.path}</code></p></${Dialog}>`}
	</div>`
}
