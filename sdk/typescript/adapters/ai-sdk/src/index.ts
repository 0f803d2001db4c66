/**
 * Sandboxes of berth for the AI SDK. `createBerthSandbox()` is a provider for agents and harnesses; its sessions, and
 * `new BerthSandboxSession(sandbox)`, are what tools take as `experimental_sandbox`.
 *
 * @packageDocumentation
 */
export { BerthNetworkSandboxSession, networkOf } from './network.js'
export { BerthSandboxProvider, createBerthSandbox, type BerthSandboxSettings } from './provider.js'
export { BerthSandboxSession, type SessionOptions } from './session.js'
