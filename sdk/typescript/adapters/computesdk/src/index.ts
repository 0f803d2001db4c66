/**
 * A provider of ComputeSDK: `compute.setConfig({ provider: berth() })`, or `berth().sandbox.create()`.
 *
 * @packageDocumentation
 */
import { Client, type CommandResult, type CreateOptions, Sandbox, type Snapshot, workspace } from '@berth/sdk'
import { type CommandResult as Result, type CreateSnapshotOptions, type FileEntry,
  type ListSnapshotsOptions, type Provider, type ProviderConfig, type RunCommandOptions, type SandboxInfo,
  TIMEOUT_EXIT_CODE, defineProvider } from '@computesdk/provider'
import { creation, labelsOf } from './creation.js'

/** Name of the provider in ComputeSDK. */
const provider = 'berth'

/** Which daemon to use, and what its containers are like. Everything may be left out. */
export interface BerthConfig {
  /** Default: the daemon of `BERTH_URL` and `BERTH_API_KEY`, see the SDK of berth. */
  client?: Client
  /** For every container; options of `create` win. The names are those of `Sandbox.create` of berth. */
  create?: Omit<CreateOptions, 'client' | 'signal' | 'name' | 'existing' | 'idempotencyKey'>
  /**
   * What `getUrl` returns. `signed` (default) is a URL for a browser, which holds for a while. `public` opens the port
   * to everyone who knows its URL, until the container ends; the daemon must allow it, with `--ports-max public`.
   */
  urls?: 'signed' | 'public'
  /** How long signed URLs hold, in seconds up to 604,800; default 3,600. */
  urlSeconds?: number
}

/** A snapshot as ComputeSDK shows it. */
export interface BerthSnapshot {
  id: string
  provider: string
  createdAt: Date
  /** Labels of the snapshot, with its `name` and the ID of its container, `sandboxId`. */
  metadata: Record<string, string>
}

type Methods = ProviderConfig<Sandbox, BerthConfig, never, BerthSnapshot>['methods']

/** berth makes a provider. It sends nothing before the first call. */
export function berth (config: BerthConfig = {}): Provider<Sandbox, never, BerthSnapshot> {
  const client = config.client ?? new Client()
  const methods: Methods = {
    sandbox: {
      create: async (_, options) => found(await Sandbox.create({ client, ...creation(options, config.create) })),
      getById: async (_, id) => {
        const sandbox = await orNull(Sandbox.get(id, { client }))
        return sandbox && found(sandbox)
      },
      list: async () => (await Sandbox.list({ client })).map(found),
      destroy: async (_, id) => {
        await orNull(client.request({ method: 'DELETE', path: ['containers', id] }))
      },
      runCommand: run,
      streamCommand: run,
      getInfo,
      getUrl: async (sandbox, { port, protocol = 'http' }) => {
        const url = config.urls === 'public'
          ? (await sandbox.ports.publish(port)).url ?? (await sandbox.ports.endpoint(port)).url
          : await sandbox.ports.url(port, { ...config.urlSeconds !== undefined && {
            expiresInSeconds: config.urlSeconds } })
        // TLS is the daemon's affair: an address of it without TLS has none for https either.
        return protocol.startsWith('ws') ? url.replace(/^http/, 'ws') : url
      },
      filesystem: {
        readFile: async (sandbox, path) => sandbox.files.read(path),
        writeFile: async (sandbox, path, content) => { await sandbox.files.write(path, content) },
        mkdir: async (sandbox, path) => sandbox.files.mkdir(path),
        readdir,
        exists: async (sandbox, path) => sandbox.files.exists(path),
        remove: async (sandbox, path) => sandbox.files.remove(path, { recursive: true })
      }
    },
    snapshot: {
      create: async (_, id, options) => snapshot(client, id, options),
      list: async (_, options) => snapshots(client, options),
      delete: async (_, id) => {
        await orNull(client.snapshots.delete(id))
      }
    }
  }
  return defineProvider<Sandbox, BerthConfig, never, BerthSnapshot>({ name: provider, methods })(config)
}

const found = (sandbox: Sandbox): { sandbox: Sandbox, sandboxId: string } => ({ sandbox, sandboxId: sandbox.id })

/** orNull returns null for what does not exist, or no longer. */
async function orNull<T> (call: Promise<T>): Promise<T | null> {
  return call.catch((e: { code?: string }) => {
    if (e.code === 'not_found' || e.code === 'expired') return null
    throw e
  })
}

const outputBytes = 16 << 20 // of each stream that the result keeps; the daemon's most

/** run runs a command in bash. One that fails is a result; an error says that it could not be run. */
async function run (sandbox: Sandbox, command: string, options: RunCommandOptions = {}): Promise<Result> {
  const { cwd = workspace, env, timeout, background, onStdout, onStderr } = options
  const began = performance.now()
  const how = { cwd, ...env && { env }, ...timeout !== undefined && { timeoutSeconds: seconds(timeout) } }
  const took = (): number => Math.round(performance.now() - began)
  if (background) {
    await sandbox.run(command, { ...how, background: true })
    return { stdout: '', stderr: '', exitCode: 0, durationMs: took() }
  }
  const result = await sandbox.run(command, { ...how, onStdout, onStderr, maxOutputBytes: outputBytes,
    ...(onStdout ?? onStderr) && { onOutputLimit: 'wait' } })
  return { stdout: result.stdout, stderr: result.explainedStderr, exitCode: exitCode(result), durationMs: took() }
}

const seconds = (milliseconds: number): number => Math.max(1, Math.ceil(milliseconds / 1000))

const exitCode = (result: CommandResult): number => result.reason === 'timeout' ? TIMEOUT_EXIT_CODE : result.returnCode

async function getInfo (sandbox: Sandbox): Promise<SandboxInfo> {
  const { info } = await sandbox.refresh()
  const lasts = info.lease.mode === 'absolute'
    ? Date.parse(info.expiresAt) - Date.parse(info.createdAt)
    : info.idleTimeoutSeconds * 1000
  return { id: info.id, provider, createdAt: new Date(info.createdAt), timeout: lasts,
    // A paused or stopped container is running again with its next use.
    status: info.state === 'expired' ? 'error' : info.state === 'stopped' ? 'stopped' : 'running',
    metadata: { ...info.labels, ...info.name && { name: info.name } } }
}

async function readdir (sandbox: Sandbox, path: string): Promise<FileEntry[]> {
  return (await sandbox.files.list(path)).map(e => ({
    name: e.path.slice(e.path.lastIndexOf('/') + 1),
    type: (e.targetType ?? e.type) === 'directory' ? 'directory' : 'file',
    size: e.sizeBytes,
    modified: new Date(e.modifiedAt)
  }))
}

async function snapshot (client: Client, id: string, { name, metadata }: CreateSnapshotOptions = {}):
Promise<BerthSnapshot> {
  const sandbox = await Sandbox.get(id, { client })
  return shown(await sandbox.snapshot({ ...name !== undefined && { name }, labels: labelsOf(metadata) }))
}

async function snapshots (client: Client, { sandboxId, limit }: ListSnapshotsOptions = {}): Promise<BerthSnapshot[]> {
  const all = await client.snapshots.list({ ...sandboxId !== undefined && { container: sandboxId } })
  return all.slice(0, limit).map(shown)
}

function shown ({ id, createdAt, containerId, name, labels }: Snapshot): BerthSnapshot {
  return { id, provider, createdAt: new Date(createdAt), metadata: { ...labels, sandboxId: containerId,
    ...name !== undefined && { name } } }
}
