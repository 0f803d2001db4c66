// A connection to one command over the live websocket. When the connection breaks it is made again, and the output
// continues where it was; nothing is shown twice.
import { at, socket } from '../../core/api.js'

// header bytes of a binary message: stream, length of the ID, ID, offset
const offsetBytes = 8

export class Connection {
	// command() describes the command to start if exec names none.
	constructor({ container, exec, tail, command, output, state, started, ended }) {
		Object.assign(this, { container, exec, tail, command, output, state, started, ended })
		this.offset = -1
		this.tries = 0
	}

	open() {
		this.state(this.tries ? 'again' : 'connecting')
		const ws = this.ws = socket(at('containers', this.container, 'live'))
		ws.onopen = () => {
			if (!this.exec) {
				this.send({ type: 'exec', ref: 'start', binary: true, cmd: this.command() })
			} else {
				const from = this.offset >= 0 ? { stdout_offset: this.offset } : { tail_bytes: this.tail }
				this.send({ type: 'attach', ref: 'start', binary: true, exec_id: this.exec, ...from })
			}
		}
		ws.onmessage = e => typeof e.data === 'string' ? this.event(JSON.parse(e.data)) : this.bytes(e.data)
		ws.onclose = () => {
			if (this.over || this.ws !== ws) return
			this.state('again')
			this.timer = setTimeout(() => this.open(), Math.min(10_000, 300 * 2 ** this.tries++))
		}
	}

	event(e) {
		switch (e.type) {
		case 'start':
			this.tries = 0
			this.exec = e.exec_id || e.exec.id
			this.state('open')
			this.started(this.exec)
			break
		case 'gap':
			this.offset = e.until
			this.output(new TextEncoder().encode('\r\n[output left out]\r\n'))
			break
		case 'exit':
			this.finish(e.result?.exec.end)
			break
		case 'error':
			if (this.exec && e.error.code !== 'not_found') return
			this.state(e.error.message)
			if (e.ref === 'start') this.finish()
		}
	}

	bytes(data) {
		const view = new DataView(data), id = view.getUint8(1)
		const at = 2 + id, body = new Uint8Array(data, at + offsetBytes)
		if (view.getUint8(0) === 1) this.offset = Number(view.getBigUint64(at)) + body.length
		this.output(body)
	}

	finish(end) {
		this.over = true
		this.ws.close()
		if (end) this.state('ended')
		this.ended(end)
	}

	send(message) {
		if (this.ws?.readyState === WebSocket.OPEN) this.ws.send(JSON.stringify(message))
	}

	input(text) {
		if (this.exec) this.send({ type: 'stdin', exec_id: this.exec, data: text })
	}

	resize(size) {
		if (this.exec) this.send({ type: 'resize', exec_id: this.exec, ...size })
	}

	close() {
		this.over = true
		clearTimeout(this.timer)
		this.ws?.close()
	}
}
