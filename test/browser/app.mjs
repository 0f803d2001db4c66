// The application that the browser visits: pages, events, a websocket that echoes, bulk in both directions.
import crypto from 'node:crypto'
import http from 'node:http'

const piece = Buffer.alloc(1 << 20, 7)
const waiting = new Set()

const page = (title, more = '') => `<!doctype html><title>${title}</title><h1 id=title>${title}</h1>
<a id=again href="/">again</a> <a id=blob href="/blob?mib=1024" download="blob.bin">blob</a>${more}`

// blob sends so many MiB, as fast as the client takes them.
function blob(res, mib) {
	res.writeHead(200, { 'Content-Type': 'application/octet-stream', 'Content-Length': mib << 20 })
	const more = () => {
		while (mib-- > 0) {
			if (!res.write(piece)) return res.once('drain', more)
		}
		res.end()
	}
	more()
}

const server = http.createServer((req, res) => {
	const url = new URL(req.url, 'http://app')
	const say = (type, text, headers = {}) => res.writeHead(200, { 'Content-Type': type, ...headers }).end(text)
	switch (url.pathname) {
	case '/blob':
		return blob(res, Number(url.searchParams.get('mib')))
	case '/count': {
		let n = 0
		req.on('data', data => { n += data.length })
		return req.on('end', () => say('text/plain', String(n)))
	}
	case '/echo':
		return say('application/json', JSON.stringify({ method: req.method, url: req.url, headers: req.headers }))
	case '/toss': // cookies for more than this host
		return say('text/html', page('tossed'), { 'Set-Cookie': ['tossed=1; Domain=localhost; Path=/',
			'__Host-berth=1; Path=/; Secure', 'own=1; Path=/'] })
	case '/sw.js':
		return say('text/javascript', 'self.onfetch = e => e.respondWith(new Response("caught"))',
			{ 'Service-Worker-Allowed': '/' })
	case '/events':
		res.writeHead(200, { 'Content-Type': 'text/event-stream' }).write('data: one\n\n')
		waiting.add(res)
		return
	case '/go':
		for (const one of waiting) one.end('data: two\n\n')
		waiting.clear()
		return say('text/plain', 'gone')
	}
	say('text/html', page(process.argv[3] || 'app'))
})

server.on('upgrade', (req, socket) => {
	const accept = crypto.createHash('sha1').update(req.headers['sec-websocket-key'] +
		'258EAFA5-E914-47DA-95CA-C5AB0DC85B11').digest('base64')
	socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n' +
		`Sec-WebSocket-Accept: ${accept}\r\n\r\n`)
	socket.on('error', () => socket.destroy())
	socket.on('data', data => { // one short frame
		const n = data[1] & 127
		const text = Buffer.from(data.subarray(6, 6 + n).map((b, i) => b ^ data[2 + i % 4]))
		socket.write(Buffer.concat([Buffer.from([data[0], n]), text]))
	})
})
server.listen(Number(process.argv[2]), '127.0.0.1')
