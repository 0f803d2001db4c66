import { BerthError, ConnectionFailedError, InvalidArgumentError, UnavailableError, failureOf } from './errors.js'
import { events } from './sse.js'
import { decode, encode } from './wire.js'

/** Where the daemon is, and how requests are sent. */
export interface ClientOptions {
  /**
   * The daemon's URL. Default: `BERTH_URL`, or `BERTH_HOST` as the command line reads it, or `http://127.0.0.1:7117`;
   * in a page, the page's own origin.
   */
  url?: string
  /**
   * API key. Default in Node: `BERTH_API_KEY`, or the text of the file `BERTH_API_KEY_FILE`, by default
   * `/var/lib/berth/api-key`. Never ship a key in a page: everyone who opens the page has it. Give pages a cookie
   * instead, with `credentials`, or have your server call the daemon.
   */
  key?: string
  /**
   * Send cookies instead of a key, as pages that the daemon itself serves do: `same-origin`. No key is sent or looked
   * for then.
   */
  credentials?: 'same-origin' | 'include'
  /** More headers of each request, such as `traceparent`. Websockets cannot have them. */
  headers?: Record<string, string>
  /**
   * How long a request waits for a daemon that is away or has no room, in seconds; default 30, 0 is not at all. Until
   * the daemon has answered once, a request waits for at most one second.
   */
  retrySeconds?: number
  /** In place of the global `fetch`, for example with a proxy or with an authority of your own. */
  fetch?: typeof globalThis.fetch
}

/** What every call of the SDK takes. */
export interface CallOptions {
  /** Ends the call: its promise is rejected with the signal's reason. */
  signal?: AbortSignal | undefined
}

/** A value of a query parameter. Lists repeat the parameter; `undefined`, `false` and `''` leave it out. */
export type QueryValue = string | number | boolean | undefined | readonly string[]

/** One request to the API. */
export interface Request extends CallOptions {
  method?: 'GET' | 'HEAD' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  /** Parts of the path behind `/v1`; each is escaped. */
  path: readonly string[]
  query?: Record<string, QueryValue>
  /** Sent as JSON, with names in snake_case. */
  body?: unknown
  /** Sent unchanged, in place of `body`. */
  raw?: BodyInit | undefined
  headers?: Record<string, string>
  /** It may be sent again after its connection broke. GET, PUT, PATCH and DELETE may, unless `raw` is a stream. */
  repeat?: boolean
}

const node = (globalThis as { process?: { versions?: { node?: string }, env: Record<string, string | undefined> } })
  .process
/** Whether this is Node, or a runtime that has its modules. */
export const inNode = Boolean(node?.versions?.node)

const firstWait = 1 // seconds that a request waits for a daemon that never answered: the URL may be wrong

/** Sends requests, repeats those that may come twice, and turns failures into errors. */
export class Transport {
  readonly url: string
  readonly credentials: 'same-origin' | 'include' | undefined
  readonly #options: ClientOptions
  readonly fetch: typeof globalThis.fetch
  #key: Promise<string> | undefined
  #met = false // the daemon has answered before

  constructor (options: ClientOptions = {}) {
    const page = (globalThis as { location?: { origin?: string } }).location?.origin
    const env = node?.env ?? {}
    let url = options.url || env['BERTH_URL'] || env['BERTH_HOST'] || (page ?? 'http://127.0.0.1:7117')
    if (!url.includes('://')) url = 'http://' + url
    if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol)) {
      throw new InvalidArgumentError({ code: 'invalid_argument', status: 0, item: 'url',
        message: `"${url}" is not the URL of a daemon; give one such as http://127.0.0.1:7117` })
    }
    this.url = url.replace(/\/+$/, '')
    this.#options = options
    this.credentials = options.credentials
    this.fetch = options.fetch ?? globalThis.fetch.bind(globalThis)
  }

  /** How long a request waits for a daemon that is away, in seconds. */
  get retrySeconds (): number { return this.#options.retrySeconds ?? 30 }

  /** key returns the API key, or '' if none is sent. */
  key (): Promise<string> {
    this.#key ??= this.#findKey()
    return this.#key
  }

  async #findKey (): Promise<string> {
    const env = node?.env ?? {}
    if (this.credentials !== undefined) return ''
    const given = this.#options.key ?? env['BERTH_API_KEY']
    if (given !== undefined || !inNode) return given ?? ''
    const path = env['BERTH_API_KEY_FILE'] ?? '/var/lib/berth/api-key'
    const name = 'node:fs/promises' // a variable: bundlers for browsers must not follow the import
    const fs = await import(name) as { readFile: (path: string, encoding: 'utf8') => Promise<string> }
    try {
      return (await fs.readFile(path, 'utf8')).trim()
    } catch (e) {
      if (env['BERTH_API_KEY_FILE'] === undefined) return '' // the daemon says what is missing
      throw new InvalidArgumentError({ code: 'invalid_argument', status: 0, item: 'BERTH_API_KEY_FILE',
        message: `the API key cannot be read: ${String(e)}` })
    }
  }

  /** href returns the URL of a path, whose parts it escapes. */
  href (path: readonly string[], query: Record<string, QueryValue> = {}): string {
    const q = new URLSearchParams()
    for (const [name, value] of Object.entries(query)) {
      for (const one of Array.isArray(value) ? value as string[] : [value]) {
        if (one !== undefined && one !== false && one !== '') q.append(name, String(one))
      }
    }
    const text = q.size > 0 ? `?${q}` : ''
    return [this.url, 'v1', ...path.map(encodeURIComponent)].join('/') + text
  }

  /** json sends a request and decodes the JSON answer. Its status is 202 where what was asked for still runs. */
  async json<T> (request: Request): Promise<T> {
    return (await this.jsonStatus<T>(request)).value
  }

  async jsonStatus<T> (request: Request): Promise<{ status: number, value: T }> {
    return this.#repeat(request, async res => {
      const text = await res.text()
      try {
        return { status: res.status, value: decode<T>(text === '' ? undefined : JSON.parse(text)) }
      } catch (e) {
        throw new UnavailableError({ code: 'unavailable', status: res.status,
          message: `the answer of ${this.url} cannot be read; is it a berth daemon of this version?` }, { cause: e })
      }
    })
  }

  /** pages returns the items of all pages of a list. */
  async pages<T> (request: Request): Promise<T[]> {
    const all: T[] = []
    for (let after: string | undefined; ;) {
      const page = await this.json<{ data: T[], nextAfter?: string | null }>({ ...request,
        query: { ...request.query, after } })
      all.push(...page.data)
      if (!page.nextAfter) return all
      after = page.nextAfter
    }
  }

  /** bytes sends a request and returns the answer's body. */
  async bytes (request: Request): Promise<Uint8Array<ArrayBuffer>> {
    return this.#repeat(request, async res => new Uint8Array(await res.arrayBuffer()))
  }

  /** open sends a request and returns the answer, whose body the caller reads. */
  async open (request: Request): Promise<Response> {
    return this.#repeat(request, async res => res)
  }

  /**
   * stream sends a request and returns the events of the answer, with their IDs. Reading throws a ConnectionFailedError
   * if the connection breaks.
   */
  async stream<T> (request: Request): Promise<AsyncGenerator<{ id: string, event: T }, void, undefined>> {
    const res = await this.open({ ...request, headers: { ...request.headers, Accept: 'text/event-stream' } })
    return this.#events<T>(res, request)
  }

  async * #events<T> (res: Response, request: Request): AsyncGenerator<{ id: string, event: T }, void, undefined> {
    if (res.body === null || res.status === 204) return
    const source = events(res.body)
    try {
      for (;;) {
        const next = await source.next().catch((e: unknown) => { throw this.#failed(e, request) })
        if (next.done) return
        yield { id: next.value.id, event: decode<T>(JSON.parse(next.value.data)) }
      }
    } finally {
      await source.return()
    }
  }

  async #repeat<T> (request: Request, use: (res: Response) => Promise<T>): Promise<T> {
    const began = Date.now()
    for (let attempt = 0; ; attempt++) {
      request.signal?.throwIfAborted()
      let error: BerthError
      let final = false
      try {
        const res = await this.#send(request)
        this.#met = true
        if (res.ok) return await use(res)
        error = failureOf(res.status, res.headers, await res.text())
        final = res.headers.get('x-should-retry') === 'false'
      } catch (e) {
        error = this.#failed(e, request)
      }
      const wait = final ? undefined : retryAfter(error, request, attempt)
      const most = this.#met ? this.retrySeconds : Math.min(this.retrySeconds, firstWait)
      if (wait === undefined || (Date.now() - began) / 1000 + wait > most) throw error
      await pause(wait, request.signal)
    }
  }

  async #send (request: Request): Promise<Response> {
    const key = await this.key()
    const headers = new Headers(this.#options.headers)
    if (key !== '') headers.set('X-Api-Key', key)
    for (const [name, value] of Object.entries(request.headers ?? {})) headers.set(name, value)
    const method = request.method ?? 'GET'
    let body = request.raw
    if (body === undefined && (request.body !== undefined || method === 'POST')) {
      headers.set('Content-Type', 'application/json')
      body = JSON.stringify(encode(request.body ?? {}))
    } else if (body !== undefined && !(body instanceof FormData) && !headers.has('Content-Type')) {
      headers.set('Content-Type', 'application/octet-stream')
    }
    const init: RequestInit & { duplex?: 'half' } = { method, headers, redirect: 'manual',
      credentials: this.credentials ?? 'omit' }
    if (request.signal) init.signal = request.signal
    if (body !== undefined) init.body = body
    if (body instanceof ReadableStream) init.duplex = 'half'
    return this.fetch(this.href(request.path, request.query), init)
  }

  /** #failed returns the error for a request whose connection failed. It throws other errors. */
  #failed (e: unknown, request: Request): BerthError {
    if (request.signal?.aborted) throw request.signal.reason
    if (e instanceof BerthError) return e
    // fetch says TypeError for every failure of the network, and so does a body that breaks off in Node
    if (!(e instanceof TypeError) && !/^(AbortError|NetworkError)$/.test((e as Error)?.name)) throw e
    const reason = causes(e).map(c => c.message).filter(Boolean).pop() ?? String(e)
    return new ConnectionFailedError({ code: 'unavailable', status: 0, item: this.url,
      message: this.#met
        ? `the connection to ${this.url} broke (${reason})`
        : `no daemon answers at ${this.url} (${reason}); start one with \`berth serve\`, or set BERTH_URL` },
    { cause: e })
  }
}

interface Cause { message?: string, code?: string, cause?: unknown, errors?: unknown[] }

function causes (e: unknown): Cause[] {
  const out: Cause[] = []
  for (let c = e as Cause | undefined; c && out.length < 8; c = (c.cause ?? c.errors?.[0]) as Cause | undefined) {
    out.push(c)
  }
  return out
}

/** retryAfter returns the seconds until the next attempt; undefined: the request must not be sent again. */
function retryAfter (error: BerthError, request: Request, attempt: number): number | undefined {
  const stream = request.raw instanceof ReadableStream
  const repeat = !stream && (request.repeat ?? (request.method ?? 'GET') !== 'POST')
  const backoff = Math.min(0.05 * 2 ** attempt, 1) * (0.75 + Math.random() / 2)
  if (error instanceof ConnectionFailedError) {
    // a refused connection has sent nothing, so the request cannot come twice
    const unsent = !stream && causes(error).some(c => c.code === 'ECONNREFUSED')
    return repeat || unsent ? backoff : undefined
  }
  // the daemon refused it before doing anything
  if (error.status === 429) return stream ? undefined : Math.max(error.retryAfter ?? 1, backoff)
  if (error.status !== 503 && error.status !== 502) return undefined
  return repeat ? Math.min(error.retryAfter ?? backoff, 2) : undefined
}

/** pause waits for some seconds, or until the signal. */
export async function pause (seconds: number, signal?: AbortSignal): Promise<void> {
  signal?.throwIfAborted()
  await new Promise<void>((resolve, reject) => {
    const stop = (): void => {
      clearTimeout(timer)
      reject(signal?.reason)
    }
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', stop)
      resolve()
    }, seconds * 1000)
    signal?.addEventListener('abort', stop, { once: true })
  })
}

const shortLived = 1000 // ms
const mostShortLived = 30

/**
 * resume yields the items of a stream, and opens it again where its connection breaks. It gives up when the stream
 * cannot be opened for as long as the client waits for a daemon.
 */
export async function * resume<T> (signal: AbortSignal | undefined, open: () => Promise<AsyncIterable<T>>):
AsyncGenerator<T, void, undefined> {
  for (let useless = 0; ; useless++) {
    const stream = await open()
    const opened = Date.now()
    let failed: unknown
    try {
      for await (const item of stream) {
        useless = 0
        yield item
      }
    } catch (e) {
      if (!(e instanceof ConnectionFailedError)) throw e
      failed = e
    }
    signal?.throwIfAborted()
    if (Date.now() - opened > shortLived) useless = 0
    if (useless > mostShortLived) {
      throw failed ?? new ConnectionFailedError({ code: 'unavailable', status: 0,
        message: 'the server ends each stream at once; is it a berth daemon, or a proxy that allows no streams?' })
    }
    await pause(Math.min(0.05 * 2 ** useless, 1), signal)
  }
}
