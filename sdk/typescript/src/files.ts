import { type FileEvent, type FileInfo, type FoundLines } from './types.js'
import { type CallOptions, type QueryValue, type Transport, resume } from './transport.js'

/** Whose rights a file call has, and in which generation of the container. */
export interface FileOptions extends CallOptions {
  /** `user` (default), `root`, or another user of the container. */
  as?: string
  /** Only in this generation of the container; else a ConflictError. */
  generation?: number
}

/** What a file can be made of. A stream is sent as it comes, and such an upload is never repeated. */
export type FileSource = string | Uint8Array | ArrayBuffer | Blob | ReadableStream<Uint8Array>

/** Which entries `find` returns. Sizes are in bytes, times in RFC 3339. */
export interface FindOptions extends FileOptions {
  /** Globs of which one must match, such as `*.py` or `src` with stars. */
  name?: string[]
  /** Globs of what is left out. */
  exclude?: string[]
  ignoreCase?: boolean
  type?: 'file' | 'directory' | 'symlink' | 'other'
  minSize?: number
  maxSize?: number
  modifiedAfter?: string
  modifiedBefore?: string
  /** Levels below the directory, 1 to 200; default all. */
  depth?: number
}

/** Which lines `grep` returns. */
export interface GrepOptions extends FileOptions {
  /** The pattern is a text, not a regular expression. */
  fixed?: boolean
  name?: string[]
  exclude?: string[]
  ignoreCase?: boolean
  depth?: number
  /** Lines of context before each match, 0 to 20. */
  linesBefore?: number
  /** Lines of context behind each match, 0 to 20. */
  linesAfter?: number
  /** At most this many matches, 1 to 10,000; default 1,000. */
  maxMatches?: number
}

const snake = (options: object): Record<string, QueryValue> => Object.fromEntries(Object.entries(options)
  .filter(([name]) => name !== 'signal').map(([name, v]) => [name.replace(/[A-Z]/g, c => '_' + c.toLowerCase()), v]))

/**
 * The files of a container. Paths are absolute, or relative to `/workspace`. Every call throws a NotFoundError for a
 * path that does not exist, and a PermissionDeniedError for what the user may not do.
 */
export class Files {
  readonly #transport: Transport
  readonly #container: string

  constructor (transport: Transport, container: string) {
    this.#transport = transport
    this.#container = container
  }

  #at (call: string): string[] { return ['containers', this.#container, 'fs', call] }

  /** put stores a file, whole or not at all, and makes the directories above it. `mode` is in octal: `'0755'`. */
  async put (path: string, source: FileSource, options: FileOptions & { mode?: string } = {}): Promise<FileInfo> {
    return this.#transport.json({ method: 'PUT', path: this.#at('content'), query: { ...snake(options), path },
      raw: source as BodyInit, signal: options.signal })
  }

  /** get returns a file's bytes. */
  async get (path: string, options: FileOptions = {}): Promise<Uint8Array<ArrayBuffer>> {
    return this.#transport.bytes({ path: this.#at('content'), query: { ...snake(options), path },
      signal: options.signal })
  }

  /** read returns a file as text; bytes that are not UTF-8 become U+FFFD. */
  async read (path: string, options: FileOptions = {}): Promise<string> {
    return new TextDecoder('utf-8', { ignoreBOM: true }).decode(await this.get(path, options))
  }

  /** write stores a text; the same as `put` with a string. */
  async write (path: string, text: string, options: FileOptions & { mode?: string } = {}): Promise<FileInfo> {
    return this.put(path, text, options)
  }

  /** append writes at the end of a file. It is sent once: a broken connection may leave a part. */
  async append (path: string, source: FileSource, options: FileOptions = {}): Promise<FileInfo> {
    return this.#transport.json({ method: 'PATCH', path: this.#at('content'), raw: source as BodyInit, repeat: false,
      query: { ...snake(options), path, append: true }, signal: options.signal })
  }

  /** stream opens a file for reading as it comes, for files that do not fit into memory. */
  async stream (path: string, options: FileOptions = {}): Promise<ReadableStream<Uint8Array>> {
    const res = await this.#transport.open({ path: this.#at('content'), query: { ...snake(options), path },
      signal: options.signal })
    return res.body ?? new Blob([]).stream()
  }

  /** list returns the entries of a directory, or with `depth` those of that many levels, by name. */
  async list (path = '.', options: FileOptions & { depth?: number } = {}): Promise<FileInfo[]> {
    return this.#pages('list', path, options)
  }

  /** find returns all entries below a directory that the options select. */
  async find (path: string, options: FindOptions = {}): Promise<FileInfo[]> {
    return this.#pages('find', path, options)
  }

  /** grep returns lines of the files below a directory, or of one file, that match a regular expression (RE2). */
  async grep (path: string, pattern: string, options: GrepOptions = {}): Promise<FoundLines> {
    return this.#transport.json({ path: this.#at('grep'), query: { ...snake(options), path, pattern },
      signal: options.signal })
  }

  /** stat describes one entry. It does not follow a link at the end of the path. */
  async stat (path: string, options: FileOptions = {}): Promise<FileInfo> {
    return this.#transport.json({ path: this.#at('stat'), query: { ...snake(options), path }, signal: options.signal })
  }

  /** exists reports whether there is an entry of that path. */
  async exists (path: string, options: FileOptions = {}): Promise<boolean> {
    return this.stat(path, options).then(() => true, (e: { code?: string }) => {
      if (e.code === 'not_found') return false
      throw e
    })
  }

  /** remove removes a file or, with `recursive`, a directory with all that is in it. */
  async remove (path: string, options: FileOptions & { recursive?: boolean } = {}): Promise<void> {
    await this.#transport.json({ method: 'DELETE', path: this.#at('content'), query: { ...snake(options), path },
      signal: options.signal, repeat: false })
  }

  /** move renames an entry. */
  async move (from: string, to: string, options: FileOptions = {}): Promise<void> {
    const { as, generation, signal } = options
    await this.#transport.json({ method: 'POST', path: this.#at('move'), body: { from, to, as }, query: { generation },
      signal })
  }

  /** mkdir makes a directory and those above it. */
  async mkdir (path: string, options: FileOptions = {}): Promise<void> {
    const { as, generation, signal } = options
    await this.#transport.json({ method: 'POST', path: this.#at('mkdir'), body: { path, as }, query: { generation },
      signal, repeat: true })
  }

  /** tar opens a directory as a tar archive, with names relative to it. */
  async tar (path: string, options: FileOptions = {}): Promise<ReadableStream<Uint8Array>> {
    const res = await this.#transport.open({ path: this.#at('tar'), query: { ...snake(options), path },
      signal: options.signal })
    return res.body ?? new Blob([]).stream()
  }

  /** untar unpacks a tar archive into a directory, which it makes if needed. */
  async untar (path: string, archive: FileSource, options: FileOptions = {}): Promise<void> {
    await this.#transport.json({ method: 'PUT', path: this.#at('tar'), raw: archive as BodyInit,
      query: { ...snake(options), path }, headers: { 'Content-Type': 'application/x-tar' }, signal: options.signal })
  }

  /**
   * watch follows the changes in a directory. It returns once the watch holds; then iterate over it. Leaving the loop
   * ends it. After a broken connection it watches again and tells `overflow`, as the daemon does when events were lost:
   * list the directory then. It ends when the directory is gone.
   */
  async watch (path: string, options: FileOptions & { recursive?: boolean, entries?: boolean } = {}):
  Promise<AsyncGenerator<FileEvent, void, undefined>> {
    const open = async (): Promise<AsyncGenerator<{ event: FileEvent }, void, undefined>> =>
      this.#transport.stream<FileEvent>({ path: this.#at('watch'), query: { ...snake(options), path },
        signal: options.signal })
    const first = await open()
    const start = await first.next()
    return changes(path, start, first, open, options.signal)
  }

  async #pages (call: string, path: string, options: FileOptions): Promise<FileInfo[]> {
    return this.#transport.pages({ path: this.#at(call), query: { ...snake(options), path }, signal: options.signal })
  }
}

type Watch = AsyncGenerator<{ event: FileEvent }, void, undefined>

/** changes yields what a watch tells, whose first event was read. */
async function * changes (path: string, start: IteratorResult<{ event: FileEvent }, void>, first: Watch,
  open: () => Promise<Watch>, signal: AbortSignal | undefined): AsyncGenerator<FileEvent, void, undefined> {
  if (start.done) return
  let next: Watch | undefined = first
  const again = async (): Promise<Watch> => {
    const stream = next ?? await open()
    next = undefined
    return stream
  }
  for await (const { event } of resume(signal, again)) {
    if (event.type === 'start') yield { type: 'overflow', path: event.path || path }
    else yield event
    if (event.type === 'remove' && !event.name) return
  }
}
