import { type CreateOptions, InvalidArgumentError } from '@berth/sdk'
import { type CreateSandboxOptions } from '@computesdk/provider'

const mebibyte = 1 << 20

/** creation returns the container that options of ComputeSDK ask for; `defaults` hold for what they leave open. */
export function creation (options: CreateSandboxOptions = {}, defaults: CreateOptions = {}): CreateOptions {
  const { timeout, templateId, image = templateId, snapshotId, metadata, envs, name, namespace, signal } = options
  if (image !== undefined && snapshotId !== undefined) {
    throw new InvalidArgumentError({ code: 'invalid_argument', status: 0, item: 'snapshotId',
      message: 'a container begins with an image or with a snapshot; leave out templateId and image, or snapshotId' })
  }
  const { image: usualImage, snapshot: usualSnapshot, ...rest } = defaults
  const start = snapshotId !== undefined
    ? { snapshot: snapshotId }
    : image !== undefined ? { image } : { ...usualImage && { image: usualImage }, ...usualSnapshot && {
      snapshot: usualSnapshot } }
  return {
    ...rest,
    ...start,
    ...name !== undefined && { name },
    ...signal && { signal },
    env: { ...rest.env, ...envs },
    labels: { ...rest.labels, ...namespace !== undefined && { namespace }, ...labelsOf(metadata) },
    limits: { ...rest.limits, ...limitsOf(options) },
    ...timeout !== undefined && { lease: { mode: 'absolute', atEnd: 'remove',
      endsInSeconds: Math.max(1, Math.ceil(timeout / 1000)) } }
  }
}

// ComputeSDK has a name for each of its providers. Those of one thing mean the same here, in MiB where it is a size.
function limitsOf (options: CreateSandboxOptions): NonNullable<CreateOptions['limits']> {
  const cpus = options.cpus ?? options.cpu ?? options.vcpus ?? options.resources?.vcpus
  const memory = options.memoryMiB ?? options.memMiB ?? options.memoryMb ?? options.memory
  return {
    ...cpus !== undefined && { cpus },
    ...memory !== undefined && { memoryBytes: memory * mebibyte },
    ...options.diskMiB !== undefined && { diskBytes: options.diskMiB * mebibyte }
  }
}

/** labelsOf returns metadata as labels, whose values are texts: what is no text becomes JSON. */
export function labelsOf (metadata: Record<string, unknown> = {}): Record<string, string> {
  return Object.fromEntries(Object.entries(metadata).filter(([, value]) => value !== undefined)
    .map(([name, value]) => [name, typeof value === 'string' ? value : JSON.stringify(value)]))
}
