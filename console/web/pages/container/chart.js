// Charts over time, by uPlot. Colours are those of the page, in both schemes.
import uPlot from 'uplot'
import { styled } from '../../core/asset.js'

const height = 150

// at writes the times of an axis, with seconds if its marks are less than a minute apart.
const at = (_, list, axis, space, step) => list.map(t => new Date(t * 1000).toLocaleTimeString([],
	{ hour: '2-digit', minute: '2-digit', second: step < 60 ? '2-digit' : undefined, hour12: false }))

// binary are steps between the marks of an axis of bytes.
const binary = Array.from({ length: 45 }, (_, i) => 2 ** i)

// chart makes an empty chart in an element. show gives it data: times in seconds, then the values of each line.
export function chart(box, { lines, most, format, bytes }) {
	styled('libs/uPlot.min.css')
	const bright = matchMedia('(prefers-color-scheme: light)')
	let plot, last = [[], ...lines.map(() => [])]
	const make = () => {
		plot?.destroy()
		const css = getComputedStyle(document.documentElement), color = name => css.getPropertyValue(name).trim()
		const axis = { stroke: color('--dim'), grid: { stroke: color('--line'), width: 1 }, ticks: { show: false },
			font: '11px system-ui, sans-serif' }
		plot = new uPlot({
			width: Math.max(200, box.clientWidth), height, legend: { show: false }, cursor: { show: false },
			padding: [8, 4, 0, 0], scales: { y: { range: (_, low, high) => [0, Math.max(high * 1.15, most / 50,
				1e-9)] } },
			axes: [{ ...axis, size: 26, space: 80, values: at },
				{ ...axis, size: 68, values: (_, list) => list.map(format), ...bytes && { incrs: binary } }],
			series: [{}, ...lines.map((_, i) => ({ stroke: color(i ? '--warn' : '--accent'), width: 1.5,
				fill: i ? undefined : color('--accent-soft'), points: { show: false } }))],
		}, last, box)
	}
	make()
	bright.addEventListener('change', make)
	const seen = new ResizeObserver(() => plot.setSize({ width: Math.max(200, box.clientWidth), height }))
	seen.observe(box)
	return {
		show(data) {
			last = data
			plot.setData(data)
		},
		dispose() {
			seen.disconnect()
			bright.removeEventListener('change', make)
			plot.destroy()
		},
	}
}
