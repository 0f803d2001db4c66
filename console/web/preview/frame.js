// The frame that shows HTML of containers. It has an origin of its own and no network. Scripts and handlers of the shown
// text never run: the policy of the frame refuses them, and they are taken out so that the browser has none to refuse.
// Styles are set one by one, since the policy refuses inline styles, too.
addEventListener('message', e => {
	if (e.source !== parent || typeof e.data?.html !== 'string') return
	const shown = new DOMParser().parseFromString(e.data.html, 'text/html')
	const sheets = [...shown.querySelectorAll('style')].map(el => {
		const sheet = new CSSStyleSheet()
		sheet.replaceSync(el.textContent)
		return sheet
	})
	for (const el of shown.querySelectorAll('script, style, link, meta, base, iframe, frame, object, embed, form')) el.remove()
	const styles = []
	for (const el of shown.querySelectorAll('*')) {
		for (const { name, value } of [...el.attributes]) {
			const address = /^(src|href|srcset|xlink:href|action|formaction|background|poster|data)$/i.test(name)
			if (name === 'style') styles.push([el, value])
			if (/^on/i.test(name) || name === 'style' || address && !/^data:image\/(png|jpeg|gif|webp)[;,]/i.test(value)) {
				el.removeAttribute(name)
			}
		}
	}
	document.body.replaceChildren(...document.adoptNode(shown.body).childNodes)
	document.adoptedStyleSheets = sheets
	for (const [el, value] of styles) el.style.cssText = value
})
parent.postMessage('ready', '*')
