import { type Approval, type Build, type BuildEvent, type ChangeKey, type ChangeWebhook,
  type CreateKey, type CreateWebhook, type FeedEvent, type ImageInfo, type ImageLine, type Key, type KeyAndSecret,
  type KeyStatus, type NewWebhook, type Snapshot, type Webhook } from './types.js'
import { ConnectionFailedError, errorOf } from './errors.js'
import { type FileSource } from './files.js'
import { type CallOptions, type Request, type Transport, resume } from './transport.js'
import { decode } from './wire.js'

/** What every group of calls has. */
class Resource {
  constructor (protected readonly transport: Transport) {}

  protected async listAll<T> (path: string[], options: CallOptions, query: Request['query'] = {}): Promise<T[]> {
    return this.transport.pages({ path, query, ...options })
  }
}

// The Files and Skills APIs are the hosted ones: requests name a version, and lists have pages of another kind.
const hosted = { 'anthropic-version': '2023-06-01' }

class HostedResource extends Resource {
  protected async listHosted<T> (path: string[], options: CallOptions): Promise<T[]> {
    const all: T[] = []
    for (let page: string | undefined; ;) {
      const answer = await this.transport.json<{ data: T[], nextPage?: string | null }>({ path, headers: hosted,
        query: { limit: 1000, page }, ...options })
      all.push(...answer.data)
      if (!answer.nextPage) return all
      page = answer.nextPage
    }
  }
}

/** A file that is stored outside of containers. `files: [its id]` puts it into one. */
export interface StoredFile {
  id: string
  filename: string
  mimeType: string
  sizeBytes: number
  createdAt: string
  /** The hosted API's field: true for files that code made. */
  downloadable: boolean
  /** null: it stays until it is deleted. */
  expiresAt: string | null
}

/** Stored files: `client.files`. */
export class StoredFiles extends HostedResource {
  /** upload stores a file. `expiresInSeconds` of 0 or none keeps it until it is deleted. */
  async upload (filename: string, source: string | Uint8Array | ArrayBuffer | Blob,
    options: CallOptions & { type?: string, expiresInSeconds?: number } = {}): Promise<StoredFile> {
    const form = new FormData()
    if (options.expiresInSeconds) form.set('expires_in_seconds', String(options.expiresInSeconds))
    form.set('file', blobOf(source, options.type), filename)
    return this.transport.json({ method: 'POST', path: ['files'], raw: form, headers: hosted, signal: options.signal })
  }

  /** list returns all stored files, newest first. */
  async list (options: CallOptions = {}): Promise<StoredFile[]> { return this.listHosted(['files'], options) }

  async get (id: string, options: CallOptions = {}): Promise<StoredFile> {
    return this.transport.json({ path: ['files', id], headers: hosted, ...options })
  }

  /** download returns a file's bytes. */
  async download (id: string, options: CallOptions = {}): Promise<Uint8Array<ArrayBuffer>> {
    return this.transport.bytes({ path: ['files', id, 'content'], headers: hosted, ...options })
  }

  async delete (id: string, options: CallOptions = {}): Promise<void> {
    await this.transport.json({ method: 'DELETE', path: ['files', id], headers: hosted, ...options })
  }
}

/** A skill of the daemon. */
export interface Skill {
  id: string
  displayName: string
  latestVersionId: string
  /** `custom`, or `anthropic` for those that the daemon provides. */
  source: { type: string }
  createdAt: string
  updatedAt: string
}

/** One version of a skill. */
export interface SkillVersion {
  id: string
  skillId: string
  name: string
  description: string
  createdAt: string
}

/** Skills, for containers of Messages requests: `client.skills`. */
export class Skills extends HostedResource {
  /** create stores a skill: its files by path, such as `pdf-forms/SKILL.md`. */
  async create (files: Record<string, string | Uint8Array | Blob>,
    options: CallOptions & { displayName?: string } = {}): Promise<Skill> {
    return this.#send(['skills'], files, options)
  }

  /** createVersion stores a new version of a skill. */
  async createVersion (id: string, files: Record<string, string | Uint8Array | Blob>, options: CallOptions = {}):
  Promise<SkillVersion> {
    return this.#send(['skills', id, 'versions'], files, options)
  }

  /** list returns yours, newest first, then those that the daemon provides. */
  async list (options: CallOptions = {}): Promise<Skill[]> { return this.listHosted(['skills'], options) }

  async get (id: string, options: CallOptions = {}): Promise<Skill> {
    return this.transport.json({ path: ['skills', id], headers: hosted, ...options })
  }

  async versions (id: string, options: CallOptions = {}): Promise<SkillVersion[]> {
    return this.listHosted(['skills', id, 'versions'], options)
  }

  /** download returns the files of a version, by default the latest, as a zip archive. */
  async download (id: string, version = 'latest', options: CallOptions = {}): Promise<Uint8Array<ArrayBuffer>> {
    return this.transport.bytes({ path: ['skills', id, 'versions', version, 'content'], headers: hosted, ...options })
  }

  /** delete removes a skill with its versions. */
  async delete (id: string, options: CallOptions = {}): Promise<void> {
    await this.transport.json({ method: 'DELETE', path: ['skills', id], headers: hosted, ...options })
  }

  async #send<T> (path: string[], files: Record<string, string | Uint8Array | Blob>, options: CallOptions &
  { displayName?: string }): Promise<T> {
    const form = new FormData()
    if (options.displayName) form.set('display_name', options.displayName)
    for (const [name, content] of Object.entries(files)) form.append('files[]', blobOf(content), name)
    return this.transport.json({ method: 'POST', path, raw: form, headers: hosted, signal: options.signal })
  }
}

function blobOf (source: string | Uint8Array | ArrayBuffer | Blob, type?: string): Blob {
  if (source instanceof Blob && type === undefined) return source
  return new Blob([source as BlobPart], { type: type ?? '' })
}

/** Images that containers start from: `client.images`. Changes need an admin key. */
export class Images extends Resource {
  async list (options: CallOptions = {}): Promise<ImageInfo[]> { return this.listAll(['images'], options) }

  /** pull fetches an image from a registry: `debian:12`. */
  async pull (ref: string, options: ProgressOptions = {}): Promise<ImageInfo> {
    return this.#lines({ method: 'POST', path: ['images', 'pull'], body: { ref }, signal: options.signal }, options)
  }

  /** import stores an archive, of docker save or an OCI one, under a name. */
  async import (name: string, archive: FileSource, options: ProgressOptions = {}): Promise<ImageInfo> {
    return this.#lines({ method: 'POST', path: ['images', 'import'], query: { name }, raw: archive as BodyInit,
      signal: options.signal }, options)
  }

  /** push sends an image to a registry, by default under its own name. */
  async push (name: string, ref?: string, options: ProgressOptions = {}): Promise<ImageInfo> {
    return this.#lines({ method: 'POST', path: ['images', 'push'], body: { name, ref }, signal: options.signal },
      options)
  }

  /** delete removes an image by its name or digest. Containers that run keep it. */
  async delete (ref: string, options: CallOptions = {}): Promise<void> {
    await this.transport.json({ method: 'DELETE', path: ['images'], query: { ref }, ...options })
  }

  // lines reads an answer whose lines are steps, and at the end the image or an error.
  async #lines (request: Request, { onProgress }: ProgressOptions): Promise<ImageInfo> {
    for await (const line of jsonLines<ImageLine>(await this.transport.open(request))) {
      if (line.error) throw errorOf({ ...line.error, status: 0, retryAfter: line.error.retryAfterSeconds })
      if (line.image) return line.image
      onProgress?.({ stage: line.stage ?? '', item: line.item ?? '', done: line.done ?? 0, total: line.total ?? 0 })
    }
    throw brokenOff('the image was there')
  }
}

/** A step of a pull, an import or a push. Bytes; a total of 0 is unknown. */
export interface ImageProgress { stage: string, item: string, done: number, total: number }

/** Options of calls that tell of their progress. */
export interface ProgressOptions extends CallOptions { onProgress?: (step: ImageProgress) => void }

/** How an image is built. */
export interface BuildOptions extends CallOptions {
  /** Default: `Dockerfile`. */
  dockerfile?: string
  target?: string
  buildArgs?: Record<string, string>
  labels?: Record<string, string>
  noCache?: boolean
  pull?: boolean
  network?: 'none' | 'allowlist' | 'open'
  /** Hosts that steps may reach. */
  allow?: string[]
  timeoutSeconds?: number
  /** For `RUN --mount=type=secret`: values by ID, at most 32 of 500 KiB. */
  secrets?: Record<string, string | Uint8Array | Blob>
  /** Called with each event of the build, such as the output of a step. */
  onEvent?: (event: BuildEvent) => void
}

/** Builds of Dockerfiles: `client.builds`. */
export class Builds extends Resource {
  /** create builds a tar with a Dockerfile, and returns the image under that name. An abort cancels the build. */
  async create (name: string, context: FileSource, options: BuildOptions = {}): Promise<ImageInfo> {
    const { signal, onEvent, buildArgs = {}, labels = {}, secrets, noCache, timeoutSeconds, ...rest } = options
    const pairs = (of: Record<string, string>): string[] => Object.entries(of).map(([key, value]) => `${key}=${value}`)
    const query = { ...rest, name, build_arg: pairs(buildArgs), label: pairs(labels), no_cache: noCache,
      timeout_seconds: timeoutSeconds }
    const body: Pick<Request, 'raw' | 'headers'> = secrets === undefined
      ? { raw: context as BodyInit, headers: { 'Content-Type': 'application/x-tar' } }
      : { raw: await buildForm(secrets, context) }
    const stream = await this.transport.stream<BuildEvent>({ method: 'POST', path: ['images', 'build'], query, signal,
      ...body })
    for await (const { event } of stream) {
      onEvent?.(event)
      const { error } = event
      if (error) {
        throw errorOf({ code: 'internal', message: '', ...error, status: 0, retryAfter: error.retryAfterSeconds })
      }
      if (event.image) return event.image
    }
    throw brokenOff('the build ended; build again: finished steps are in the cache')
  }

  /** list returns your builds that wait or run. */
  async list (options: CallOptions = {}): Promise<Build[]> {
    return this.listAll(['images', 'builds'], options)
  }

  /** cancel ends a build. */
  async cancel (id: string, options: CallOptions = {}): Promise<void> {
    await this.transport.json({ method: 'DELETE', path: ['images', 'builds', id], ...options })
  }
}

async function buildForm (secrets: NonNullable<BuildOptions['secrets']>, context: FileSource): Promise<FormData> {
  const form = new FormData()
  for (const [id, value] of Object.entries(secrets)) form.append('secret', blobOf(value), id)
  const archive = context instanceof ReadableStream ? await new Response(context).blob() : blobOf(context)
  form.append('context', archive, 'context.tar')
  return form
}

/** Snapshots of all containers: `client.snapshots`. `sandbox.snapshot()` makes one. */
export class Snapshots extends Resource {
  /** list returns your snapshots, newest first. */
  async list (options: CallOptions & { container?: string } = {}): Promise<Snapshot[]> {
    const { container, signal } = options
    return this.listAll(['snapshots'], { signal }, { container, limit: 1000 })
  }

  /** get returns a snapshot by its ID or name. */
  async get (snapshot: string, options: CallOptions = {}): Promise<Snapshot> {
    return this.transport.json({ path: ['snapshots', snapshot], ...options })
  }

  /** delete removes a snapshot. Containers that were made of it stay. */
  async delete (snapshot: string, options: CallOptions = {}): Promise<void> {
    await this.transport.json({ method: 'DELETE', path: ['snapshots', snapshot], ...options })
  }
}

/** API keys: `client.keys`. All but `self` need an admin key. */
export class Keys extends Resource {
  async list (options: CallOptions = {}): Promise<Key[]> { return this.listAll(['keys'], options) }

  /** self describes the client's own key and what it uses. */
  async self (options: CallOptions = {}): Promise<KeyStatus> { return this.get('self', options) }

  async get (id: string, options: CallOptions = {}): Promise<KeyStatus> {
    return this.transport.json({ path: ['keys', id], ...options })
  }

  /** create makes a key. Only this answer has its `secret`. */
  async create (key: CreateKey, options: CallOptions = {}): Promise<KeyAndSecret> {
    return this.transport.json({ method: 'POST', path: ['keys'], body: key, ...options })
  }

  async update (id: string, changes: ChangeKey, options: CallOptions = {}): Promise<KeyStatus> {
    return this.transport.json({ method: 'PATCH', path: ['keys', id], body: changes, ...options })
  }

  /** delete revokes a key. */
  async delete (id: string, options: CallOptions = {}): Promise<void> {
    await this.transport.json({ method: 'DELETE', path: ['keys', id], ...options })
  }
}

/** Webhooks: `client.webhooks`. */
export class Webhooks extends Resource {
  async list (options: CallOptions = {}): Promise<Webhook[]> { return this.listAll(['webhooks'], options) }

  async get (id: string, options: CallOptions = {}): Promise<Webhook> {
    return this.transport.json({ path: ['webhooks', id], ...options })
  }

  /** create has events posted to a URL. Only this answer has the `secret` that verifies their signatures. */
  async create (webhook: CreateWebhook, options: CallOptions = {}): Promise<NewWebhook> {
    return this.transport.json({ method: 'POST', path: ['webhooks'], body: webhook, ...options })
  }

  async update (id: string, changes: ChangeWebhook, options: CallOptions = {}): Promise<Webhook> {
    return this.transport.json({ method: 'PATCH', path: ['webhooks', id], body: changes, ...options })
  }

  async delete (id: string, options: CallOptions = {}): Promise<void> {
    await this.transport.json({ method: 'DELETE', path: ['webhooks', id], ...options })
  }
}

/** Which events are told. */
export interface EventOptions extends CallOptions {
  /** ID of a container. */
  container?: string
  /** Types such as `exec.ended`; with a dot at the end, all that begin so: `exec.`. */
  types?: string[]
  /** Of another owner, for admins. */
  owner?: string
  /** Time in RFC 3339: only events from then on. */
  since?: string
  /** ID of an event: only events behind it. */
  after?: string
}

/** What happens to containers, commands, files and approvals: `client.events`. */
export class Events extends Resource {
  /** list returns one page of events, oldest first: the newest, or those from `since` on or behind `after`. */
  async list (options: EventOptions & { limit?: number } = {}): Promise<FeedEvent[]> {
    const { signal, types, ...query } = options
    return (await this.transport.json<{ data: FeedEvent[] }>({ path: ['events'], query: { ...query, type: types },
      signal })).data
  }

  /**
   * follow yields events as they happen. Without `since` and `after` it begins with the next one. It goes on where the
   * connection breaks, and misses nothing.
   */
  async * follow (options: EventOptions = {}): AsyncGenerator<FeedEvent, void, undefined> {
    const { signal, types, since, after, ...query } = options
    let last = after
    const open = async (): Promise<AsyncIterable<{ id: string, event: FeedEvent }>> => this.transport.stream({
      path: ['events'], signal, headers: last === undefined ? {} : { 'Last-Event-ID': last },
      query: { ...query, type: types, since: last === undefined ? since : undefined } })
    for await (const { id, event } of resume(signal, open)) {
      last = id || last
      yield event
    }
  }
}

/** What waits for a person's decision: `client.approvals`. */
export class Approvals extends Resource {
  /** list returns what waits, newest first. */
  async list (options: CallOptions & { kind?: Approval['kind'], container?: string } = {}): Promise<Approval[]> {
    const { signal, ...query } = options
    return this.listAll(['approvals'], { signal }, query)
  }

  async get (id: string, options: CallOptions = {}): Promise<Approval> {
    return this.transport.json({ path: ['approvals', id], ...options })
  }

  /** approve lets it go on. For connections, `for: 'life'` makes the host an entry of the container's list. */
  async approve (id: string, options: CallOptions & { for?: 'once' | 'life' } = {}): Promise<Approval> {
    const { signal, ...body } = options
    return this.transport.json({ method: 'POST', path: ['approvals', id, 'approve'], body, signal, repeat: true })
  }

  /** refuse ends it. The program is told the reason, of at most 1,000 bytes. */
  async refuse (id: string, options: CallOptions & { for?: 'once' | 'life', reason?: string } = {}): Promise<Approval> {
    const { signal, ...body } = options
    return this.transport.json({ method: 'POST', path: ['approvals', id, 'refuse'], body, signal, repeat: true })
  }
}

/** An entry of the audit log: who did what to which thing. docs/operations.md explains the fields. */
export interface AuditEntry {
  seq: number
  time: string
  act: string
  outcome: string
  actor: string
  owner?: string
  containerId?: string
  execId?: string
  item?: string
  hash: string
  [more: string]: unknown
}

/** The audit log: `client.audit`. It needs an admin key. */
export class Audit extends Resource {
  /** entries yields entries, oldest first. Times are in RFC 3339; `last` is a number of entries. */
  async * entries (options: CallOptions & { container?: string, actor?: string, owner?: string, act?: string,
    since?: string, until?: string, last?: number } = {}): AsyncGenerator<AuditEntry, void, undefined> {
    const { signal, ...query } = options
    yield * jsonLines<AuditEntry>(await this.transport.open({ path: ['audit'], query, signal }))
  }

  /** head returns number and hash of the newest entry. */
  async head (options: CallOptions = {}): Promise<{ seq: number, hash: string }> {
    return this.transport.json({ path: ['audit', 'head'], ...options })
  }
}

/** jsonLines yields the lines of an answer. */
async function * jsonLines<T> (res: Response): AsyncGenerator<T, void, undefined> {
  if (res.body === null) return
  let rest = ''
  const reader = res.body.pipeThrough(new TextDecoderStream()).getReader()
  try {
    for (;;) {
      const { done, value = '' } = await reader.read()
      const lines = (rest + value).split('\n')
      rest = done ? '' : lines.pop() ?? ''
      for (const line of lines) if (line !== '') yield decode<T>(JSON.parse(line))
      if (done) return
    }
  } finally {
    reader.cancel().catch(() => {}) // the connection may be broken already
  }
}

function brokenOff (before: string): ConnectionFailedError {
  return new ConnectionFailedError({ code: 'unavailable', status: 0, message: `the daemon broke off before ${before}` })
}
