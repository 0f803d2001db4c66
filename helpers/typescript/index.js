// The client's end of GET /v1/containers/{id}/tools: a websocket on which the daemon sends calls and gets results.
import WebSocket from 'ws'

const KEPT = 1000 // maximum kept answers to calls whose connection broke, until it is back
const LONGEST_PAUSE = 5000 // ms between two tries to connect
const LONGEST_MESSAGE = 8 << 20 // bytes; inputs are at most 1 MiB
const LONGEST_RESULT = 4 << 20 // bytes; the daemon's limit. A much larger message ends the connection.
const SILENCE = 60_000 // ms without a ping, after which a connection is given up; the daemon pings more often

// spec returns a tool's description for the daemon.
const spec = (name, tool) => ({
  name,
  description: tool.description ?? '',
  input_schema: tool.inputSchema ?? (tool.parameters ? schema(tool.parameters) : { type: 'object' }),
  ...(tool.outputSchema && { output_schema: tool.outputSchema })
})

const schema = parameters => {
  const required = []
  const properties = {}
  for (const [name, of] of Object.entries(parameters)) {
    const optional = typeof of === 'string' && of.endsWith('?')
    if (!optional && !(typeof of === 'object' && 'default' in of)) required.push(name)
    properties[name] = typeof of === 'string' ? { type: optional ? of.slice(0, -1) : of } : of
  }
  return { type: 'object', properties, required, additionalProperties: false }
}

export const serve = async (containerId, tools, {
  baseUrl = process.env.BERTH_HOST, apiKey = process.env.BERTH_API_KEY, timeout = 30_000
} = {}) => {
  if (!/^https?:\/\//.test(baseUrl ?? ''))
    throw new TypeError('baseUrl must be the URL of a daemon, such as http://127.0.0.1:7117; or set BERTH_HOST')
  const all = Object.entries(tools).map(([name, t]) => [name, typeof t === 'function' ? { run: t } : t])
  const server = new Server(
    `${baseUrl.replace(/^http/, 'ws').replace(/\/+$/, '')}/v1/containers/${encodeURIComponent(containerId)}/tools`,
    apiKey ?? '', new Map(all))
  const late = setTimeout(() => server.end(new Error(`${baseUrl} did not answer within ${timeout} ms`)), timeout)
  try {
    await server.begin()
  } finally {
    clearTimeout(late)
  }
  return server
}

class Server {
  names = []
  #url
  #key
  #tools
  #socket
  #over = false
  #calls = new Map() // the AbortController of each running call, by id
  #answers = new Map() // to calls whose connection broke
  #ready = Promise.withResolvers?.() ?? resolvers()
  #ended = Promise.withResolvers?.() ?? resolvers()

  constructor (url, key, tools) {
    [this.#url, this.#key, this.#tools] = [url, key, tools]
    this.#ended.promise.catch(() => {}) // callers may ignore ended
  }

  get ended () { return this.#ended.promise }

  begin () {
    this.#connect(100)
    return this.#ready.promise
  }

  async close () {
    this.end()
  }

  // end ends the connection, with an error or on request.
  end (error) {
    if (this.#over) return
    this.#over = true
    for (const c of this.#calls.values()) c.abort()
    this.#socket?.close()
    if (error) this.#ended.reject(error)
    else this.#ended.resolve()
    this.#ready.reject(error ?? new Error('it was closed'))
  }

  #connect (pause) {
    if (this.#over) return
    const socket = new WebSocket(this.#url, {
      headers: { 'X-Api-Key': this.#key }, maxPayload: LONGEST_MESSAGE, handshakeTimeout: 20_000
    })
    let silence
    const heard = () => {
      clearTimeout(silence)
      silence = setTimeout(() => socket.terminate(), SILENCE)
    }
    this.#socket = socket
    socket.on('unexpected-response', (req, res) => {
      if (res.statusCode >= 500 || res.statusCode === 429) return socket.terminate()
      let text = ''
      res.setEncoding('utf8').on('data', more => { text += more }).on('end', () => {
        this.end(new Error(reason(text) ?? `the daemon answered with status ${res.statusCode}`))
      })
    })
    socket.on('open', () => {
      heard()
      pause = 100
      socket.send(JSON.stringify({ type: 'serve', tools: [...this.#tools].map(([name, tool]) => spec(name, tool)) }))
    })
    socket.on('ping', heard)
    socket.on('message', data => {
      heard()
      this.#take(JSON.parse(data))
    })
    socket.on('error', () => {}) // a close follows
    socket.on('close', () => {
      clearTimeout(silence)
      if (!this.#over) setTimeout(() => this.#connect(Math.min(2 * pause, LONGEST_PAUSE)), pause)
    })
  }

  #take (m) {
    const id = m.call_id
    if (m.type === 'call') this.#called(m)
    else if (m.type === 'cancel') this.#calls.get(id)?.abort()
    else if (m.type === 'serving') {
      this.names = m.tools ?? []
      this.#ready.resolve()
    } else if (m.type === 'error' && !id) {
      if (this.names.length === 0) this.end(new TypeError(m.error?.message))
    }
  }

  async #called ({ call_id: id, tool, input, exec_id: execId }) {
    if (this.#answers.has(id)) {
      const text = this.#answers.get(id)
      this.#answers.delete(id)
      return this.#send(id, text)
    }
    if (this.#calls.has(id)) return // the daemon repeats a running call after the connection broke
    const abort = new AbortController()
    this.#calls.set(id, abort)
    const answer = await this.#answer(tool, input, { id, execId, signal: abort.signal })
    this.#calls.delete(id)
    if (!abort.signal.aborted) this.#send(id, JSON.stringify({ ...answer, call_id: id }))
  }

  async #answer (name, input, call) {
    try {
      const tool = this.#tools.get(name)
      if (!tool) return { type: 'error', error: { type: 'NameError', message: `tool ${name} is not served here` } }
      const result = await tool.run(input ?? {}, call)
      const text = JSON.stringify(result ?? null)
      const size = Buffer.byteLength(text)
      if (size > LONGEST_RESULT)
        throw new RangeError(
          `the result has ${size} bytes; ${LONGEST_RESULT} is the limit; give back less, or put it into a file`)
      return { type: 'result', result: JSON.parse(text) }
    } catch (e) {
      return {
        type: 'error',
        error: { type: String(e?.name ?? 'Error'), message: String(e?.message ?? e).slice(0, 10_000) }
      }
    }
  }

  #send (id, text) {
    const keep = () => {
      this.#answers.set(id, text)
      if (this.#answers.size > KEPT) this.#answers.delete(this.#answers.keys().next().value)
    }
    if (this.#socket?.readyState !== WebSocket.OPEN) return keep()
    this.#socket.send(text, e => { if (e) keep() })
  }
}

const resolvers = () => {
  const out = {}
  out.promise = new Promise((resolve, reject) => Object.assign(out, { resolve, reject }))
  return out
}

// reason returns the daemon's message for a refused connection.
const reason = text => {
  try {
    return JSON.parse(text).error.message
  } catch {}
}
