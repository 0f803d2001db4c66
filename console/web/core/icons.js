// The icons, as paths of 16 by 16. They are decoration: what they stand for is said in text or a label.
import { html } from './view.js'

const paths = {
	box: 'M2 5l6-3 6 3v6l-6 3-6-3zM2 5l6 3 6-3M8 8v6',
	bell: 'M4 11V7a4 4 0 0 1 8 0v4l1 1H3zM6.5 14h3',
	key: 'M10 6a3 3 0 1 0-2.600 3L5 11.5V14h2.5v-2h2V9.800M11 5h.01',
	host: 'M2 3h12v4H2zM2 9h12v4H2zM4.5 5h.01M4.5 11h.01',
	out: 'M6 3H3v10h3M7 8h7M11 5l3 3-3 3',
	plus: 'M8 3v10M3 8h10',
	trash: 'M3 4h10M6 4V2h4v2M4.5 4l.5 10h6l.5-10M7 7v4M9 7v4',
	play: 'M5 3l8 5-8 5z',
	stop: 'M4 4h8v8H4z',
	pause: 'M5 3v10M11 3v10',
	camera: 'M2 5h3l1-2h4l1 2h3v8H2zM8 7a2 2 0 1 0 0 4 2 2 0 0 0 0-4',
	fork: 'M4 3v4c0 2 8 1 8 4v2M4 7v6M3 2h2M11 14h2M3 14h2',
	copy: 'M5 5h8v8H5zM11 5V3H3v8h2',
	folder: 'M2 4h4l1 2h7v7H2z',
	file: 'M4 2h5l3 3v9H4zM9 2v3h3',
	down: 'M8 2v8M4.5 7L8 10.5 11.5 7M3 13h10',
	up: 'M8 11V3M4.5 6L8 2.5 11.5 6M3 13h10',
	open: 'M9 3h4v4M13 3L7 9M11 9v4H3V5h4',
	back: 'M9.5 3L4.5 8l5 5',
	check: 'M3 8.5l3.5 3.5L13 4.5',
	cross: 'M4 4l8 8M12 4l-8 8',
	globe: 'M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2M2 8h12M8 2c-4 4-4 8 0 12M8 2c4 4 4 8 0 12',
	tool: 'M10 2a3.5 3.5 0 0 0-3 5l-5 5 2 2 5-5a3.5 3.5 0 0 0 5-4l-2 2-2-2 2-2z',
	undo: 'M3 7h6a4 4 0 0 1 0 8M3 7l3-3M3 7l3 3',
}

export const Icon = ({ name }) => html`<svg class="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true"
	fill="none" stroke="currentColor" stroke-width="1.5" stroke-linejoin="round" stroke-linecap="round">
	<path d=${paths[name]} /></svg>`
