import { opaque } from './types.js'

// Names are camelCase in the SDK and snake_case in the API. Values of the names in opaque are data of callers, such as
// labels: their keys stay as they are.

const snakeName = (name: string): string => name.replace(/[A-Z]/g, c => '_' + c.toLowerCase())
const camelName = (name: string): string => name.replace(/_([a-z0-9])/g, (_, c: string) => c.toUpperCase())

function renameKeys (value: unknown, rename: (name: string) => string, wire: (name: string) => string): unknown {
  if (Array.isArray(value)) return value.map(v => renameKeys(v, rename, wire))
  if (value === null || typeof value !== 'object') return value
  const out: Record<string, unknown> = {}
  for (const [name, v] of Object.entries(value)) {
    if (v !== undefined) out[rename(name)] = opaque.has(wire(name)) ? v : renameKeys(v, rename, wire)
  }
  return out
}

/** encode returns a request's value with the names of the API, without members that are undefined. */
export function encode (value: unknown): unknown {
  return renameKeys(value, snakeName, snakeName)
}

/** decode returns an answer's value with the names of the SDK. */
export function decode<T> (value: unknown): T {
  return renameKeys(value, camelName, name => name) as T
}

/** bytesOf returns the bytes of a base64 text. */
export function bytesOf (base64: string): Uint8Array<ArrayBuffer> {
  const text = atob(base64)
  const out = new Uint8Array(text.length)
  for (let i = 0; i < text.length; i++) out[i] = text.charCodeAt(i)
  return out
}

const onceLives = 60 // seconds that the daemon knows a key that begins with once_; it knows others for a day

/** newKey returns an idempotency key for a request that is repeated for up to this many seconds. */
export function newKey (retrySeconds: number): string {
  const random = [...crypto.getRandomValues(new Uint8Array(16))].map(b => b.toString(16).padStart(2, '0')).join('')
  return (retrySeconds < onceLives ? 'once_' : 'again_') + random
}
