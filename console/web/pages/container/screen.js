// A screen of xterm.js. The library puts rules into style elements and attributes, which the page's policy refuses as
// inline styles. Here they become sheets and properties, which are none; the page itself uses neither.
import { Terminal } from '@xterm/xterm'
import { FitAddon } from '@xterm/addon-fit'
import { styled } from '../../core/asset.js'

const dark = { background: '#10141a', foreground: '#e6e9ef', cursor: '#e6e9ef', selectionBackground: '#3a5f8f' }
const light = { background: '#fbfcfd', foreground: '#1b2430', cursor: '#1b2430', selectionBackground: '#b6d3f2',
	black: '#1b2430', red: '#b3261e', green: '#1a6e37', yellow: '#7a5b00', blue: '#0b5cad', magenta: '#8a2b86',
	cyan: '#0b6a75', white: '#5f6b7a', brightBlack: '#5f6b7a', brightRed: '#b3261e', brightGreen: '#1a6e37',
	brightYellow: '#7a5b00', brightBlue: '#0b5cad', brightMagenta: '#8a2b86', brightCyan: '#0b6a75',
	brightWhite: '#1b2430' }

const create = document.createElement, setAttribute = Element.prototype.setAttribute

// A style element is a hidden one without rules: its text becomes a sheet of the document, until it is removed.
document.createElement = function (tag, ...more) {
	if (tag !== 'style') return create.call(this, tag, ...more)
	const el = create.call(this, 'span'), sheet = new CSSStyleSheet()
	el.hidden = true
	document.adoptedStyleSheets.push(sheet)
	Object.defineProperty(el, 'textContent', { get: () => '', set: css => { sheet.replaceSync(css) } })
	el.remove = () => {
		document.adoptedStyleSheets = document.adoptedStyleSheets.filter(s => s !== sheet)
		Element.prototype.remove.call(el)
	}
	return el
}

// A style attribute is set as properties.
Element.prototype.setAttribute = function (name, value) {
	if (name === 'style') this.style.cssText = value
	else setAttribute.call(this, name, value)
}

// screen shows a terminal in an element.
export function screen(box) {
	styled('libs/xterm.css')
	const bright = matchMedia('(prefers-color-scheme: light)')
	const term = new Terminal({
		fontFamily: 'ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace',
		fontSize: 13, scrollback: 10_000, screenReaderMode: false, cursorBlink: true, minimumContrastRatio: 4.5,
		theme: bright.matches ? light : dark, macOptionIsMeta: true,
	})
	const fit = new FitAddon()
	term.loadAddon(fit)
	term.open(box)
	term.textarea?.setAttribute('aria-label', 'Terminal input')
	const change = () => { term.options.theme = bright.matches ? light : dark }
	bright.addEventListener('change', change)
	const seen = new ResizeObserver(() => { if (box.clientWidth) fit.fit() })
	seen.observe(box)
	fit.fit()
	return {
		write: bytes => term.write(bytes),
		note: text => term.write(text),
		size: () => ({ rows: term.rows, cols: term.cols }),
		onData: fn => term.onData(fn),
		onResize: fn => term.onResize(({ rows, cols }) => fn({ rows, cols })),
		focus: () => term.focus(),
		dispose() {
			seen.disconnect()
			bright.removeEventListener('change', change)
			term.dispose()
		},
	}
}
