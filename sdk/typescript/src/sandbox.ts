import { type ChangeContainer, type Container, type ContainerStats, type CreateContainer, type CreateSnapshot,
  type DeletedContainer, type Exec, type JobSummary, type Manifest, type Network, type Snapshot } from './types.js'
import { Client } from './client.js'
import { Code } from './code.js'
import { Command, type CommandResult, type RunOptions, runCommand, startCommand } from './command.js'
import { Files } from './files.js'
import { Ports } from './ports.js'
import { Pty, type PtyOptions } from './pty.js'
import { Tools } from './tools.js'
import { type CallOptions, type Transport } from './transport.js'
import { newKey } from './wire.js'

/** Which daemon to use; default is the one of the environment, see {@link ClientOptions}. */
export interface ClientChoice extends CallOptions { client?: Client }

/** What a new container is like. Everything may be left out. */
export interface CreateOptions extends ClientChoice, Omit<CreateContainer, 'network'> {
  /** What it may reach; default `none`. */
  network?: 'none' | 'open' | Network
}

/** Which containers a list has. */
export interface ListOptions extends ClientChoice {
  /** Labels that a container must have, all of them. */
  labels?: Record<string, string>
  /** Default: all states but `expired`. */
  state?: Container['state']
}

let usual: Client | undefined
const usualClient = (): Client => { return usual ??= new Client() }

/**
 * A container: it has files, runs commands and code, and keeps its state until its lease ends. `await using` deletes it
 * at the end of the block.
 */
export class Sandbox implements AsyncDisposable {
  /** ID of the container, valid until it is removed. */
  readonly id: string
  /** The container as of the last answer that described it; `refresh` asks again. */
  info: Container
  readonly client: Client
  readonly files: Files
  readonly code: Code
  readonly ports: Ports
  readonly tools: Tools
  readonly #transport: Transport

  /** Use `Sandbox.create`, `Sandbox.get` or `Sandbox.list`. */
  constructor (client: Client, info: Container) {
    this.client = client
    this.id = info.id
    this.info = info
    this.#transport = client.transport
    this.files = new Files(this.#transport, this.id)
    this.code = new Code(this.#transport, this.id)
    this.ports = new Ports(this.#transport, this.id)
    this.tools = new Tools(this.#transport, this.id)
  }

  /**
   * create makes a container, which runs. With a `name` and `existing: true` it returns the live container of that
   * name, if there is one. An unknown image or snapshot is a NotFoundError, a taken name an AlreadyExistsError, and too
   * many containers are a TooManyRequestsError.
   */
  static async create (options: CreateOptions = {}): Promise<Sandbox> {
    const { client = usualClient(), signal, ...rest } = options
    const { transport } = client
    const body = rest.existing ? rest : { idempotencyKey: newKey(transport.retrySeconds), ...rest }
    return new Sandbox(client, await transport.json({ method: 'POST', path: ['containers'], body, signal,
      repeat: true }))
  }

  /** get returns a container by its ID or name. It neither starts nor resumes it. */
  static async get (id: string, options: ClientChoice = {}): Promise<Sandbox> {
    const { client = usualClient(), signal } = options
    return new Sandbox(client, await client.transport.json({ path: ['containers', id], signal }))
  }

  /** list returns the containers of the key's owner, newest first. */
  static async list (options: ListOptions = {}): Promise<Sandbox[]> {
    const { client = usualClient(), signal, labels = {}, state } = options
    const label = Object.entries(labels).map(([name, value]) => `${name}=${value}`)
    const all = await client.transport.pages<Container>({ path: ['containers'], query: { label, state, limit: 1000 },
      signal })
    return all.map(info => new Sandbox(client, info))
  }

  /** Name of the container; `''` if it has none. */
  get name (): string { return this.info.name ?? '' }

  /** When its lease ends without another use, as of `info`. */
  get expiresAt (): Date { return new Date(this.info.expiresAt) }

  #at (...more: string[]): string[] { return ['containers', this.id, ...more] }

  async #change (how: string, body: object, options: CallOptions, repeat = true): Promise<this> {
    this.info = await this.#transport.json({ method: 'POST', path: this.#at(how), body, repeat, ...options })
    return this
  }

  /**
   * run runs a command and waits for its end: a text for bash, or a program with its arguments. A command that fails is
   * no exception: look at `returnCode`, or use `check()`. The command runs once, and its output comes completely, also
   * if the connection breaks or the daemon restarts meanwhile. If the signal aborts, the command is killed.
   *
   * With `background: true` it returns the {@link Command} as soon as it has started.
   */
  run (command: string | readonly string[], options: RunOptions & { background: true }): Promise<Command>
  run (command: string | readonly string[], options?: RunOptions & { background?: false }): Promise<CommandResult>
  async run (command: string | readonly string[], options: RunOptions = {}): Promise<Command | CommandResult> {
    return options.background
      ? startCommand(this.#transport, this.id, command, options)
      : runCommand(this.#transport, this.id, command, options)
  }

  /** command returns a command by its ID, or by the process ID of a running one. */
  command (id: string): Command { return new Command(this.#transport, this.id, id) }

  /** commands lists running and remembered commands in the order of their start. */
  async commands (options: CallOptions = {}): Promise<Exec[]> {
    return (await this.#transport.json<{ data: Exec[] }>({ path: this.#at('execs'), ...options })).data
  }

  /** pty opens a terminal. */
  async pty (options: PtyOptions = {}): Promise<Pty> { return Pty.open(this.#transport, this.id, options) }

  /** refresh asks for the container's state, and updates `info`. */
  async refresh (options: CallOptions = {}): Promise<this> {
    this.info = await this.#transport.json({ path: this.#at(), ...options })
    return this
  }

  /** update changes name, labels, limits, network, public ports or lease. */
  async update (changes: Omit<ChangeContainer, 'network'> & Pick<CreateOptions, 'network'>, options: CallOptions = {}):
  Promise<this> {
    this.info = await this.#transport.json({ method: 'PATCH', path: this.#at(), body: changes, ...options })
    return this
  }

  /**
   * renew moves the end of the lease to at least `seconds` from now, by default the idle timeout; never past
   * `info.maxExpiresAt`.
   */
  async renew (seconds = 0, options: CallOptions = {}): Promise<this> {
    return this.#change('extend', { seconds }, options)
  }

  /** start starts it if it is stopped. Any other use does so, too. */
  async start (options: CallOptions = {}): Promise<this> { return this.#change('start', {}, options) }
  /** stop ends its processes and keeps its files. */
  async stop (options: CallOptions = {}): Promise<this> { return this.#change('stop', {}, options) }
  /** pause freezes its processes until the next use. A stopped one is a ConflictError. */
  async pause (options: CallOptions = {}): Promise<this> { return this.#change('pause', {}, options) }
  /** resume continues a paused one. A stopped one is a ConflictError. */
  async resume (options: CallOptions = {}): Promise<this> { return this.#change('resume', {}, options) }
  /** reset gives it the files of its image again, except those of the workspace, and ends its processes. */
  async reset (options: CallOptions = {}): Promise<this> { return this.#change('reset', {}, options, false) }

  /** delete ends its commands and removes it with its files. With `keepWorkspace` the workspace stays. */
  async delete (options: CallOptions & { keepWorkspace?: boolean } = {}): Promise<DeletedContainer> {
    const { keepWorkspace, signal } = options
    return this.#transport.json({ method: 'DELETE', path: this.#at(), signal,
      query: { keep_workspace: keepWorkspace } })
  }

  async [Symbol.asyncDispose] (): Promise<void> {
    await this.delete().catch((e: { code?: string }) => {
      if (e.code !== 'not_found' && e.code !== 'expired') throw e
    })
  }

  /** snapshot keeps all files as they are now, while commands run. A taken name is an AlreadyExistsError. */
  async snapshot (options: CallOptions & CreateSnapshot = {}): Promise<Snapshot> {
    const { signal, ...body } = options
    return this.#transport.json({ method: 'POST', path: this.#at('snapshots'), body, signal })
  }

  /** snapshots lists its snapshots, newest first. */
  async snapshots (options: CallOptions = {}): Promise<Snapshot[]> {
    return this.#transport.pages({ path: this.#at('snapshots'), query: { limit: 1000 }, ...options })
  }

  /** fork makes 1 to 100 copies, which run: all of them, or none. */
  async fork (count = 1, options: CallOptions = {}): Promise<Sandbox[]> {
    const { data } = await this.#transport.json<{ data: Container[] }>({ method: 'POST', path: this.#at('fork'),
      body: { count }, ...options })
    return data.map(info => new Sandbox(this.client, info))
  }

  /** restore gives it the files of a snapshot, by ID or name, in place of its own, and ends its processes. */
  async restore (snapshot: string | { id: string }, options: CallOptions = {}): Promise<this> {
    const body = { snapshot: typeof snapshot === 'string' ? snapshot : snapshot.id }
    return this.#change('restore', body, options, false)
  }

  /** stats returns what it uses now, and the samples of the last hour. */
  async stats (options: CallOptions = {}): Promise<ContainerStats> {
    return this.#transport.json({ path: this.#at('stats'), ...options })
  }

  /** jobs lists the jobs in its workspace. */
  async jobs (options: CallOptions = {}): Promise<JobSummary[]> {
    return (await this.#transport.json<{ data: JobSummary[] }>({ path: this.#at('jobs'), ...options })).data
  }

  /** manifest lists the files of a job, with the command that made each. */
  async manifest (jobId: string, options: CallOptions = {}): Promise<Manifest> {
    return this.#transport.json({ path: this.#at('jobs', jobId, 'manifest'), ...options })
  }
}
