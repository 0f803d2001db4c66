import { type Cmd, type ExecEvent, type ExecResult } from './types.js'
import { Command, CommandResult, workspace } from './command.js'
import { BerthError, ConnectionFailedError, errorOf } from './errors.js'
import { Socket } from './socket.js'
import { type CallOptions, type Transport, pause } from './transport.js'
import { bytesOf, decode, encode, newKey } from './wire.js'

/** What runs in a terminal, and how large it is. */
export interface PtyOptions extends CallOptions {
  /** Text for bash; default: a login shell. */
  command?: string
  /** Program and arguments, in place of `command`. */
  argv?: string[]
  /** Rows and columns, 1 to 65,535; default 24 and 80. */
  rows?: number
  cols?: number
  /** Default: `/workspace`. */
  cwd?: string
  env?: Record<string, string>
  user?: string
  timeoutSeconds?: number
  /** Let it go on when this program ends. Attach to it again with `attach`. */
  detach?: boolean
  /** ID of a command with a terminal that runs already: nothing is started. */
  attach?: string
  /** With `attach`: begin this many bytes before the end of the output so far; default all that is kept. */
  tailBytes?: number
  /** Called with what the terminal shows, as it comes. Without it, iterate over the Pty. */
  onData?: (bytes: Uint8Array) => void
}

/** A terminal in a container. Iterate over it to get what it shows. It survives broken connections. */
export class Pty implements AsyncIterable<Uint8Array>, AsyncDisposable {
  readonly #transport: Transport
  readonly #container: string
  readonly #options: PtyOptions
  readonly #cmd: Cmd
  readonly #queue: Uint8Array[] = []
  #socket: Socket | undefined
  #id = ''
  #offset = 0 // bytes of output that came
  #typed: string[] = [] // messages that wait for a connection
  #size: { rows: number, cols: number }
  #over = false
  #wake = (): void => {}
  readonly #started = deferred<void>()
  readonly #ended = deferred<CommandResult>()

  private constructor (transport: Transport, container: string, options: PtyOptions) {
    const { command, argv, rows = 24, cols = 80, cwd, env, user, timeoutSeconds, detach } = options
    this.#transport = transport
    this.#container = container
    this.#options = options
    this.#size = { rows, cols }
    this.#cmd = encode({ argv: argv ?? (command === undefined ? ['bash', '-l'] : undefined), command,
      cwd: cwd ?? workspace, env, user, timeoutSeconds, detach, tty: { rows, cols },
      idempotencyKey: newKey(transport.retrySeconds),
      reconnectSeconds: detach ? undefined : 30 }) as Cmd
    this.#ended.promise.catch(() => {}) // callers may not wait
    this.#started.promise.catch(() => {})
  }

  /** open starts a command in a terminal, or attaches to one. */
  static async open (transport: Transport, container: string, options: PtyOptions): Promise<Pty> {
    options.signal?.throwIfAborted()
    const pty = new Pty(transport, container, options)
    options.signal?.addEventListener('abort', () => {
      pty.#end(options.signal?.reason)
      void pty.#leave()
    }, { once: true })
    void pty.#serve()
    await pty.#started.promise
    return pty
  }

  /** ID of the command in the API. */
  get id (): string { return this.#id }

  /** write types a text. What is typed while the connection is broken is sent when it is back. */
  write (data: string | Uint8Array): void {
    this.#send(typeof data === 'string'
      ? { type: 'stdin', exec_id: this.#id, data }
      : { type: 'stdin', exec_id: this.#id, data_base64: btoa(String.fromCharCode(...data)) })
  }

  /** resize sets the terminal's size. */
  resize (rows: number, cols: number): void {
    this.#size = { rows, cols }
    this.#send({ type: 'resize', exec_id: this.#id, rows, cols })
  }

  /** wait waits for the end of the command. */
  async wait (): Promise<CommandResult> { return this.#ended.promise }

  /** kill sends a signal to the command, by default SIGKILL. */
  async kill (signal = 'SIGKILL'): Promise<void> {
    await new Command(this.#transport, this.#container, this.#id).kill(signal)
  }

  /** close ends the connection. The command ends too, unless it has `detach` or was attached to. */
  async close (): Promise<void> {
    this.#end(new BerthError({ code: 'canceled', status: 0, message: 'the terminal was closed' }))
    await this.#leave()
  }

  async [Symbol.asyncDispose] (): Promise<void> { await this.close() }

  async * [Symbol.asyncIterator] (): AsyncGenerator<Uint8Array, void, undefined> {
    for (;;) {
      const next = this.#queue.shift()
      if (next !== undefined) yield next
      else if (this.#over) return
      else await new Promise<void>(resolve => { this.#wake = resolve })
    }
  }

  async #leave (): Promise<void> {
    const kept = this.#options.detach ?? this.#options.attach !== undefined
    if (!kept && this.#id !== '') await this.kill().catch(() => {}) // it ends by itself without a client
    this.#socket?.close()
  }

  #send (message: object): void {
    const text = JSON.stringify(message)
    if (!this.#over && !this.#socket?.send(text)) this.#typed.push(text)
  }

  #end (failed?: unknown): void {
    if (this.#over) return
    this.#over = true
    this.#started.reject(failed)
    this.#ended.reject(failed)
    this.#wake()
  }

  // serve keeps a connection until the command is over.
  async #serve (): Promise<void> {
    try {
      for (let attempt = 0; !this.#over; attempt++) {
        const socket = await Socket.open(this.#transport, ['containers', this.#container, 'live'],
          this.#options.signal)
        const before = this.#offset
        await new Promise<void>(resolve => {
          socket.onClose = resolve
          socket.onMessage = data => { this.#take(data) }
          this.#socket = socket
          socket.send(this.#greeting())
          for (const text of this.#typed.splice(0)) socket.send(text)
        })
        if (this.#over) return
        if (this.#offset > before) attempt = 0
        if (attempt > 20) {
          throw new ConnectionFailedError({ code: 'unavailable', status: 0,
            message: 'each connection to the terminal breaks at once; does a proxy in between end websockets?' })
        }
        await pause(Math.min(0.05 * 2 ** attempt, 1))
      }
    } catch (e) {
      this.#end(e)
    }
  }

  #greeting (): object {
    const id = this.#id || this.#options.attach
    if (id === undefined) return { type: 'exec', ref: 'start', cmd: this.#cmd, binary: true }
    const { tailBytes } = this.#options
    const from = this.#id === '' && tailBytes !== undefined
      ? { tail_bytes: tailBytes }
      : { stdout_offset: this.#offset }
    return { type: 'attach', ref: 'start', exec_id: id, binary: true, ...from }
  }

  #take (data: string | Uint8Array): void {
    if (typeof data !== 'string') {
      const head = 2 + (data[1] ?? 0)
      const offset = Number(new DataView(data.buffer, data.byteOffset + head, 8).getBigUint64(0))
      this.#show(offset, data.subarray(head + 8))
      return
    }
    const event = decode<ExecEvent>(JSON.parse(data))
    if (event.type === 'start') {
      const first = this.#id === ''
      this.#id = event.exec?.id ?? event.execId ?? ''
      if (first && this.#options.attach !== undefined) this.resize(this.#size.rows, this.#size.cols)
      this.#started.resolve()
    } else if (event.type === 'stdout') {
      this.#show(event.offset ?? 0, event.dataBase64 === undefined
        ? new TextEncoder().encode(event.data)
        : bytesOf(event.dataBase64))
    } else if (event.type === 'error' && event.ref === 'start') {
      this.#end(errorOf({ code: 'internal', message: '', ...event.error, status: 0 }))
      this.#socket?.close()
    } else if (event.type === 'exit') {
      this.#ended.resolve(new CommandResult(event.result as ExecResult))
      this.#started.resolve()
      this.#end()
      this.#socket?.close()
    }
  }

  #show (offset: number, bytes: Uint8Array): void {
    this.#offset = offset + bytes.length
    if (this.#options.onData) this.#options.onData(bytes)
    else this.#queue.push(bytes)
    this.#wake()
  }
}

interface Deferred<T> { promise: Promise<T>, resolve: (value: T) => void, reject: (reason: unknown) => void }

/** deferred returns a promise with the functions that settle it. */
export function deferred<T> (): Deferred<T> {
  const out = {} as Deferred<T>
  out.promise = new Promise((resolve, reject) => Object.assign(out, { resolve, reject }))
  return out
}
