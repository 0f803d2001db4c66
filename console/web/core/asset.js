// Where the files of the page are. The path has their version, which this module's own address tells.
const root = new URL('../../', import.meta.url).pathname

export const asset = name => root + name

// styled adds a style sheet of a library, once.
export function styled(name) {
	if (document.querySelector(`link[href="${asset(name)}"]`)) return
	const el = document.createElement('link')
	el.rel = 'stylesheet'
	el.href = asset(name)
	document.head.append(el)
}
