/** A JSON Schema, or just the name of a type: `'string'`. `'string?'` makes the parameter optional. */
export type Parameter = string | Record<string, unknown>

/** A Tool is a function with its description and schemas. The function gets the whole input as one object. */
export interface Tool {
  run: (input: any, call: Call) => unknown
  description?: string
  /** A JSON Schema of the input. */
  inputSchema?: Record<string, unknown>
  /** The same in short: parameters by name. Code may give them by position, in this order. */
  parameters?: Record<string, Parameter>
  outputSchema?: Record<string, unknown>
}

/** A Call is what a function gets besides its input. */
export interface Call {
  id: string
  /** The command in the container that made it. */
  execId: string
  /** Aborted when the caller no longer waits for the result. */
  signal: AbortSignal
}

export interface Options {
  /** The daemon's URL; default is BERTH_HOST of the environment. */
  baseUrl?: string
  /** Default is BERTH_API_KEY of the environment. */
  apiKey?: string
  /** Maximum milliseconds until the daemon's first answer; default 30,000. */
  timeout?: number
}

/** A Server answers calls until it is closed. */
export interface Server {
  /** The tools that code may call, without those that the container does not allow. */
  readonly names: string[]
  /** Settled when the server has ended: fulfilled if it was closed, rejected if the container is gone. */
  readonly ended: Promise<void>
  close(): Promise<void>
}

/**
 * serve answers calls of code in a container with local functions. Its promise is fulfilled when the daemon knows the
 * functions. If the connection breaks, the Server reconnects and then answers the calls that were under way. The
 * container's `code_tools`, set at its creation, must allow the names.
 */
export function serve(
  containerId: string, tools: Record<string, Tool | Tool['run']>, options?: Options
): Promise<Server>
