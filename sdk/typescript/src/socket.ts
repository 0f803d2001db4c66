import { ConnectionFailedError } from './errors.js'
import { type Transport, inNode } from './transport.js'

// What both the WebSocket of browsers and the package ws have.
interface WebSocketLike {
  binaryType: string
  readonly readyState: number
  onopen: (() => void) | null
  onclose: (() => void) | null
  onerror: ((event: unknown) => void) | null
  onmessage: ((event: { data: unknown }) => void) | null
  send: (data: string) => void
  close: (code?: number) => void
  terminate?: () => void // of ws
  on?: (event: 'ping', heard: () => void) => void // of ws
}
type WebSocketClass = new (url: string, protocols: string[], options?: object) => WebSocketLike

const open = 1 // readyState
const silence = 95_000 // ms; the daemon pings every 30 s, which ws shows and browsers do not

// The package ws sees pings, and Node 20 has no WebSocket of its own. Without the package, as in a bundle, the global
// one is used.
async function webSocketClass (): Promise<[type: WebSocketClass, isPackage: boolean]> {
  if (inNode) {
    const name = 'ws' // a variable: bundlers for browsers must not follow the import
    try {
      return [(await import(name) as { WebSocket: WebSocketClass }).WebSocket, true]
    } catch {
      // not installed
    }
  }
  const type = (globalThis as { WebSocket?: WebSocketClass }).WebSocket
  if (type === undefined) throw new Error('there is no WebSocket here; install the package ws')
  return [type, false]
}

const base64url = (text: string): string => btoa(text).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '')

/** A websocket to the daemon. */
export class Socket {
  /** Called with each message, text or bytes. */
  onMessage: (data: string | Uint8Array) => void = () => {}
  /** Called once, when the connection has ended for any reason. */
  onClose: () => void = () => {}
  readonly #socket: WebSocketLike
  #timer: ReturnType<typeof setTimeout> | undefined

  private constructor (socket: WebSocketLike, seesPings: boolean) {
    this.#socket = socket
    const heard = (): void => {
      if (!seesPings) return
      clearTimeout(this.#timer)
      this.#timer = setTimeout(() => socket.terminate?.(), silence)
    }
    heard()
    if (seesPings) socket.on?.('ping', heard)
    socket.onmessage = ({ data }) => {
      heard()
      this.onMessage(typeof data === 'string' ? data : new Uint8Array(data as ArrayBuffer))
    }
    socket.onclose = () => {
      clearTimeout(this.#timer)
      this.onClose()
    }
    socket.onerror = () => {} // a close follows
  }

  /**
   * open connects. If the handshake fails, it asks for the container, whose error says why: pages cannot see the answer
   * to a handshake. That also waits for a daemon that is away.
   */
  static async open (transport: Transport, path: readonly string[], signal?: AbortSignal): Promise<Socket> {
    const url = transport.href(path).replace(/^http/, 'ws')
    for (let attempt = 0; attempt < 3; attempt++) {
      const socket = await Socket.#connect(transport, url, signal)
      if (socket !== undefined) return socket
      await transport.json({ path: path.slice(0, 2), signal })
    }
    throw new ConnectionFailedError({ code: 'unavailable', status: 0, item: transport.url,
      message: `the websocket at ${url} does not open; does the daemon allow this page's origin with --origin, and a ` +
        'proxy in between websockets?' })
  }

  static async #connect (transport: Transport, url: string, signal?: AbortSignal): Promise<Socket | undefined> {
    signal?.throwIfAborted()
    const [type, isPackage] = await webSocketClass()
    const key = await transport.key()
    const protocols = key === '' ? ['berth.v1'] : ['berth.v1', 'berth.key.' + base64url(key)]
    const socket = isPackage
      ? new type(url, protocols, { perMessageDeflate: false, maxPayload: 256 << 20, handshakeTimeout: 20_000 })
      : new type(url, protocols)
    socket.binaryType = 'arraybuffer'
    const abort = (): void => { socket.close() }
    signal?.addEventListener('abort', abort, { once: true })
    const opened = await new Promise<boolean>(resolve => {
      socket.onopen = () => { resolve(true) }
      socket.onerror = () => { resolve(false) }
      socket.onclose = () => { resolve(false) }
    })
    signal?.removeEventListener('abort', abort)
    if (opened) return new Socket(socket, isPackage)
    socket.onerror = () => {} // ws has an error for each failure
    signal?.throwIfAborted()
    return undefined
  }

  get isOpen (): boolean { return this.#socket.readyState === open }

  /** send sends a message as JSON. It reports whether the connection was open. */
  send (message: unknown): boolean {
    if (!this.isOpen) return false
    this.#socket.send(typeof message === 'string' ? message : JSON.stringify(message))
    return true
  }

  close (): void { this.#socket.close(1000) }
}
