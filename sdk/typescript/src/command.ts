import { type Cmd, type Exec, type ExecEvent, type ExecResult } from './types.js'
import { type CallOptions, type Transport, resume } from './transport.js'
import { bytesOf, newKey } from './wire.js'

/** How a command runs. */
export interface RunOptions extends CallOptions,
  Omit<Cmd, 'command' | 'argv' | 'background' | 'cwd' | 'tty' | 'reconnectSeconds' | 'stdin'> {
  /** Return a {@link Command} as soon as it has started, instead of its result. It goes on without its client. */
  background?: boolean
  /** All of its standard input, as text. A background command can get more by `command.stdin()`. */
  stdin?: string
  /** Working directory; default `/workspace`, where relative paths of files begin. Not with `jobId` or `shell`. */
  cwd?: string
  /** Throw a {@link CommandFailedError} if it fails. */
  check?: boolean
  /** Called with standard output as it comes. Characters are never divided. */
  onStdout?: ((text: string) => void) | undefined
  /** Called with standard error as it comes. */
  onStderr?: ((text: string) => void) | undefined
  /**
   * How long a foreground command goes on without its client, whose connection broke, in seconds up to 3,600; default
   * 10. A background command always goes on.
   */
  reconnectSeconds?: number
}

/** A piece of a command's output. */
export class Chunk {
  readonly stream: 'stdout' | 'stderr'
  /** Where it begins, in bytes from the start of the stream. */
  readonly offset: number
  /** Bytes of the stream that are missing before it, since the daemon no longer keeps them; usually 0. */
  readonly lost: number
  readonly #event: ExecEvent

  constructor (stream: 'stdout' | 'stderr', event: ExecEvent, lost: number) {
    this.stream = stream
    this.offset = event.offset ?? 0
    this.lost = lost
    this.#event = event
  }

  /** The bytes as the command wrote them. A character of UTF-8 is never divided between two chunks. */
  get data (): Uint8Array<ArrayBuffer> {
    const { data, dataBase64 } = this.#event
    return dataBase64 === undefined ? new TextEncoder().encode(data) : bytesOf(dataBase64)
  }

  /** The same as text; bytes that are not UTF-8 become U+FFFD. */
  get text (): string {
    return this.#event.dataBase64 === undefined ? this.#event.data ?? '' : new TextDecoder().decode(this.data)
  }
}

/** A stored file, made of one that was in `$OUTPUT_DIR`. `client.files.download` gets its content. */
export interface OutputFile { fileId: string }

/** Thrown by `check` for a command that failed. */
export class CommandFailedError extends Error {
  override name = 'CommandFailedError'
  constructor (readonly result: CommandResult) {
    const what = result.reason === 'exit' ? `with the code ${result.returnCode}` : `by ${result.reason}`
    const last = result.stderr.trim().split('\n').pop() ?? ''
    super([`the command ended ${what}`, result.message, last].filter(Boolean).join(': '))
  }
}

/** How a command ended, and what it wrote. */
export class CommandResult {
  /** Standard output: at most `maxOutputBytes` of it, head and tail. */
  readonly stdout: string
  /** Standard error, likewise. */
  readonly stderr: string
  /** The command's code, 128+n for signal n, or -1 if unknown. */
  readonly returnCode: number
  /** Why it ended: `exit`, `signal`, `timeout`, `out_of_memory` and others; docs/api.md lists all. */
  readonly reason: string
  /** One sentence on the end, if the reason does not say everything; else `''`. */
  readonly message: string
  /** Set if the command did not run to its end, such as `execution_time_exceeded`; else `''`. */
  readonly errorCode: string
  /** Stored files, made of the files in `$OUTPUT_DIR`, in the order of their paths there. */
  readonly files: OutputFile[]
  /** What else to know, such as hosts that were refused. */
  readonly notes: string[]
  /** Everything that the API says about the command. */
  readonly exec: Exec

  constructor (answer: ExecResult) {
    const { result, partial, exec } = answer
    const output = 'stdout' in result ? result : partial ?? { stdout: '', stderr: '' }
    this.stdout = output.stdout
    this.stderr = output.stderr
    this.returnCode = exec.end?.returnCode ?? -1
    this.reason = exec.end?.reason ?? 'lost'
    this.message = exec.end?.message ?? ''
    this.errorCode = 'errorCode' in result ? result.errorCode : ''
    this.files = 'content' in result ? result.content.map(({ fileId }) => ({ fileId })) : []
    this.notes = answer.notes ?? []
    this.exec = exec
  }

  /** Whether it ended by itself with the code 0. */
  get ok (): boolean { return this.reason === 'exit' && this.returnCode === 0 }

  /** check returns the result, or throws a {@link CommandFailedError} if it is not ok. */
  check (): this {
    if (!this.ok) throw new CommandFailedError(this)
    return this
  }

  /** `stderr`, and for a command that failed, lines with what berth knows of it: a limit or a refused host. */
  get explainedStderr (): string {
    const why = this.ok ? [] : [this.message, ...this.notes].filter(Boolean)
    const start = why.length > 0 && this.stderr !== '' && !this.stderr.endsWith('\n') ? '\n' : ''
    return this.stderr + start + why.map(line => `berth: ${line}\n`).join('')
  }

  /** Some of the output was left out of `stdout` or `stderr`. */
  get truncated (): boolean { return this.exec.truncated }
}

/** The directory where commands and code begin, and relative paths of files. */
export const workspace = '/workspace'

const waitSeconds = 30 // of one request that waits for an end; proxies end requests that are silent for longer

/** A command that runs, or has run, in a container. Iterate over it to get its output from the beginning, live. */
export class Command implements AsyncIterable<Chunk> {
  /** ID of the command in the API. */
  readonly id: string
  readonly #transport: Transport
  readonly #container: string
  readonly #signal: AbortSignal | undefined

  constructor (transport: Transport, container: string, id: string, signal?: AbortSignal) {
    this.#transport = transport
    this.#container = container
    this.id = id
    this.#signal = signal
  }

  #path (...more: string[]): string[] { return ['containers', this.#container, 'execs', this.id, ...more] }

  /** info describes the command as it is now. */
  async info (options: CallOptions = {}): Promise<Exec> {
    return this.#transport.json({ path: this.#path(), ...options })
  }

  /**
   * wait waits for the command's end. There is no time limit: use a signal, or the command's own `timeoutSeconds`. The
   * wait goes on over a restart of the daemon.
   */
  async wait (options: CallOptions = {}): Promise<CommandResult> {
    for (;;) {
      const { status, value } = await this.#transport.jsonStatus<ExecResult>({ path: this.#path('result'),
        query: { wait_seconds: waitSeconds }, signal: options.signal ?? this.#signal })
      if (status !== 202) return new CommandResult(value)
    }
  }

  /** stdin writes to the command's standard input, which `openStdin` keeps open, and returns once it was read. */
  async stdin (data: string | Uint8Array, options: CallOptions & { close?: boolean } = {}): Promise<void> {
    await this.#transport.json({ method: 'POST', path: this.#path('stdin'), query: { close: options.close },
      raw: data as BodyInit, signal: options.signal })
  }

  /** closeStdin closes its standard input. */
  async closeStdin (options: CallOptions = {}): Promise<void> { await this.stdin('', { ...options, close: true }) }

  /** kill sends a signal, by default SIGKILL, to the command and all its processes. */
  async kill (signal = 'SIGKILL', options: CallOptions = {}): Promise<void> {
    await this.#transport.json({ method: 'POST', path: this.#path('signal'), body: { signal }, ...options })
  }

  /** output returns what it has written so far, as far as that is kept. */
  async output (options: CallOptions = {}): Promise<{ stdout: string, stderr: string }> {
    const [stdout, stderr] = await Promise.all(['stdout', 'stderr'].map(async stream =>
      new TextDecoder().decode(await this.#transport.bytes({ path: this.#path('logs'), query: { stream },
        ...options }))))
    return { stdout: stdout!, stderr: stderr! }
  }

  /**
   * stream returns the bytes of one stream from its beginning to the command's end, for code that takes a web stream.
   * It is read when its reader asks. If the daemon no longer keeps bytes that were not read yet, reading fails.
   */
  stream (name: 'stdout' | 'stderr'): ReadableStream<Uint8Array<ArrayBuffer>> {
    const left = new AbortController()
    const signal = this.#signal ? AbortSignal.any([this.#signal, left.signal]) : left.signal
    const chunks = this.#chunks(signal)
    return new ReadableStream({
      async pull (controller) {
        for (;;) {
          const { done, value } = await chunks.next()
          if (done) return controller.close()
          if (value.stream !== name) continue
          if (value.lost > 0) {
            throw new Error(`${value.lost} bytes of ${name} are lost, since they were read too late; read the ` +
              "output while the command runs, or start it with onOutputLimit: 'wait'")
          }
          return controller.enqueue(value.data)
        }
      },
      cancel () { left.abort() }
    }, { highWaterMark: 0 })
  }

  /** [Symbol.asyncIterator] follows the output from its beginning to the command's end. */
  [Symbol.asyncIterator] (): AsyncGenerator<Chunk, void, undefined> { return this.#chunks(this.#signal) }

  async * #chunks (signal: AbortSignal | undefined): AsyncGenerator<Chunk, void, undefined> {
    let lost = 0
    for await (const event of follow(this.#transport, this.#container, this.id, undefined, signal)) {
      if (event.type === 'gap') lost = (event.until ?? 0) - (event.offset ?? 0)
      else if (event.type === 'stdout' || event.type === 'stderr') {
        yield new Chunk(event.type, event, lost)
        lost = 0
      }
    }
  }
}

/**
 * follow yields the events of a command to its exit, without a gap or repetition where the connection breaks. It begins
 * the command with `start` if there is no ID yet; an idempotency key makes it safe to send that again.
 */
async function * follow (transport: Transport, container: string, id: string | undefined, start: Cmd | undefined,
  signal: AbortSignal | undefined): AsyncGenerator<ExecEvent, void, undefined> {
  let last = ''
  const open = async (): Promise<AsyncIterable<{ id: string, event: ExecEvent }>> => {
    if (id === undefined) {
      return transport.stream<ExecEvent>({ method: 'POST', path: ['containers', container, 'exec'], body: start,
        repeat: true, signal })
    }
    return transport.stream<ExecEvent>({ path: ['containers', container, 'execs', id, 'events'], signal,
      headers: last === '' ? {} : { 'Last-Event-ID': last } })
  }
  for await (const { id: position, event } of resume(signal, open)) {
    last = position
    id ??= event.exec?.id ?? event.execId
    yield event
    if (event.type === 'exit') return
  }
}

const startMost = 2000 // ms that an aborted run waits for the ID of its command

/** runCommand runs a command in the foreground. It ends the command if the signal aborts. */
export async function runCommand (transport: Transport, container: string, command: string | readonly string[],
  options: RunOptions): Promise<CommandResult> {
  const { signal, onStdout, onStderr, cmd } = split(command, options)
  const start: Cmd = { ...cmd, idempotencyKey: cmd.idempotencyKey ?? newKey(transport.retrySeconds) }
  if (!cmd.detach) start.reconnectSeconds = options.reconnectSeconds ?? 10
  signal?.throwIfAborted()
  // An abort before the first event must not end the connection at once: the command has no ID yet to kill it by.
  const connection = new AbortController()
  let id: string | undefined
  let ended = false
  const abort = (): void => {
    if (id !== undefined || cmd.detach) connection.abort(signal?.reason)
    else setTimeout(() => { connection.abort(signal?.reason) }, startMost)
  }
  signal?.addEventListener('abort', abort, { once: true })
  try {
    for await (const event of follow(transport, container, undefined, start, connection.signal)) {
      id ??= event.exec?.id ?? event.execId
      signal?.throwIfAborted()
      if (event.type === 'stdout') onStdout?.(new Chunk('stdout', event, 0).text)
      if (event.type === 'stderr') onStderr?.(new Chunk('stderr', event, 0).text)
      if (event.type === 'exit' && event.result) {
        const result = new CommandResult(event.result)
        ended = true
        return options.check ? result.check() : result
      }
    }
  } catch (e) {
    if (ended) throw e
    // Nobody waits for it any more. A failure here changes nothing: it ends some seconds later without a client.
    if (id !== undefined && !cmd.detach) await new Command(transport, container, id).kill().catch(() => {})
    throw e
  } finally {
    connection.abort()
    signal?.removeEventListener('abort', abort)
  }
  throw new Error('the events of a command ended without an exit')
}

/** startCommand starts a command in the background. */
export async function startCommand (transport: Transport, container: string, command: string | readonly string[],
  options: RunOptions): Promise<Command> {
  const { signal, onStdout, onStderr, cmd } = split(command, options)
  const body: Cmd = { ...cmd, background: true, idempotencyKey: cmd.idempotencyKey ?? newKey(transport.retrySeconds) }
  const exec = await transport.json<Exec>({ method: 'POST', path: ['containers', container, 'exec'], body, signal,
    repeat: true })
  const started = new Command(transport, container, exec.id, signal)
  if (onStdout ?? onStderr) {
    void (async () => {
      for await (const { stream, text } of started) (stream === 'stdout' ? onStdout : onStderr)?.(text)
    })().catch(() => {}) // wait() tells of a daemon that is gone
  }
  return started
}

function split (command: string | readonly string[], options: RunOptions): Pick<RunOptions, 'signal' | 'onStdout' |
'onStderr'> & { cmd: Cmd } {
  const { signal, onStdout, onStderr, background: _, reconnectSeconds: __, check: ___,
    ...rest } = options
  const what: Cmd = typeof command === 'string' ? { command } : { argv: [...command] }
  if (rest.jobId === undefined && rest.shell === undefined) what.cwd = workspace
  return { signal, onStdout, onStderr, cmd: { ...what, ...rest } }
}
