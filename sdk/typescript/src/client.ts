import { Approvals, Audit, Builds, Events, Images, Keys, Skills, Snapshots, StoredFiles,
  Webhooks } from './resources.js'
import { type Info } from './types.js'
import { type CallOptions, type ClientOptions, type Request, Transport } from './transport.js'

/**
 * A connection to one daemon. `new Client()` uses `BERTH_URL` and `BERTH_API_KEY` of the environment; in Node without
 * them, the daemon of this machine and its key file. It sends nothing before the first call.
 */
export class Client {
  /** Sends the requests of all parts of the SDK. */
  readonly transport: Transport
  readonly files: StoredFiles
  readonly skills: Skills
  readonly images: Images
  readonly builds: Builds
  readonly snapshots: Snapshots
  readonly keys: Keys
  readonly webhooks: Webhooks
  readonly events: Events
  readonly approvals: Approvals
  readonly audit: Audit

  /** An InvalidArgumentError says that the URL is none. */
  constructor (options: ClientOptions = {}) {
    const t = this.transport = new Transport(options)
    this.files = new StoredFiles(t)
    this.skills = new Skills(t)
    this.images = new Images(t)
    this.builds = new Builds(t)
    this.snapshots = new Snapshots(t)
    this.keys = new Keys(t)
    this.webhooks = new Webhooks(t)
    this.events = new Events(t)
    this.approvals = new Approvals(t)
    this.audit = new Audit(t)
  }

  /** The daemon's URL. */
  get url (): string { return this.transport.url }

  /** info returns the daemon's version, defaults and bounds. */
  async info (options: CallOptions = {}): Promise<Info> {
    return this.transport.json({ path: ['info'], ...options })
  }

  /** request sends any request of the API, for routes that have no method here. Names are turned into camelCase. */
  async request<T = unknown> (request: Request): Promise<T> { return this.transport.json(request) }
}
