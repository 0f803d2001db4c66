/** One server-sent event. */
export interface ServerEvent {
  /** Position for `Last-Event-ID`; `''` if the event has none. */
  id: string
  data: string
}

/** events reads server-sent events from the body of an answer. It returns at the body's end. */
export async function * events (body: ReadableStream<Uint8Array>): AsyncGenerator<ServerEvent, void, undefined> {
  const reader = body.getReader()
  const decoder = new TextDecoder()
  let rest = ''
  let [id, data]: [string, string[]] = ['', []]
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return
      // Only the new part is searched for line ends, since one event may have megabytes.
      const part = decoder.decode(value, { stream: true })
      const lines = part.split('\n')
      lines[0] = rest + (lines[0] ?? '')
      rest = lines.pop() ?? ''
      for (let line of lines) {
        if (line.endsWith('\r')) line = line.slice(0, -1)
        if (line === '') {
          if (data.length > 0) yield { id, data: data.join('\n') };
          [id, data] = ['', []]
        } else if (line.startsWith('id:')) id = line.slice(3).trimStart()
        else if (line.startsWith('data:')) data.push(line.slice(line[5] === ' ' ? 6 : 5))
      }
    }
  } finally {
    reader.cancel().catch(() => {}) // the connection may be broken already
  }
}
