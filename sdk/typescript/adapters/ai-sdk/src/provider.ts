import { createHash } from 'node:crypto'
import { HarnessSandboxAuthenticationError, type HarnessV1SandboxProvider } from '@ai-sdk/harness'
import { AlreadyExistsError, type CreateOptions, NotFoundError, Sandbox, UnauthenticatedError,
  UnsupportedError } from '@berth/sdk'
import { BerthNetworkSandboxSession, providerId } from './network.js'
import { BerthSandboxSession, type SessionOptions } from './session.js'

type CreateSession = NonNullable<Parameters<HarnessV1SandboxProvider['createSession']>[0]>
type ResumeSession = Parameters<NonNullable<HarnessV1SandboxProvider['resumeSession']>>[0]

/** What containers are like, as in `Sandbox.create`; or a sandbox that is there already, and stays yours. */
export type BerthSandboxSettings = SessionOptions & {
  /** Ports that a harness may take for its bridge; default 4000 to 4003. Others can be reached as well. */
  ports?: readonly number[]
} & (
  | { sandbox: Sandbox }
  | { sandbox?: never } & Omit<CreateOptions, 'name' | 'existing' | 'idempotencyKey' | 'signal' | 'workspaceId'>
)

const defaultPorts = [4000, 4001, 4002, 4003]

/** createBerthSandbox returns a provider. It sends nothing before the first session. */
export function createBerthSandbox (settings: BerthSandboxSettings = {}): BerthSandboxProvider {
  return new BerthSandboxProvider(settings)
}

/** Makes a container for each session of an agent, and finds it again by the session's ID. */
export class BerthSandboxProvider implements HarnessV1SandboxProvider {
  readonly specificationVersion = 'harness-sandbox-v1' as const
  readonly providerId = providerId
  readonly #settings: BerthSandboxSettings

  constructor (settings: BerthSandboxSettings) { this.#settings = settings }

  /**
   * createSession makes a container. With an `identity`, what `onFirstCreate` has done is kept as a snapshot, and later
   * sessions begin with its files. A session ID that has a container is an AlreadyExistsError.
   */
  createSession = async (options: CreateSession = {}): Promise<BerthNetworkSandboxSession> =>
    this.#session(async create => this.#create(create, options))

  /** resumeSession returns the container of a session. It starts again at its first use, with its files. */
  resumeSession = async ({ sessionId, abortSignal }: ResumeSession): Promise<BerthNetworkSandboxSession> =>
    this.#session(async ({ client }) => Sandbox.get(nameOf(sessionId), { ...client && { client },
      signal: abortSignal }))

  async #session (open: (create: CreateOptions) => Promise<Sandbox>): Promise<BerthNetworkSandboxSession> {
    const { ports = defaultPorts, timeoutSeconds, sandbox, ...create } = this.#settings
    const how = { ports, ...timeoutSeconds !== undefined && { timeoutSeconds } }
    if (sandbox) return new BerthNetworkSandboxSession(sandbox, { ...how, owned: false })
    try {
      return new BerthNetworkSandboxSession(await open(create), { ...how, owned: true })
    } catch (cause) {
      if (!(cause instanceof UnauthenticatedError)) throw cause
      throw new HarnessSandboxAuthenticationError({ sandboxProviderId: providerId, cause,
        message: `${cause.message}. Set BERTH_API_KEY, or give createBerthSandbox a client: new Client({ url, key })` })
    }
  }

  async #create (create: CreateOptions, options: CreateSession): Promise<Sandbox> {
    const { sessionId, identity, onFirstCreate, abortSignal } = options
    const own = { ...sessionId !== undefined && { name: nameOf(sessionId) }, signal: abortSignal }
    if (identity === undefined || onFirstCreate === undefined) return Sandbox.create({ ...create, ...own })
    const { image, snapshot, ...rest } = create
    const template = 'ai-sdk-' + digest([identity, image, snapshot])
    try {
      return await Sandbox.create({ ...rest, ...own, snapshot: template })
    } catch (e) {
      if (!(e instanceof NotFoundError)) throw e
    }
    const first = await Sandbox.create({ ...create, ...own })
    try {
      await onFirstCreate(new BerthSandboxSession(first), { ...abortSignal && { abortSignal } })
      await first.snapshot({ name: template, signal: abortSignal }).catch((e: unknown) => {
        // Another session has made it meanwhile, or the daemon has no snapshots: this container is ready all the same.
        if (!(e instanceof AlreadyExistsError || e instanceof UnsupportedError)) throw e
      })
    } catch (e) {
      await first.delete().catch(() => {}) // the failure above says more
      throw e
    }
    return first
  }
}

const digest = (value: unknown): string => createHash('sha256').update(JSON.stringify(value)).digest('hex').slice(0, 32)

/** nameOf returns the name of a session's container, which has at most 63 letters, digits, "_", "." and "-". */
function nameOf (sessionId: string): string {
  return 'ai-sdk-' + (/^[\w.-]{1,56}$/.test(sessionId) ? sessionId : digest(sessionId))
}
