/**
 * The SDK of berth: containers for agents, from Node and from browsers.
 *
 * `Sandbox.create()` makes a container. `new Client()` chooses another daemon than that of the environment.
 *
 * @packageDocumentation
 */
export * from './client.js'
export * from './code.js'
export { Chunk, Command, CommandFailedError, CommandResult, workspace, type OutputFile,
  type RunOptions } from './command.js'
export * from './errors.js'
export { Files, type FileOptions, type FileSource, type FindOptions, type GrepOptions } from './files.js'
export * from './ports.js'
export { Pty, type PtyOptions } from './pty.js'
export * from './resources.js'
export * from './sandbox.js'
export { ToolServer, Tools, type Parameter, type ServeOptions, type Tool, type ToolCallInfo } from './tools.js'
export { type CallOptions, type ClientOptions, type QueryValue, type Request } from './transport.js'
export type * from './types.js'
