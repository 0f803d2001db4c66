import { BerthError, ConnectionFailedError, errorOf } from './errors.js'
import { deferred } from './pty.js'
import { Socket } from './socket.js'
import { type CallOptions, type Transport, pause } from './transport.js'

/** A JSON Schema, or just the name of a type: `'string'`. `'string?'` makes the parameter optional. */
export type Parameter = string | Record<string, unknown>

/** What a function gets besides its input. */
export interface ToolCallInfo {
  id: string
  /** The command in the container that made the call. */
  execId: string
  /** Aborted when the caller no longer waits for the result. */
  signal: AbortSignal
}

// eslint-disable-next-line @typescript-eslint/no-explicit-any -- callers know what their own code sends
type Run = (input: any, call: ToolCallInfo) => unknown

/** A function with its description and schemas. It gets the whole input as one object. */
export interface Tool {
  run: Run
  description?: string
  /** A JSON Schema (2020-12) of the input. */
  inputSchema?: Record<string, unknown>
  /** The same in short: parameters by name. Code may give them by position, in this order. */
  parameters?: Record<string, Parameter>
  /** A JSON Schema of the result. */
  outputSchema?: Record<string, unknown>
}

/** How functions are served. */
export interface ServeOptions extends CallOptions {
  /** Maximum milliseconds until the daemon's first answer; default 30,000. */
  timeout?: number
}

// The last answers are kept, since a connection that broke may have lost them: the daemon then repeats the call.
const keptAnswers = 1000
const keptBytes = 32 << 20
const longestResult = 4 << 20 // bytes; the daemon's limit. A much larger message ends the connection.
const longestPause = 5 // seconds between two tries to connect

/** Answers calls of code in a container with local functions, until it is closed. */
export class ToolServer implements AsyncDisposable {
  /** The tools that code may call, without those that the container does not allow. */
  names: string[] = []
  readonly #transport: Transport
  readonly #path: string[]
  readonly #tools: Map<string, Tool>
  readonly #calls = new Map<string, AbortController>()
  readonly #answers = new Map<string, string>()
  #kept = 0 // bytes of #answers
  #socket: Socket | undefined
  #over = false
  readonly #ready = deferred<void>()
  readonly #ended = deferred<void>()

  private constructor (transport: Transport, container: string, tools: Map<string, Tool>) {
    this.#transport = transport
    this.#path = ['containers', container, 'tools']
    this.#tools = tools
    this.#ended.promise.catch(() => {}) // callers may ignore ended
  }

  /** serve connects, and returns when the daemon knows the functions. */
  static async serve (transport: Transport, container: string, tools: Record<string, Tool | Run>,
    options: ServeOptions = {}): Promise<ToolServer> {
    const all = Object.entries(tools).map(([name, t]): [string, Tool] =>
      [name, typeof t === 'function' ? { run: t } : t])
    const server = new ToolServer(transport, container, new Map(all))
    const { timeout = 30_000, signal } = options
    const late = setTimeout(() => {
      server.#end(new ConnectionFailedError({ code: 'unavailable', status: 0,
        message: `${transport.url} did not answer within ${timeout} ms` }))
    }, timeout)
    signal?.throwIfAborted()
    signal?.addEventListener('abort', () => { server.#end(signal.reason) }, { once: true })
    void server.#connect()
    try {
      await server.#ready.promise
    } finally {
      clearTimeout(late)
    }
    return server
  }

  /** Settled when the server has ended: fulfilled if it was closed, rejected if the container is gone. */
  get ended (): Promise<void> { return this.#ended.promise }

  /** close ends the server. Open calls fail, unless another client serves the same tools. */
  async close (): Promise<void> { this.#end() }

  async [Symbol.asyncDispose] (): Promise<void> { this.#end() }

  #end (error?: unknown): void {
    if (this.#over) return
    this.#over = true
    for (const call of this.#calls.values()) call.abort()
    this.#socket?.close()
    if (error === undefined) this.#ended.resolve()
    else this.#ended.reject(error)
    this.#ready.reject(error ?? new BerthError({ code: 'canceled', status: 0, message: 'the server was closed' }))
  }

  async #connect (): Promise<void> {
    for (let wait = 0.1; !this.#over; wait = Math.min(2 * wait, longestPause)) {
      try {
        const socket = await Socket.open(this.#transport, this.#path)
        if (this.#over) return socket.close()
        wait = 0.1
        this.#socket = socket
        await new Promise<void>(resolve => {
          socket.onClose = resolve
          socket.onMessage = data => { this.#take(JSON.parse(data as string)) }
          socket.send({ type: 'serve', tools: [...this.#tools].map(([name, tool]) => spec(name, tool)) })
        })
      } catch (e) {
        const { status = 0 } = e as { status?: number }
        if (status >= 400 && status < 500 && status !== 429) return this.#end(e)
      }
      if (!this.#over) await pause(wait)
    }
  }

  #take (m: { type: string, call_id: string, tool: string, tools?: string[], input?: unknown, exec_id: string,
    error?: { code: string, message: string } }): void {
    if (m.type === 'call') void this.#called(m.call_id, m.tool, m.input, m.exec_id)
    else if (m.type === 'cancel') this.#calls.get(m.call_id)?.abort()
    else if (m.type === 'serving') {
      this.names = m.tools ?? []
      this.#ready.resolve()
    } else if (m.type === 'error' && !m.call_id && this.names.length === 0) {
      this.#end(errorOf({ code: 'internal', message: 'the daemon refused the tools', ...m.error, status: 0 }))
    }
  }

  async #called (id: string, tool: string, input: unknown, execId: string): Promise<void> {
    const known = this.#answers.get(id)
    if (known !== undefined) {
      this.#socket?.send(known)
      return
    }
    if (this.#calls.has(id)) return // the daemon repeats a running call after the connection broke
    const abort = new AbortController()
    this.#calls.set(id, abort)
    const answer = await this.#answer(tool, input, { id, execId, signal: abort.signal })
    this.#calls.delete(id)
    if (abort.signal.aborted) return
    const text = JSON.stringify({ ...answer, call_id: id })
    this.#keep(id, text)
    this.#socket?.send(text)
  }

  #keep (id: string, text: string): void {
    this.#answers.set(id, text)
    this.#kept += text.length
    for (const [oldest, old] of this.#answers) {
      if (this.#answers.size <= keptAnswers && this.#kept <= keptBytes || oldest === id) break
      this.#answers.delete(oldest)
      this.#kept -= old.length
    }
  }

  async #answer (name: string, input: unknown, call: ToolCallInfo): Promise<object> {
    try {
      const tool = this.#tools.get(name)
      if (!tool) return { type: 'error', error: { type: 'NameError', message: `tool ${name} is not served here` } }
      const result = await tool.run(input ?? {}, call)
      const text = JSON.stringify(result ?? null)
      const size = new TextEncoder().encode(text).length
      if (size > longestResult) {
        throw new RangeError(`the result has ${size} bytes; ${longestResult} is the limit; give back less, or put it ` +
          'into a file')
      }
      return { type: 'result', result: JSON.parse(text) as unknown }
    } catch (e) {
      const { name: type = 'Error', message = String(e) } = (e ?? {}) as { name?: unknown, message?: unknown }
      return { type: 'error', error: { type: String(type), message: String(message).slice(0, 10_000) } }
    }
  }
}

/** spec returns a tool's description for the daemon. */
function spec (name: string, tool: Tool): object {
  return {
    name,
    description: tool.description ?? '',
    input_schema: tool.inputSchema ?? (tool.parameters ? schema(tool.parameters) : { type: 'object' }),
    ...tool.outputSchema && { output_schema: tool.outputSchema }
  }
}

function schema (parameters: Record<string, Parameter>): object {
  const required: string[] = []
  const properties: Record<string, unknown> = {}
  for (const [name, of] of Object.entries(parameters)) {
    const optional = typeof of === 'string' && of.endsWith('?')
    if (!optional && !(typeof of === 'object' && 'default' in of)) required.push(name)
    properties[name] = typeof of === 'string' ? { type: optional ? of.slice(0, -1) : of } : of
  }
  return { type: 'object', properties, required, additionalProperties: false }
}

/** Functions of this process that code in a container may call. */
export class Tools {
  readonly #transport: Transport
  readonly #container: string

  constructor (transport: Transport, container: string) {
    this.#transport = transport
    this.#container = container
  }

  /**
   * serve answers calls of code in the container with functions of this process, and returns when code can call them.
   * The container's `codeTools`, set at its creation, must allow the names. If the connection breaks, the server
   * connects again, and answers the calls that were under way; a function is never called twice for one call.
   */
  async serve (tools: Record<string, Tool | Run>, options: ServeOptions = {}): Promise<ToolServer> {
    return ToolServer.serve(this.#transport, this.#container, tools, options)
  }
}
