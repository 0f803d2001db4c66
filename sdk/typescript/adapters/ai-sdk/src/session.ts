import { Buffer } from 'node:buffer'
import { posix } from 'node:path'
import { type Experimental_SandboxProcess, type Experimental_SandboxSession,
  extractLines } from '@ai-sdk/provider-utils'
import { type Command, type Sandbox, workspace } from '@berth/sdk'

type Session = Experimental_SandboxSession
type Options<Name extends keyof Session> = Session[Name] extends (options: infer Given) => unknown ? Given : never
type Process = Experimental_SandboxProcess
type WritableProcess = Process & { readonly stdin: WritableStream<Uint8Array> }
type SpawnOptions = Options<'run'> & { stdin?: boolean }

/** How a session runs commands. */
export interface SessionOptions {
  /** Time limit of each command of `run`, in seconds up to 86,400; default that of the daemon, 300. */
  timeoutSeconds?: number
}

const outputBytes = 16 << 20 // of a process's output that waits for its reader; the most that the daemon keeps

/**
 * A container as tools see it: files and commands, and nothing that could stop it or open its network. Paths are
 * absolute, or relative to `/workspace`.
 */
export class BerthSandboxSession implements Session {
  readonly #sandbox: Sandbox
  readonly #options: SessionOptions

  constructor (sandbox: Sandbox, options: SessionOptions = {}) {
    this.#sandbox = sandbox
    this.#options = options
  }

  /** What a model should know of the container. The AI SDK puts it nowhere by itself. */
  get description (): string {
    const { info } = this.#sandbox
    const hosts = info.network.allow?.join(', ')
    const reach = { none: 'There is no network.', open: 'Public hosts can be reached.',
      allowlist: `The network reaches these hosts alone: ${hosts || 'none'}.` }
    return [
      `A Linux container of the image ${info.image}. Commands run in bash, in ${workspace}, where relative paths of ` +
      'files begin, too.',
      'Files stay from command to command; variables and the directory of a command do not.',
      reach[info.network.mode ?? 'none']
    ].join('\n')
  }

  /** run runs a command in bash. One that fails is a result with its exit code. */
  async run ({ command, workingDirectory, env, abortSignal }: Options<'run'>):
  Promise<{ exitCode: number, stdout: string, stderr: string }> {
    const { timeoutSeconds } = this.#options
    const result = await this.#sandbox.run(command, { cwd: absolute(workingDirectory), signal: abortSignal,
      ...env && { env }, ...timeoutSeconds !== undefined && { timeoutSeconds } })
    return { exitCode: result.returnCode, stdout: result.stdout, stderr: result.explainedStderr }
  }

  /** spawn starts a command, which has no time limit. Its streams are read when their readers ask. */
  spawn (options: SpawnOptions & { stdin: true }): Promise<WritableProcess>
  spawn (options: SpawnOptions & { stdin?: false }): Promise<Process>
  spawn (options: SpawnOptions): Promise<Process | WritableProcess>
  async spawn ({ command, workingDirectory, env, abortSignal, stdin = false }: SpawnOptions):
  Promise<Process | WritableProcess> {
    const started = await this.#sandbox.run(command, { background: true, cwd: absolute(workingDirectory),
      signal: abortSignal, ...env && { env }, openStdin: stdin, maxOutputBytes: outputBytes, onOutputLimit: 'wait' })
    return processOf(started, (await started.info()).pid, abortSignal, stdin)
  }

  /** readFile opens a file; `null` if there is none. */
  async readFile ({ path, abortSignal: signal }: Options<'readFile'>): Promise<ReadableStream<Uint8Array> | null> {
    return orNull(this.#sandbox.files.stream(path, { signal }))
  }

  /** readBinaryFile returns the bytes of a file; `null` if there is none. */
  async readBinaryFile ({ path, abortSignal: signal }: Options<'readBinaryFile'>): Promise<Uint8Array | null> {
    return orNull(this.#sandbox.files.get(path, { signal }))
  }

  /** readTextFile returns a text, or the lines of it that were asked for; `null` if there is no such file. */
  async readTextFile ({ path, encoding, startLine, endLine, abortSignal }: Options<'readTextFile'>):
  Promise<string | null> {
    const known = encodingOf(encoding)
    const bytes = await this.readBinaryFile({ path, ...abortSignal && { abortSignal } })
    if (bytes === null) return null
    const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString(known)
    return extractLines({ text, ...startLine !== undefined && { startLine }, ...endLine !== undefined && { endLine } })
  }

  /** writeFile stores a file as it comes, and the directories above it. */
  async writeFile ({ path, content, abortSignal: signal }: Options<'writeFile'>): Promise<void> {
    await this.#sandbox.files.put(path, content, { signal })
  }

  /** writeBinaryFile stores a file, whole or not at all, and the directories above it. */
  async writeBinaryFile ({ path, content, abortSignal: signal }: Options<'writeBinaryFile'>): Promise<void> {
    await this.#sandbox.files.put(path, content, { signal })
  }

  /** writeTextFile stores a text, whole or not at all, and the directories above the file. */
  async writeTextFile ({ path, content, encoding, abortSignal: signal }: Options<'writeTextFile'>): Promise<void> {
    await this.#sandbox.files.put(path, Buffer.from(content, encodingOf(encoding)), { signal })
  }

  /** stat describes what a path leads to; `null` if there is nothing, not even behind a link. */
  async stat ({ path, abortSignal: signal }: Options<'stat'>):
  Promise<{ type: 'file' | 'directory' | 'other', size: number } | null> {
    const info = await orNull(this.#sandbox.files.stat(path, { signal }))
    const type = info?.type === 'symlink' ? info.targetType : info?.type
    if (info === null || type === undefined) return null
    if (type === 'symlink') return { type: 'other', size: info.sizeBytes }
    const size = info.type === 'symlink' && type === 'file' ? await this.#size(path, signal) : info.sizeBytes
    return { type, size }
  }

  // The daemon describes a link itself, but sends what it leads to.
  async #size (path: string, signal: AbortSignal | undefined): Promise<number> {
    const res = await this.#sandbox.client.transport.open({ method: 'HEAD', query: { path }, signal,
      path: ['containers', this.#sandbox.id, 'fs', 'content'] })
    return Number(res.headers.get('content-length'))
  }

  /** listDirectory lists the entries of a directory; `null` if there is none. */
  async listDirectory ({ path, abortSignal: signal }: Options<'listDirectory'>):
  Promise<Array<{ name: string, type: 'file' | 'directory' | 'symlink' | 'other' }> | null> {
    const found = await this.stat({ path, ...signal && { abortSignal: signal } })
    if (found === null) return null
    if (found.type !== 'directory') {
      throw new Error(`${path} is no directory; readFile reads a file`)
    }
    const entries = await orNull(this.#sandbox.files.list(path, { signal }))
    return entries && entries.map(e => ({ name: posix.basename(e.path), type: e.type }))
  }

  /** deleteFile removes a file, or a link itself, and reports whether it was there. */
  async deleteFile ({ path, abortSignal: signal }: Options<'deleteFile'>): Promise<boolean> {
    const info = await orNull(this.#sandbox.files.stat(path, { signal }))
    if (info?.type === 'directory') {
      throw new Error(`${path} is a directory, and deleteFile removes files only; remove it by run, with rm -r`)
    }
    return info !== null && await orNull(this.#sandbox.files.remove(path, { signal })) !== null
  }
}

function absolute (directory = workspace): string { return posix.resolve(workspace, directory) }

function encodingOf (encoding = 'utf-8'): BufferEncoding {
  if (Buffer.isEncoding(encoding)) return encoding
  throw new Error(`the encoding ${encoding} is not known; use utf-8, utf-16le, latin1, ascii, base64 or hex, or ` +
    'readBinaryFile and writeBinaryFile')
}

/** orNull returns null for what does not exist. */
async function orNull<T> (call: Promise<T>): Promise<T | null> {
  return call.catch((e: { code?: string }) => {
    if (e.code === 'not_found') return null
    throw e
  })
}

/** processOf returns the handle of a command that has started. It is killed when the signal aborts. */
function processOf (command: Command, pid: number | undefined, signal: AbortSignal | undefined, stdin: boolean):
Process | WritableProcess {
  // A command that has ended already is a conflict, and one whose container is gone is not found.
  const kill = async (): Promise<void> => command.kill().catch((e: { code?: string }) => {
    if (e.code !== 'conflict' && e.code !== 'not_found' && e.code !== 'expired') throw e
  })
  const abort = (): void => { kill().catch(() => {}) } // wait rejects with the reason of the abort in any case
  if (signal?.aborted) abort()
  signal?.addEventListener('abort', abort, { once: true })
  return {
    ...pid !== undefined && { pid },
    stdout: command.stream('stdout'),
    stderr: command.stream('stderr'),
    kill,
    async wait () {
      try {
        return { exitCode: (await command.wait()).returnCode }
      } finally {
        signal?.removeEventListener('abort', abort)
      }
    },
    ...stdin && {
      stdin: new WritableStream<Uint8Array>({
        write: async chunk => command.stdin(chunk),
        close: async () => command.closeStdin(),
        abort: async () => command.closeStdin()
      })
    }
  }
}
