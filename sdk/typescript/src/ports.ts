import { type FeedEvent, type Port, type PortURL, type PublishedPorts } from './types.js'
import { type CallOptions, type Transport } from './transport.js'

/** The ports of a container. */
export class Ports {
  readonly #transport: Transport
  readonly #container: string

  constructor (transport: Transport, container: string) {
    this.#transport = transport
    this.#container = container
  }

  #at (...more: string[]): string[] { return ['containers', this.#container, ...more] }

  /** list returns the ports that programs listen on. A container that is stopped or paused has none. */
  async list (options: CallOptions = {}): Promise<Port[]> {
    return (await this.#transport.json<{ data: Port[] }>({ path: this.#at('ports'), ...options })).data
  }

  /**
   * url returns a signed URL of a port, which browsers can open without a key. It holds for `expiresInSeconds`, by
   * default an hour and at most 7 days. An UnsupportedError says that the daemon has no domain for ports.
   */
  async url (port: number, options: CallOptions & { expiresInSeconds?: number } = {}): Promise<string> {
    const { signal, ...body } = options
    return (await this.#transport.json<PortURL>({ method: 'POST', path: this.#at('ports', String(port), 'url'), body,
      signal, repeat: true })).url
  }

  /**
   * endpoint returns where programs reach a port, for HTTP and websockets, with the headers that each request needs.
   * One is the client's API key: give them to your own programs alone, and others a `url`.
   */
  async endpoint (port: number): Promise<{ url: string, headers: Record<string, string> }> {
    const key = await this.#transport.key()
    return { url: this.#transport.href(this.#at('ports', String(port))) + '/',
      headers: key === '' ? {} : { 'X-Api-Key': key } }
  }

  /**
   * fetch sends an HTTP request to a port, with the client's key. In a page it works where the page has the daemon's
   * own origin, since the program does not say that other pages may read its answers.
   */
  async fetch (port: number, path = '/', init: RequestInit = {}): Promise<Response> {
    const endpoint = await this.endpoint(port)
    const headers = new Headers(init.headers)
    for (const [name, value] of Object.entries(endpoint.headers)) headers.set(name, value)
    return this.#transport.fetch(endpoint.url + path.replace(/^\//, ''), {
      credentials: this.#transport.credentials ?? 'omit', ...init, headers })
  }

  /** wait waits until a program listens on a port. Use a signal to set a time limit. */
  async wait (port: number, options: CallOptions = {}): Promise<void> {
    for (;;) {
      // The stream of events begins before the list is read, so that no port opens unnoticed in between.
      const opened = await this.#transport.stream<FeedEvent>({ path: ['events'], ...options,
        query: { container: this.#container, type: ['port.opened'] } })
      try {
        if ((await this.list(options)).some(p => p.port === port)) return
        for await (const { event } of opened) if (event.port?.port === port) return
      } catch (e) {
        if ((e as { code?: string }).code !== 'unavailable') throw e
      } finally {
        await opened.return()
      }
    }
  }

  /** publish makes a port public, or all of them: requests to its host name then need no credential. */
  async publish (port: number | 'all', options: CallOptions = {}): Promise<PublishedPorts> {
    return this.#transport.json({ method: 'PUT', path: this.#at('public-ports', String(port)), ...options })
  }

  /** withdraw makes a port private again, or all of them. */
  async withdraw (port: number | 'all', options: CallOptions = {}): Promise<PublishedPorts> {
    return this.#transport.json({ method: 'DELETE', path: this.#at('public-ports', String(port)), ...options })
  }
}
