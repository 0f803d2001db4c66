import { HarnessCapabilityUnsupportedError, type HarnessV1NetworkPolicy, type HarnessV1NetworkSandboxSession,
  type HarnessV1PortEndpoint } from '@ai-sdk/harness'
import { type Network, type Sandbox, workspace } from '@berth/sdk'
import { BerthSandboxSession, type SessionOptions } from './session.js'

/** Name of the provider in errors and in the AI SDK. */
export const providerId = 'berth'

type PortOptions = Parameters<HarnessV1NetworkSandboxSession['getPortEndpoint']>[0]

/**
 * A container with its ports, network and lifecycle, as a harness needs it. `restricted()` is the part for tools. A
 * session of a sandbox that was given to the provider neither stops nor deletes it.
 */
export class BerthNetworkSandboxSession extends BerthSandboxSession implements HarnessV1NetworkSandboxSession {
  /** The container, with all that the SDK of berth can do. */
  readonly sandbox: Sandbox
  readonly id: string
  readonly defaultWorkingDirectory = workspace
  /** Ports that a harness may take for itself. Every port of a container can be reached, listed here or not. */
  readonly ports: readonly number[]
  readonly #options: SessionOptions
  readonly #owned: boolean

  constructor (sandbox: Sandbox, options: SessionOptions & { ports: readonly number[], owned: boolean }) {
    super(sandbox, options)
    this.sandbox = sandbox
    this.id = sandbox.id
    this.ports = options.ports
    this.#options = options
    this.#owned = options.owned
  }

  /** getPortEndpoint returns where programs reach a port, with headers that hold the API key. */
  getPortEndpoint = async ({ port, protocol }: PortOptions): Promise<HarnessV1PortEndpoint> => {
    const { url, headers } = await this.sandbox.ports.endpoint(port)
    return { url: withProtocol(url, protocol), headers }
  }

  /**
   * getPortUrl returns a signed URL, which a browser can open for an hour without a key.
   *
   * @deprecated Programs use `getPortEndpoint`.
   */
  getPortUrl = async ({ port, protocol }: PortOptions): Promise<string> =>
    withProtocol(await this.sandbox.ports.url(port), protocol)

  /** setNetworkPolicy changes what the container may reach, at once. The daemon may allow less. */
  setNetworkPolicy = async (policy: HarnessV1NetworkPolicy): Promise<void> => {
    await this.sandbox.update({ network: networkOf(policy) })
  }

  /** stop ends the processes and keeps the files, for `resumeSession`. */
  stop = async (): Promise<void> => this.#end(async () => this.sandbox.stop())

  /** destroy removes the container with its files. */
  destroy = async (): Promise<void> => this.#end(async () => this.sandbox.delete())

  async #end (how: () => Promise<unknown>): Promise<void> {
    if (!this.#owned) return
    await how().catch((e: { code?: string }) => {
      if (e.code !== 'not_found' && e.code !== 'expired') throw e
    })
  }

  /** restricted returns the same container for tools: files and commands alone. */
  restricted = (): BerthSandboxSession => new BerthSandboxSession(this.sandbox, this.#options)
}

// TLS is the daemon's affair: an address of it without TLS has none for https either.
function withProtocol (url: string, protocol: PortOptions['protocol']): string {
  return protocol === 'ws' ? url.replace(/^http/, 'ws') : url
}

/** networkOf returns the network of a container for a policy. Ranges of addresses are an error, see its message. */
export function networkOf (policy: HarnessV1NetworkPolicy): Network {
  if (policy.mode === 'allow-all') return { mode: 'open' }
  if (policy.mode === 'deny-all') return { mode: 'none' }
  const { allowedHosts = [], allowedCIDRs = [], deniedCIDRs = [] } = policy
  if (allowedCIDRs.length > 0 || deniedCIDRs.length > 0) {
    throw new HarnessCapabilityUnsupportedError({ harnessId: providerId,
      message: 'berth takes host names and single public addresses, no ranges: name them in allowedHosts. Leave ' +
        'deniedCIDRs out: addresses that are not public, and those of metadata services, are never reached.' })
  }
  return { mode: 'allowlist', allow: [...allowedHosts] }
}
