// The frame that shows HTML of containers. It has an origin of its own and no network. Scripts and handlers of the
// shown
// text never run: the policy of the frame refuses them. What it refuses is also taken out here, for the look and so
// that
// the browser has nothing to report; no safety depends on that. Styles are set as sheets and properties, which the
// policy
// allows.
const left = 'script, style, link, meta, base, iframe, frame, object, embed, form'
const addresses = /^(src|href|srcset|xlink:href|action|formaction|background|poster|data)$/i
const images = /^data:image\/(png|jpeg|gif|webp)[;,]/i

addEventListener('message', e => {
	if (e.source !== parent || typeof e.data?.html !== 'string') return
	const sheets = []
	const text = e.data.html.replace(/<style[^>]*>([\s\S]*?)<\/style>/gi, (_, css) => {
		const sheet = new CSSStyleSheet()
		sheet.replaceSync(css)
		sheets.push(sheet)
		return ''
	}).replace(/<[a-z][^>]*>/gi, tag => tag.replace(/([\s"'/])(on[a-z]+|style)\s*=/gi, '$1data-shown-$2='))
	const shown = new DOMParser().parseFromString(text, 'text/html')
	for (const el of shown.querySelectorAll(left)) el.remove()
	const styles = []
	for (const el of shown.querySelectorAll('*')) {
		for (const { name, value } of [...el.attributes]) {
			if (name === 'data-shown-style') styles.push([el, value])
			if (addresses.test(name) && !images.test(value)) el.removeAttribute(name)
		}
	}
	document.body.replaceChildren(...document.adoptNode(shown.body).childNodes)
	document.adoptedStyleSheets = sheets
	for (const [el, value] of styles) el.style.cssText = value
})
parent.postMessage('ready', '*')
