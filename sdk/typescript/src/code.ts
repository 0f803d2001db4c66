import { type Cell, type ContextInfo, type Display, type ErrorDetail, type Outcome, type Program,
  type Progress } from './types.js'
import { type CallOptions, type Transport } from './transport.js'
import { UnavailableError, errorOf } from './errors.js'
import { type OutputFile, workspace } from './command.js'
import { bytesOf } from './wire.js'

/** A table, as pandas frames give it: 1,000 rows and 200 columns at most. */
export interface Table {
  columns: Array<{ name: string, dtype: string }>
  index: unknown[]
  rows: unknown[][]
  total_rows: number
  total_columns: number
}

/** A figure's data: its labels, axes and values. */
export interface Chart {
  /** `line`, `scatter`, `bar`, `pie`, `box_and_whisker`, `superchart` for several, or `unknown`. */
  type: string
  title: string | null
  elements: unknown[]
  [more: string]: unknown
}

/** Something that code showed, in all forms that it has. */
export class Result {
  /** As text; `''` if it has no text. */
  readonly text: string
  /** The forms by media type: text is text, JSON is JSON, anything else base64. */
  readonly data: Readonly<Record<string, unknown>>
  /** It is the value of the last expression. */
  readonly main: boolean

  constructor (display: Display) {
    this.text = display.text
    this.data = display.rich
    this.main = display.main
  }

  #text (type: string): string | undefined {
    const value = this.data[type]
    return Array.isArray(value) ? value.join('') : value as string | undefined
  }

  #bytes (type: string): Uint8Array<ArrayBuffer> | undefined {
    const value = this.#text(type)
    return value === undefined ? undefined : bytesOf(value.replace(/\s/g, ''))
  }

  get html (): string | undefined { return this.#text('text/html') }
  get markdown (): string | undefined { return this.#text('text/markdown') }
  get latex (): string | undefined { return this.#text('text/latex') }
  get svg (): string | undefined { return this.#text('image/svg+xml') }
  /** A figure, as bytes of a PNG. */
  get png (): Uint8Array<ArrayBuffer> | undefined { return this.#bytes('image/png') }
  get jpeg (): Uint8Array<ArrayBuffer> | undefined { return this.#bytes('image/jpeg') }
  get pdf (): Uint8Array<ArrayBuffer> | undefined { return this.#bytes('application/pdf') }
  get json (): unknown { return this.data['application/json'] }
  get table (): Table | undefined { return this.data['application/vnd.berth.table+json'] as Table | undefined }
  get chart (): Chart | undefined { return this.data['application/vnd.berth.chart+json'] as Chart | undefined }
}

/** Thrown by `check` for code that failed. */
export class CodeFailedError extends Error {
  override name = 'CodeFailedError'
  constructor (readonly result: CodeResult) {
    super(result.error?.traceback ?? `${result.error?.name}: ${result.error?.message}`)
  }
}

/**
 * What code gave. `png`, `table` and the other forms are those of the value of the last expression, or of the first
 * result that has such a form.
 */
export class CodeResult {
  /** What the code showed and, last, the value of its last expression. */
  readonly results: Result[]
  readonly stdout: string
  readonly stderr: string
  /** How the code failed; `undefined` if it did not. */
  readonly error: ErrorDetail | undefined
  /** Stored files, made of the files in `$OUTPUT_DIR`; of a context, when its interpreter ends. */
  readonly files: OutputFile[]
  /** Number of the cell in the interpreter of its context, from 1; 0 without a context. */
  readonly executionCount: number
  readonly durationMs: number
  /** Some of the output or of the results was left out. */
  readonly truncated: boolean
  readonly notes: string[]

  constructor (outcome: Outcome) {
    this.results = outcome.results.map((text, i) => new Result({ text, rich: outcome.rich[i] ?? {},
      main: i === outcome.mainResult }))
    this.stdout = outcome.logs.stdout.join('')
    this.stderr = outcome.logs.stderr.join('')
    this.error = outcome.errorDetail
    this.files = outcome.files.map(({ fileId }) => ({ fileId }))
    this.executionCount = outcome.executionCount ?? 0
    this.durationMs = outcome.durationMs
    this.truncated = outcome.truncated
    this.notes = outcome.notes ?? []
  }

  /** The value of the last expression as text; `undefined` if the code ended without one. */
  get text (): string | undefined { return this.results.find(r => r.main)?.text }

  #first<K extends 'html' | 'markdown' | 'svg' | 'png' | 'jpeg' | 'json' | 'table' | 'chart'> (form: K): Result[K] |
  undefined {
    const ordered = [...this.results].sort((a, b) => Number(b.main) - Number(a.main))
    return ordered.find(r => r[form] !== undefined)?.[form]
  }

  get html (): string | undefined { return this.#first('html') }
  get markdown (): string | undefined { return this.#first('markdown') }
  get svg (): string | undefined { return this.#first('svg') }
  /** A figure, as bytes of a PNG; `undefined` if there is none. */
  get png (): Uint8Array<ArrayBuffer> | undefined { return this.#first('png') }
  get jpeg (): Uint8Array<ArrayBuffer> | undefined { return this.#first('jpeg') }
  get json (): unknown { return this.#first('json') }
  get table (): Table | undefined { return this.#first('table') }
  get chart (): Chart | undefined { return this.#first('chart') }

  /** Whether the code did not fail. */
  get ok (): boolean { return this.error === undefined }

  /** check returns the result, or throws a {@link CodeFailedError} if the code failed. */
  check (): this {
    if (!this.ok) throw new CodeFailedError(this)
    return this
  }
}

/** Called as a cell of a context runs. */
export interface CellCallbacks {
  onStdout?: ((text: string) => void) | undefined
  onStderr?: ((text: string) => void) | undefined
  /** Called with each figure, table or value when the code shows it. */
  onResult?: ((result: Result) => void) | undefined
}

/** How code runs. */
export interface CodeOptions extends CallOptions, CellCallbacks, Omit<Program, 'code' | 'container' | 'context' |
'cwd' | 'image' | 'network' | 'networkSecrets' | 'limits' | 'runtimeClass'> {
  /** Name of a context, or a context: the code runs as a cell of it, and finds the variables of earlier cells. */
  context?: string | CodeContext
  /** Working directory; default `/workspace`, and of a cell the context's own. */
  cwd?: string
}

/** How a context is made. */
export interface ContextOptions extends CallOptions {
  /** Default: a name of its own. */
  name?: string
  /** `python` (default), `js`, `ts`, `r`, `java`, `bash` and others. */
  language?: string
  /** Where it begins; default `/workspace`, unless there is `jobId`. */
  cwd?: string
  env?: Record<string, string>
  secrets?: Record<string, string>
  user?: string
  jobId?: string
}

/** An interpreter that keeps its variables from cell to cell. */
export class CodeContext implements AsyncDisposable {
  readonly name: string
  readonly #code: Code
  readonly #transport: Transport
  readonly #path: string[]

  constructor (code: Code, transport: Transport, container: string, name: string) {
    this.name = name
    this.#code = code
    this.#transport = transport
    this.#path = ['containers', container, 'contexts', name]
  }

  /** run runs a cell. Cells take turns. */
  async run (code: string, options: Omit<CodeOptions, 'context'> = {}): Promise<CodeResult> {
    return this.#code.run(code, { ...options, context: this })
  }

  async info (options: CallOptions = {}): Promise<ContextInfo> {
    return this.#transport.json({ path: this.#path, ...options })
  }

  /** interrupt ends the cell that runs, as Ctrl-C does. The variables stay. */
  async interrupt (options: CallOptions = {}): Promise<void> {
    await this.#transport.json({ method: 'POST', path: [...this.#path, 'interrupt'], ...options })
  }

  /** restart replaces the interpreter by a new one, without variables. */
  async restart (options: CallOptions = {}): Promise<void> {
    await this.#transport.json({ method: 'POST', path: [...this.#path, 'restart'], ...options })
  }

  /** delete ends the interpreter. */
  async delete (options: CallOptions = {}): Promise<void> {
    await this.#transport.json({ method: 'DELETE', path: this.#path, ...options })
  }

  async [Symbol.asyncDispose] (): Promise<void> {
    await this.delete().catch((e: { code?: string }) => {
      if (e.code !== 'not_found' && e.code !== 'expired') throw e
    })
  }
}

/** Runs code of several languages in a container, with values, figures and tables as results. */
export class Code {
  readonly #transport: Transport
  readonly #container: string

  constructor (transport: Transport, container: string) {
    this.#transport = transport
    this.#container = container
  }

  /**
   * run runs code and returns its value, output and figures. Code that fails is no exception: the result's `error` says
   * how. Without `context` the code has an interpreter of its own, and the callbacks get everything at its end. Code is
   * sent once: if the connection breaks, the call is a ConnectionFailedError, since the code may have run. An abort
   * interrupts it.
   */
  async run (code: string, options: CodeOptions = {}): Promise<CodeResult> {
    const { context, signal, onStdout, onStderr, onResult, cwd, ...rest } = options
    const calls = { onStdout, onStderr, onResult }
    if (context !== undefined) {
      const { secrets: _, ...cell } = rest
      return this.#cell(typeof context === 'string' ? context : context.name, { code, ...cell, ...cwd !== undefined && {
        cwd } }, signal, calls)
    }
    const outcome = await this.#transport.json<Outcome>({ method: 'POST', path: ['run_code'], signal,
      body: { code, container: this.#container, cwd: cwd ?? workspace, ...rest } satisfies Program })
    const done = new CodeResult(outcome)
    if (done.stdout !== '') onStdout?.(done.stdout)
    if (done.stderr !== '') onStderr?.(done.stderr)
    if (onResult) done.results.forEach(onResult)
    return done
  }

  /** context starts an interpreter that keeps its variables. A container has at most 64. */
  async context (options: ContextOptions = {}): Promise<CodeContext> {
    const { signal, name = 'context-' + crypto.randomUUID().slice(0, 8), ...rest } = options
    await this.#transport.json({ method: 'POST', path: ['containers', this.#container, 'contexts'], signal,
      body: { name, ...rest.jobId === undefined && { cwd: workspace }, ...rest } })
    return new CodeContext(this, this.#transport, this.#container, name)
  }

  /** contexts lists the container's contexts. */
  async contexts (options: CallOptions = {}): Promise<ContextInfo[]> {
    return (await this.#transport.json<{ data: ContextInfo[] }>({ path: ['containers', this.#container, 'contexts'],
      ...options })).data
  }

  async #cell (name: string, body: Cell, signal: AbortSignal | undefined, calls: CellCallbacks): Promise<CodeResult> {
    const stream = await this.#transport.stream<Progress>({ method: 'POST', body, signal,
      path: ['containers', this.#container, 'contexts', name, 'run'] })
    const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() }
    for await (const { event } of stream) {
      if (event.type === 'stdout' || event.type === 'stderr') {
        const text = event.dataBase64 === undefined
          ? event.data ?? ''
          : decoders[event.type].decode(bytesOf(event.dataBase64))
        event.type === 'stdout' ? calls.onStdout?.(text) : calls.onStderr?.(text)
      }
      if (event.display) calls.onResult?.(new Result(event.display))
      if (event.result) return new CodeResult(event.result)
      if (event.error) throw errorOf({ ...event.error, status: 0, retryAfter: event.error.retryAfterSeconds })
    }
    throw new UnavailableError({ code: 'unavailable', status: 0, item: name,
      message: `the connection ended before the cell in context ${name} did; whether it ended is not known` })
  }
}
