/** A JSON Schema, or the name of a type where that is all there is to say: `'string'`. `'string?'` is one that may be left out. */
export type Parameter = string | Record<string, unknown>

/** A Tool is a function with what a caller has to know of it. The function gets the whole input as one object. */
export interface Tool {
  run: (input: any, call: Call) => unknown
  description?: string
  /** A JSON Schema of the input. */
  inputSchema?: Record<string, unknown>
  /** The same in short: parameters by name. Code may give them by position, in this order. */
  parameters?: Record<string, Parameter>
  outputSchema?: Record<string, unknown>
}

/** A Call is what a function is told beside its input. */
export interface Call {
  id: string
  /** The command in the container that made it. */
  execId: string
  /** Aborted when nobody waits for the result any more. */
  signal: AbortSignal
}

export interface Options {
  /** The daemon's URL; default is BERTH_HOST of the environment. */
  baseUrl?: string
  /** Default is BERTH_API_KEY of the environment. */
  apiKey?: string
  /** How many milliseconds the daemon has to answer at first; default 30,000. */
  timeout?: number
}

/** A Server answers calls until it is closed. */
export interface Server {
  /** The tools that code may call; those that the container does not allow are not among them. */
  readonly names: string[]
  /** Settled when the server has ended: fulfilled if it was closed, rejected if the container is gone. */
  readonly ended: Promise<void>
  close(): Promise<void>
}

/**
 * serve answers calls of code in a container with local functions. It is fulfilled when the daemon knows them. Where the connection breaks it is made
 * again, and calls that were under way are answered then. The container has to allow the names: `code_tools`, when it is created.
 */
export function serve(containerId: string, tools: Record<string, Tool | Tool['run']>, options?: Options): Promise<Server>
