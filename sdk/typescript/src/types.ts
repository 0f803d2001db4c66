// Made from the daemon's OpenAPI document by generate.mjs; do not edit. Times are text in RFC 3339, UTC.

/** Names of the API whose values are data of callers: their keys stay as they are. */
export const opaque: ReadonlySet<string> = new Set([
  'attributes', 'env', 'headers', 'input', 'input_schema', 'labels', 'network_secrets', 'output_schema', 'rich',
  'secrets'
])

/** An AllowedTool is one tool that code may call. In a request, its name may stand in its place. */
export interface AllowedTool {
  /** allow (default), or review: each call waits until a person approves that call. */
  approval?: 'allow' | 'review'
  name: string
}

/** An Approval is something that waits for a person's decision, or that a person has decided about. */
export interface Approval {
  /** How many connections wait for the decision. */
  connections?: number
  /** A run may have none. */
  containerId?: string
  createdAt: string
  decision?: Decision
  /** Of a call: the command whose code makes it. */
  execId?: string
  /** Until when it can be decided. */
  expiresAt?: string
  /** Of a decided connection: once or life. */
  for?: 'once' | 'life'
  id: string
  /** Of a call or a run. */
  input?: unknown
  /** Host and port of a connection, or the name of the tool. */
  item: string
  kind: 'network' | 'tool_call' | 'tool_run'
  state: 'parked' | 'approved' | 'refused' | 'expired' | 'canceled'
}

/** What waits for a decision, newest first. */
export interface ApprovalPage {
  data: Approval[]
  hasMore: boolean
  /** Value of after for the next page; null on the last one. */
  nextAfter: string | null
}

/** An Approving approves. */
export interface Approving {
  /** Of connections: once (default) or life. */
  for?: 'once' | 'life'
}

/** An Artifact is one line of a job's manifest. */
export interface Artifact {
  /** ID of the exec that made the last change. */
  changedBy?: string
  /** When it was first seen. */
  createdAt: string
  /** ID of the exec. */
  createdBy?: string
  /** Where it was published to the Files API. */
  fileId?: string
  mediaType: string
  mode: string
  modifiedAt: string
  /** produced by a command, uploaded through the API, or edited by the editor tool. */
  origin: string
  /** Relative to the directory of the job. */
  path: string
  /** In hex; empty where the file was too large or vanished before it could be read. */
  sha256: string
  sizeBytes: number
  type: 'file' | 'directory' | 'symlink' | 'other'
}

/** An AuditCall is what the audit log tells of a call of a tool. */
export interface AuditCall {
  /** the type of the error that the code got. */
  error?: string
  /** empty where it was refused before it had one. */
  id?: string
  inputBytes: number
  resultBytes: number
  seconds: number
  tool: string
}

/** An AuditPort is a port of a container that a program has begun to listen on, or does not listen on any more. */
export interface AuditPort {
  /** That the program listened on, such as 127.0.0.1 or 0.0.0.0. */
  address: string
  /** In the container; left out if unknown, as under gVisor. */
  pid?: number
  port: number
  /** Name of the process; secrets are replaced. */
  program?: string
}

/** A BashError is a command that did not run to its end; the exec's end says why. */
export interface BashError {
  errorCode: 'invalid_tool_input' | 'unavailable' | 'too_many_requests' | 'execution_time_exceeded'
    | 'output_file_too_large' | 'file_not_found'
  type: string
}

/** A BashOutput names one stored file that the command put into $OUTPUT_DIR. */
export interface BashOutput {
  fileId: string
  type: string
}

/** A BashResult is a command that ran to its end, whatever its return code. */
export interface BashResult {
  /** Stored files made of the files in $OUTPUT_DIR, sorted by path, which is the filename; never null. */
  content: BashOutput[]
  returnCode: number
  stderr: string
  stdout: string
  type: string
}

/** A Build is a build that runs or waits. */
export interface Build {
  /** build_…. */
  id: string
  name: string
  startedAt: string
  /** waiting: for an earlier build of the same owner. */
  state: 'waiting' | 'running'
}

/** BuildCache is what the daemon keeps of the caller's builds, so that later ones need not run the same steps again. */
export interface BuildCache {
  bytes: number
  entries: number
}

/** A BuildError says why a build failed. */
export interface BuildError {
  code?: 'invalid_argument' | 'unauthenticated' | 'permission_denied' | 'not_found' | 'method_not_allowed'
    | 'already_exists' | 'conflict' | 'expired' | 'too_large' | 'too_many_requests' | 'quota_exceeded'
    | 'deadline_exceeded' | 'canceled' | 'unavailable' | 'unsupported' | 'internal'
  /** of the command that failed. */
  exitCode?: number
  /** What the error is about: an ID, a field, or a path in the container. */
  item?: string
  /** of the Dockerfile. */
  line?: number
  /** the last lines of its output, at most 4 KiB. */
  log?: string
  message?: string
  op?: string
  /** When it makes sense to try again; also in the Retry-After header. */
  retryAfterSeconds?: number
  /** the name of the step that failed. */
  step?: string
}

/** A BuildEvent is one event of a build. */
export interface BuildEvent {
  build?: Build
  cache?: BuildCache
  error?: BuildError
  image?: ImageInfo
  log?: BuildLogPart
  progress?: BuildProgressPart
  step?: BuildStepState
  type: 'build' | 'step' | 'log' | 'progress' | 'warning' | 'cache' | 'image' | 'error'
  warning?: string
}

/** The builds of a caller that wait or run, and what the daemon keeps of earlier ones. */
export interface BuildList {
  /** The same as data. */
  builds: Build[]
  /** After the last build. */
  cache: BuildCache
  data: Build[]
  hasMore: boolean
  /** Value of after for the next page; null on the last one. */
  nextAfter: string | null
}

/** A BuildLogPart is output of a step. */
export interface BuildLogPart {
  /** bytes that are not UTF-8 are replaced. */
  data: string
  /** its number. */
  step: number
  stream: 'stdout' | 'stderr'
}

/** A BuildProgressPart is how far a part of a step is, in bytes. */
export interface BuildProgressPart {
  done: number
  item: string
  /** its number. */
  step?: number
  /** 0 if unknown. */
  total?: number
}

/** A BuildStepState is a step that has begun or ended. */
export interface BuildStepState {
  error?: string
  /** such as [2/4] RUN make. */
  name: string
  /** from 1, in the order in which steps were first seen. */
  number: number
  /** from its start to its end. */
  seconds?: number
  state: 'running' | 'cached' | 'done' | 'failed'
}

/** A CallError describes how a call failed: the type of the exception that the code gets, and its message. */
export interface CallError {
  message: string
  type: string
}

export interface CancelledBuild {
  /** Always true. */
  deleted: boolean
  id: string
}

/** A Cell is code that runs in a context. */
export interface Cell {
  /** At most 1 MiB. */
  code: string
  /**
   * Working directory of this cell, absolute or relative to the interpreter's, which it has again afterwards. Not in
   * java.
   */
  cwd?: string
  /** Environment of this cell; the interpreter has its own again afterwards. In java, properties of the system. */
  env?: Record<string, string>
  /** IDs of stored files to put into $INPUT_DIR first. */
  files?: string[]
  /** Language of a context that is made for the cell, default python. A context with another language is a conflict. */
  language?: 'python' | 'python3' | 'py' | 'js' | 'javascript' | 'node' | 'ts' | 'typescript' | 'r' | 'java' | 'jshell'
    | 'bash' | 'sh' | 'shell' | 'c' | 'cpp' | 'c++' | 'fortran' | 'f90' | 'go' | 'golang' | 'rust' | 'rs' | 'php'
  /** How much of each stream is kept; 0 is 1 MiB. 0 to 16777216. */
  maxOutputBytes?: number
  /** At most 86400; 0 is the default of the daemon. */
  timeoutSeconds?: number
}

/** A ChangeContainer changes a live container. Fields that are left out stay as they are. */
export interface ChangeContainer {
  /** How long the container may stay unused from now on, in seconds; 0 stays as it is. 0 to 2592000. */
  idleTimeoutSeconds?: number
  /** All labels of the container from now on: those that are not named go. */
  labels?: Record<string, string>
  /** All that is given changes together, with the rest of the request, or nothing does. */
  lease?: LeaseRequest
  /**
   * Limits that are 0 stay as they are. Those of CPU, memory, disk, and under runc of processes, hold at once; open
   * files, and processes under gVisor, from the next start on. A limit below the present use is a 409.
   */
  limits?: Limits
  /**
   * New name, and host name inside; "" takes the name away. A container of the class gvisor has the new host name from
   * its next start on.
   */
  name?: string
  /**
   * What the container may reach from now on, in place of all that it might. Connections that are not allowed any more
   * end. A mode may stand in place of the object.
   */
  network?: 'none' | Network
  /** All ports that are public from now on; {} makes all private, and ends the connections of strangers. */
  publicPorts?: PublicPorts
}

/** A ChangeKey changes the fields that it has. */
export interface ChangeKey {
  name?: string
  quota?: QuotaChange
}

/** A ChangeWebhook changes a webhook. Fields that are left out stay as they are. */
export interface ChangeWebhook {
  /** true continues with the first event that was not delivered. */
  enabled?: boolean
  types?: string[]
  url?: string
}

/** A Cmd is one command to run in a container. Exactly one of command and argv is set. */
export interface Cmd {
  /** Program and arguments, without a shell. */
  argv?: string[]
  /** Answer as soon as it has started. */
  background?: boolean
  /** Text for bash. */
  command?: string
  /** Working directory: absolute, or relative to the directory of the job, which is the default. */
  cwd?: string
  /** Keep it running when the client or the daemon goes away. */
  detach?: boolean
  /** Added to the environment of the container. */
  env?: Record<string, string>
  /** IDs of stored files to put into $INPUT_DIR first. */
  files?: string[]
  /**
   * Generation of the container that the command is for; 0 is any. If another one runs, or none, the answer is 409 and
   * the command does not start.
   */
  generation?: number
  /**
   * Runs the command at most once: the same key with the same command in the same container returns the same exec for
   * at least 24 hours. 1 to 255 printable ASCII characters. Such a command keeps running when its client goes away.
   */
  idempotencyKey?: string
  /** Job that the command belongs to: 1 to 64 letters, digits, '-' and '_'. Default: the job of the container. */
  jobId?: string
  /** How much of each stream the result keeps; 0 is the default of the daemon. 0 to 16777216. */
  maxOutputBytes?: number
  /**
   * truncate (default) keeps head and tail, fail ends the command, wait blocks it until the slowest follower has caught
   * up. With wait, a command that outlives its client waits only while somebody follows it, and keeps head and tail
   * while nobody does; with reconnectSeconds it waits for its client to come back, too.
   */
  onOutputLimit?: 'truncate' | 'fail' | 'wait'
  /** Keep standard input open for later writes. */
  openStdin?: boolean
  /**
   * End it when no client has followed it or waited for it for this long, and not before: it goes on while its client
   * connects again, also when the daemon restarts. Not with background and detach. 0 to 3600.
   */
  reconnectSeconds?: number
  /** More environment; the values are replaced wherever the command is recorded. */
  secrets?: Record<string, string>
  /** Name of a persistent shell that runs command and keeps its directory and variables; created at its first use. */
  shell?: string
  /** All of standard input. Excludes openStdin. */
  stdin?: string
  /** At most 86400; 0 is the default of the daemon. Background commands have no default limit. */
  timeoutSeconds?: number
  /** Give it a terminal of this size. What it writes to stderr then arrives as stdout. */
  tty?: WindowSize
  /**
   * user (default), root, or a user of the container: a name or UID, and a group or GID after a colon. It has the
   * groups that the container's /etc/group gives it, unless a group is named.
   */
  user?: string
}

/** A CodeContext describes a named interpreter of a container. */
export interface ContextInfo {
  /** Number of cells that the present interpreter has run. */
  cells: number
  containerId: string
  createdAt: string
  /** Working directory that it was created with; none: the directory of its job. */
  cwd?: string
  /** The interpreter as a command; none before the first cell. */
  execId?: string
  language: string
  lastUsedAt: string
  name: string
  /** Why the last interpreter ended. */
  note?: string
  /** idle, busy, or ended: the next cell starts a new interpreter. */
  state: string
  /** The user that it runs as. */
  user: string
}

/** One page of a list. */
export interface CodeContextPage {
  data: ContextInfo[]
  hasMore: boolean
  /** Value of after for the next page; null on the last one. */
  nextAfter: string | null
}

/** CodeTools are the tools of the host that code in a container may call. Only listed tools can be called. */
export interface CodeTools {
  /** Exact names of tools, or objects with name and approval; at most 128. The name "tools" is reserved. */
  allow?: Array<string | AllowedTool>
  /** Maximum number of calls of one command or one context, 1 to 100,000; 0 is the default, 1000. */
  maxCalls?: number
  /** Who answers calls; default a client of the API. */
  provider?: ToolProvider
  /** Time limit of one call, without its wait for approval, up to 3600; 0 is the default, 60. */
  timeoutSeconds?: number
}

/** The name of an image to make of a snapshot. */
export interface Commit {
  /** Default snapshot:NAME. */
  name?: string
}

/** A Container describes a container. */
export interface Container {
  /** Without its secrets; left out where there are none. */
  codeTools?: CodeTools
  createdAt: string
  /** What that container has and the request asked for otherwise, by field. Left out where nothing differs. */
  differences?: Difference[]
  /** In the answer to a create with existing: the container was there before. */
  existing?: boolean
  /** When its lease ends if it is not used, never past maxExpiresAt. Each use of a rolling lease moves it. */
  expiresAt: string
  /** Counts the starts. */
  generation: number
  id: string
  idleTimeoutSeconds: number
  image: string
  imageDigest: string
  /** As of the last start. */
  isolation: Isolation
  labels: Record<string, string>
  lastUsedAt: string
  lease: Lease
  limits: Limits
  /** When it is removed with its files. */
  maxExpiresAt: string
  maxLifetimeSeconds: number
  /** Left out where it has none. */
  name?: string
  network: Network
  /** Without the values. */
  networkSecrets?: Record<string, NetworkSecret>
  /** What happens to it next without another use. Left out of an expired one. */
  next?: NextAction
  /** Left out where there are none. */
  publicPorts?: PublicPorts
  runningExecs: number
  runtimeClass: 'runc' | 'gvisor'
  /** Names of its secrets. Their values are never returned. */
  secretNames: string[]
  state: 'creating' | 'running' | 'paused' | 'stopped' | 'expired'
  /** Its user may become its root by sudo. */
  sudo?: boolean
  workspaceId: string
}

/** One page of a list. */
export interface ContainerPage {
  data: Container[]
  hasMore: boolean
  /** Value of after for the next page; null on the last one. */
  nextAfter: string | null
}

/** A ContainerRef names the container in which something ran. */
export interface ContainerRef {
  /** When the container's lease ends if it is not used. */
  expiresAt: string
  id: string
}

/** What a container uses. */
export interface ContainerStats {
  current: Stats
  /** Samples, oldest first. */
  data: Stats[]
}

/** A CreateContainer asks for a container. Every field may be left out. */
export interface CreateContainer {
  /** Tools of the host that its code may call; default none. */
  codeTools?: CodeTools
  /** Environment of every command. */
  env?: Record<string, string>
  /**
   * Return the live container of that name if there is one, running; else create it. Of several requests at a time, one
   * creates it and all get it. What differs from the request stays as it is and is listed in the answer, in
   * differences. Needs name; excludes idempotencyKey.
   */
  existing?: boolean
  /** IDs of stored files to put into $INPUT_DIR. */
  files?: string[]
  /**
   * Creates at most one container: the same key with the same request returns the same container for as long as it
   * exists. 1 to 255 printable ASCII characters.
   */
  idempotencyKey?: string
  /**
   * Stop after this long without use, 1 second to 30 days; default 300. The next use starts it again with its files.
   * What lease says may happen instead. 0 to 2592000.
   */
  idleTimeoutSeconds?: number
  /** Name from the list of images; default "base". */
  image?: string
  /** At most 64, to list containers by. */
  labels?: Record<string, string>
  /** How it ends; default a rolling lease that stops it. */
  lease?: LeaseRequest
  limits?: Limits
  /** Remove this long after creation, 1 second to 365 days; default 30 days. 0 to 31536000. */
  maxLifetimeSeconds?: number
  /**
   * Name among the containers of its owner, usable wherever the ID is, and the host name inside: 1 to 63 letters,
   * digits, "_", "." and "-", the first a letter or digit. No two containers of an owner have the same name; a taken
   * one is refused with already_exists. Expiry and deletion free it.
   */
  name?: string
  /** What the container may reach; default nothing. A mode may stand in place of the object. */
  network?: 'none' | Network
  /**
   * More environment, where commands see placeholders. The proxy puts the values into requests, so a network is
   * required.
   */
  networkSecrets?: Record<string, NetworkSecret>
  /** Ports that anyone may send requests to, without a credential; default none. The daemon must allow it. */
  publicPorts?: PublicPorts
  /** Isolation: runc or gvisor. The daemon never replaces one by the other. Default: the daemon's, usually "runc". */
  runtimeClass?: 'gvisor' | 'runc'
  /**
   * More environment, with values of at least 4 bytes. The values are sealed on disk, replaced in records of commands
   * and never returned.
   */
  secrets?: Record<string, string>
  /**
   * ID or name of a snapshot: the container begins with its files, image, limits and runtime class. Limits and a class
   * in the request win. Excludes image and workspaceId. An ID of a snapshot may also stand in image.
   */
  snapshot?: string
  /**
   * Let set-user-ID programs gain privileges, so that sudo makes the user root of this container. It has no more rights
   * outside. For class runc; the daemon may forbid it. Such a container is never taken out of the warm pool.
   */
  sudo?: boolean
  /** Kept workspace that no live container uses; without it a new one is created. */
  workspaceId?: string
}

/** A NewContext asks for a context. */
export interface CreateContext {
  /** Working directory: absolute, or relative to the directory of the job, which is the default. */
  cwd?: string
  /** Added to the environment of the container. */
  env?: Record<string, string>
  /** The job in whose directory it works; default the job of the container. */
  jobId?: string
  language?: 'python' | 'python3' | 'py' | 'js' | 'javascript' | 'node' | 'ts' | 'typescript' | 'r' | 'java' | 'jshell'
    | 'bash' | 'sh' | 'shell' | 'c' | 'cpp' | 'c++' | 'fortran' | 'f90' | 'go' | 'golang' | 'rust' | 'rs' | 'php'
  /** 1 to 64 letters, digits, '-' and '_'. */
  name: string
  /** More environment; the values are replaced wherever cells are recorded. */
  secrets?: Record<string, string>
  /** The user that it runs as: user (default), root, or another user of the container. */
  user?: string
}

/** A CreateKey asks for an API key. */
export interface CreateKey {
  admin?: boolean
  /** 0 is never. 0 to 315360000. */
  expiresInSeconds?: number
  /** For people, at most 128 bytes; need not be unique. */
  name?: string
  /** 1 to 64 letters, digits, '.', '-' and '_'; default the owner of the key that asks. */
  owner?: string
  quota?: Quota
}

/** CreateSnapshot is a request to keep a container's files as they are now. */
export interface CreateSnapshot {
  /** Remove it this long after it was taken, 1 second to 365 days; 0: it stays until it is deleted. 0 to 31536000. */
  expiresAfterSeconds?: number
  /** At most 64, to list snapshots by. */
  labels?: Record<string, string>
  /** Name among the snapshots of its owner, usable wherever the ID is; as that of a container. */
  name?: string
}

/** A CreateWebhook asks for events to be posted to a URL. */
export interface CreateWebhook {
  /** Only events of this container. */
  containerId?: string
  /** For people, at most 1,000 bytes. */
  description?: string
  /** Only these types, such as exec.ended; with a dot at the end, all types with this prefix: exec. Default all. */
  types?: string[]
  /** Where events are posted, http or https, at a public address unless the operator allows others. */
  url: string
}

/** A Decision is what a person decided about a run of a stored tool, or about a call of a tool. */
export interface Decision {
  at: string
  /** The API key that decided. */
  by: string
  /** Why it was refused. */
  reason?: string
}

/** A deleted container and its workspace. */
export interface DeletedContainer {
  /** Always true. */
  deleted: boolean
  id: string
  workspaceId: string
  workspaceKept: boolean
}

export interface DeletedFile {
  id: string
  type: 'file_deleted'
}

/** The answer to the deletion of what has a name and no ID. */
export interface DeletedName {
  /** Always true. */
  deleted: boolean
  name: string
}

/** The answer to the removal of a file or directory. */
export interface DeletedPath {
  /** Always true. */
  deleted: boolean
  path: string
}

export interface DeletedSkill {
  id: string
  type: 'skill_deleted'
}

export interface DeletedVersion {
  id: string
  type: 'skill_version_deleted'
}

/** The answer to a delete. */
export interface Deletion {
  /** Always true. */
  deleted: boolean
  id: string
}

/** A Difference is a field of a request for an existing container that the container does not meet. */
export interface Difference {
  /** What the request asked for. */
  asked: string
  /** Such as image, limits.cpus or labels.team. */
  field: string
  /** What the container has, for people. Never a value of env or secrets. */
  have: string
}

/** A directory. */
export interface Directory {
  /** user (default), root, or another user of the container. */
  as?: string
  path: string
}

/** A Display is one result of a running cell. The outcome at its end has it again, as far as there is room. */
export interface Display {
  /** It is the value of the last expression. */
  main: boolean
  /** By media type. */
  rich: Record<string, unknown>
  /** As text. */
  text: string
}

/** An End is how an exec ended. */
export interface End {
  /** Of its processes that have ended; 0 when unknown, as for lost and host_restart. */
  cpuSeconds: number
  /** Number of background processes that it left running. */
  leftover?: number
  /** One sentence for people, where the reason does not say everything. */
  message?: string
  /** Largest resident set of one of those processes, never less than that of the guest; 0 when unknown. */
  peakMemoryBytes: number
  reason: 'exit' | 'signal' | 'timeout' | 'out_of_memory' | 'disk_quota' | 'pid_limit' | 'output_limit' | 'killed'
    | 'canceled' | 'expired' | 'stopped' | 'host_restart' | 'lost' | 'not_started'
  /** The code, 128+n for signal n, or -1 where it is unknown. */
  returnCode: number
  /** Such as SIGKILL, when a signal ended it. */
  signal?: string
}

export interface Envelope {
  error: ErrorBody
  requestId: string
  type: 'error'
}

/**
 * An Error crosses guest, core and edges unchanged. Item names the thing the error is about as the caller knows it (an
 * ID, a field, a path inside the container); Message says what is wrong and what to do, in one sentence, and never
 * shows a path of the host.
 */
export interface ErrorInfo {
  code: 'invalid_argument' | 'unauthenticated' | 'permission_denied' | 'not_found' | 'method_not_allowed'
    | 'already_exists' | 'conflict' | 'expired' | 'too_large' | 'too_many_requests' | 'quota_exceeded'
    | 'deadline_exceeded' | 'canceled' | 'unavailable' | 'unsupported' | 'internal'
  /** What the error is about: an ID, a field, or a path in the container. */
  item?: string
  message: string
  op?: string
  /** When it makes sense to try again; also in the Retry-After header. */
  retryAfterSeconds?: number
}

export interface ErrorBody {
  details?: ErrorDetails
  message: string
  type: string
}

/** An ErrorDetail describes how code failed. */
export interface ErrorDetail {
  message: string
  /**
   * Name of the exception, or why the interpreter ended: exit, signal, timeout, out_of_memory and the other reasons of
   * a command.
   */
  name: string
  /** Of an interpreter that ended. */
  returnCode?: number
  traceback?: string
}

export interface ErrorDetails {
  container?: ContainerRef
  errorCode?: string
}

/**
 * An Event is one message of a live stream, over websocket or server-sent events. Output is text in Data where the
 * bytes are UTF-8 (a character is never split between two events) and DataBase64 where they are not, so that nothing is
 * lost. Offset counts bytes of that stream from the start of the exec.
 */
export interface ExecEvent {
  container?: ContainerRef
  /** Output that is UTF-8. A character is never split. */
  data?: string
  /** Output that is not UTF-8. */
  dataBase64?: string
  error?: ErrorInfo
  exec?: Exec
  execId?: string
  /** Where the output begins, in bytes from the start of the stream; for a gap, where the gap begins. 0 is left out. */
  offset?: number
  /** The ref of the message that this answers, on the first answer. */
  ref?: string
  /** For an exit: what the HTTP request would have answered. */
  result?: ExecResult
  /** For a gap: stdout or stderr. */
  stream?: string
  type: 'start' | 'stdout' | 'stderr' | 'gap' | 'exit' | 'error' | 'ready' | 'detached'
  /** Where a gap ends. */
  until?: number
}

/** An Exec describes one run of a command. */
export interface Exec {
  argv?: string[]
  background?: boolean
  command?: string
  containerId: string
  /** How it ended; null while it runs. */
  end: End | null
  endedAt: string | null
  /** Generation of the container in which it ran. */
  generation?: number
  id: string
  jobId: string
  /** Its standard input takes later writes. */
  openStdin?: boolean
  /**
   * Process ID in the container's own numbering; of the shell, if it ran in one. Left out for one without a process.
   */
  pid?: number
  shell?: string
  startedAt: string
  state: 'running' | 'ended'
  stderrBytes: number
  /** Written so far, kept or not. */
  stdoutBytes: number
  /** It has a terminal. */
  terminal?: boolean
  /** The result leaves out some of the output. */
  truncated: boolean
  user: string
}

/** One page of a list. */
export interface ExecPage {
  data: Exec[]
  hasMore: boolean
  /** Value of after for the next page; null on the last one. */
  nextAfter: string | null
}

/**
 * An ExecResult is the answer to a command that has ended. Its result is the block that hosted code execution answers
 * with.
 */
export interface ExecResult {
  container: ContainerRef
  exec: Exec
  /** What else the caller should know, such as a file that could not be published. */
  notes?: string[]
  /** What was written, where result is an error. */
  partial?: Output
  result: BashResult | BashError
}

/** A request for a longer lease. The answer shows the result, since a lease never goes past max_expires_at. */
export interface Extension {
  /** From now on. 0 only renews the idle timeout. 0 to 2592000. */
  seconds?: number
}

/** A FeedEvent is something that happened to a container, or to another thing of its owner. */
export interface FeedEvent {
  /** The ID of the API key that caused it, or the part of the daemon that did. */
  actor?: string
  containerId?: string
  /** Of approval.decided: approve or refuse. */
  decision?: string
  /** Of exec.started and exec.ended. */
  exec?: FeedExec
  execId?: string
  /** Of file.stored and file.deleted. */
  fileIds?: string[]
  /** The generation of the container; left out if it has none. */
  generation?: number
  /**
   * Place of the event in the order of all events; empty in a gap without one. Send it as after or Last-Event-ID to
   * continue behind this event.
   */
  id: string
  /**
   * What it happened to, if that is no container and no command: a file, a path, a call, a run, a snapshot, an address
   * with a port. Of container.forked, the container that it is a copy of.
   */
  item?: string
  /** Of files.changed: the job in whose directory the paths are. */
  jobId?: string
  /** For people. */
  note?: string
  owner: string
  /** Of files.changed: paths in the job's directory, or inside the container if they are absolute. */
  paths?: string[]
  /** Of port.opened and port.closed. */
  port?: AuditPort
  requestId?: string
  timestamp: string
  /** Of toolCall.ended. */
  toolCall?: AuditCall
  type: 'container.created' | 'container.started' | 'container.stopped' | 'container.paused' | 'container.resumed'
    | 'container.changed' | 'container.expired' | 'container.deleted' | 'container.reset' | 'container.restored'
    | 'container.forked' | 'snapshot.created' | 'snapshot.deleted' | 'exec.started' | 'exec.ended' | 'files.changed'
    | 'file.stored' | 'file.deleted' | 'approval.parked' | 'approval.decided' | 'tool_call.ended' | 'port.opened'
    | 'port.closed' | 'gap' | 'webhook.disabled'
}

/** One page of a list. */
export interface FeedEventPage {
  data: FeedEvent[]
  hasMore: boolean
  /** Value of after for the next page; null on the last one. */
  nextAfter: string | null
}

/** A FeedExec is what an event tells of a command. */
export interface FeedExec {
  /** Cut after 16 KiB; secrets are replaced. */
  command: string
  cpuSeconds?: number
  jobId: string
  /**
   * Process ID in the container's own numbering; of the shell, if it ran in one. Left out for one without a process.
   */
  pid?: number
  /** This and what follows only of a command that has ended. */
  reason?: 'exit' | 'signal' | 'timeout' | 'out_of_memory' | 'disk_quota' | 'pid_limit' | 'output_limit' | 'killed'
    | 'canceled' | 'expired' | 'stopped' | 'host_restart' | 'lost' | 'not_started'
  returnCode?: number
  seconds?: number
  stderrBytes?: number
  stdoutBytes?: number
  user: string
}

/** A FileEvent is a change in a watched directory. */
export interface FileEvent {
  /** It is a directory. */
  directory?: boolean
  /** The file soon after the event, if requested and if it still exists. */
  entry?: FileInfo
  /** Path relative to the watched directory; empty for that directory. */
  name?: string
  /** Absolute; bytes that are not UTF-8 show as U+FFFD. */
  path: string
  type: 'start' | 'create' | 'write' | 'remove' | 'rename' | 'chmod' | 'overflow'
}

/** A FileInfo describes one file inside a container. It never follows a link at the end of the path. */
export interface FileInfo {
  /** Extended attributes of the user's space without "user.", as far as they are text, of files and directories. */
  attributes?: Record<string, string>
  /** Change of the inode, which code in the container cannot set. */
  changedAt: string
  gid: number
  /** Name of the group in the container, where there is one. */
  group?: string
  /** Octal permission bits with set-id and sticky, such as 0644. */
  mode: string
  modifiedAt: string
  /** Name of the user in the container, where there is one. */
  owner?: string
  /** Absolute; bytes that are not UTF-8 show as U+FFFD. */
  path: string
  /** The true path, where it is not UTF-8. */
  pathBase64?: string
  /** In hex, where it was asked for. */
  sha256?: string
  sizeBytes: number
  /** Target of a symbolic link. */
  target?: string
  /** What a symbolic link leads to; left out if there is nothing. */
  targetType?: 'file' | 'directory' | 'symlink' | 'other'
  type: 'file' | 'directory' | 'symlink' | 'other'
  uid: number
}

/** ForkContainer is a request for copies of a container. */
export interface ForkContainer {
  /** How many, 1 to 100; 0 is 1. */
  count?: number
}

/** One page of what a search found. */
export interface FoundFiles {
  data: FileInfo[]
  hasMore: boolean
  /** Value of after for the next page; null on the last one. */
  nextAfter: string | null
  /** Directories that were left out: unreadable, too deep, or with too long a path. */
  skippedDirectories?: number
}

/** The lines that a search has found. */
export interface FoundLines {
  /** Matches and their context, by file and line. */
  data: GrepEvent[]
  summary: GrepSummary
}

/** A GrepEvent is a line that a search for text has found, or its end. */
export interface GrepEvent {
  /** Of the first match, in bytes from 1. */
  column?: number
  /** The line is longer than text. */
  cut?: boolean
  /** Of the first match, in bytes. */
  length?: number
  /** From 1. */
  line?: number
  /** Absolute; bytes that are not UTF-8 show as U+FFFD. */
  path?: string
  /** The true path, where it is not UTF-8. */
  pathBase64?: string
  summary?: GrepSummary
  /** The line, or the part of a long one around the match, at most 2,000 bytes. */
  text?: string
  /** Where text begins in the line, if not at 1. */
  textColumn?: number
  type: 'match' | 'context' | 'end'
}

/** A GrepSummary is what a search for text has done. */
export interface GrepSummary {
  /** Files that were not searched, or not to the end, for a NUL byte. */
  binaryFiles: number
  /** Files with a match. */
  files: number
  /** Lines with a match. */
  matches: number
  /** Files that were searched. */
  searched: number
  skippedDirectories: number
  /** Files that the user may not read. */
  skippedFiles: number
  /** The search ended early, at a limit of matches, output or time. */
  truncated: boolean
}

/** An Image is an unpacked root file system that containers can start from. */
export interface ImageInfo {
  /** when it was imported or pulled. */
  createdAt: string
  /** sha256:… of its manifest. */
  digest: string
  /** as given at import or pull. */
  name: string
  /** linux/amd64. */
  platform: string
  /** of its compressed layers. */
  sizeBytes: number
}

/** One line of the answer to an import, a pull or a push: a step, or at the end the image or an error. */
export interface ImageLine {
  done?: number
  error?: ErrorInfo
  image?: ImageInfo
  item?: string
  stage?: string
  total?: number
}

/** One page of a list. */
export interface ImagePage {
  data: ImageInfo[]
  hasMore: boolean
  /** Value of after for the next page; null on the last one. */
  nextAfter: string | null
}

/** Info is what a daemon reports about itself. The edge fills zero fields with the defaults of the core. */
export interface Info {
  defaultImage: string
  /** Also the maximum that a container may ask for. */
  defaultLimits: Limits
  /** Class of containers that ask for none. */
  defaultRuntimeClass: 'runc' | 'gvisor'
  idleTimeoutSeconds: number
  /** Of one stored file. */
  maxFileBytes: number
  maxLifetimeSeconds: number
  /** The widest network that a container may ask for. */
  networkMax: 'none' | 'allowlist' | 'open'
  /** The widest access to ports: private, signed or public. */
  portsMax: 'private' | 'signed' | 'public'
  /** That containers may have here. */
  runtimeClasses: Array<'runc' | 'gvisor'>
  version: string
}

/** Where the stored files are. */
export interface InputDir {
  inputDir: string
}

/** Stored files to put into a container. */
export interface Inputs {
  /** IDs of the Files API. */
  files: string[]
}

/**
 * Isolation is what separates a container from its host, as the kernel has it and not as it was configured. It is found
 * out at each start; a container that has never been up has the zero Isolation.
 */
export interface Isolation {
  /** what its root is there; -1 when unknown. */
  hostUid: number
  /** name and release as seen inside. */
  kernel: string
  /** NetworkNone; ThroughProxy where the daemon carries what goes out; "" when unknown. */
  network: string
  /** no program in it can gain privileges. */
  noNewPrivs: boolean
  /** what the kernel counts for each user, inotify for one, it shares with nobody. */
  ownCounts: boolean
  /** its system calls are filtered. */
  seccomp: boolean
  /** its root is nobody on the host. */
  userNamespace: boolean
}

/** A JobExec is the log line of one command in a manifest. */
export interface JobExec {
  /** argv joined for commands without bash; secrets redacted, cut at 4 KiB. */
  command: string
  endedAt: string | null
  id: string
  /** paths it created or changed. */
  produced: string[]
  reason: 'exit' | 'signal' | 'timeout' | 'out_of_memory' | 'disk_quota' | 'pid_limit' | 'output_limit' | 'killed'
    | 'canceled' | 'expired' | 'stopped' | 'host_restart' | 'lost' | 'not_started'
  returnCode: number
  startedAt: string
  /** its last 2 KiB. */
  stderr: string
}

/** A JobSummary is one line of a list of jobs. */
export interface JobSummary {
  createdAt: string
  files: number
  jobId: string
  sizeBytes: number
  updatedAt: string
}

/** One page of a list. */
export interface JobSummaryPage {
  data: JobSummary[]
  hasMore: boolean
  /** Value of after for the next page; null on the last one. */
  nextAfter: string | null
}

/** A Key describes an API key. Its secret is not stored. */
export interface Key {
  /** May make and revoke keys, and change what concerns the whole daemon, such as images. */
  admin: boolean
  createdAt: string
  /** null: never. */
  expiresAt: string | null
  /** The key in the daemon's key file, which is revoked by replacing that file. */
  file: boolean
  /** Names the key; it is no secret. */
  id: string
  /** null: never. After a crash of the daemon it may be some seconds behind. */
  lastUsedAt: string | null
  name: string
  /** The tenant that owns everything made with it. */
  owner: string
  quota: Quota
  /** null: it is not revoked. */
  revokedAt: string | null
}

/** A NewKey is a key that was just made, with its secret. */
export interface KeyAndSecret {
  /** May make and revoke keys, and change what concerns the whole daemon, such as images. */
  admin: boolean
  createdAt: string
  /** null: never. */
  expiresAt: string | null
  /** The key in the daemon's key file, which is revoked by replacing that file. */
  file: boolean
  /** Names the key; it is no secret. */
  id: string
  /** null: never. After a crash of the daemon it may be some seconds behind. */
  lastUsedAt: string | null
  name: string
  /** The tenant that owns everything made with it. */
  owner: string
  quota: Quota
  /** null: it is not revoked. */
  revokedAt: string | null
  /** What requests carry. Only this answer has it. */
  secret: string
}

/** One page of a list. */
export interface KeyPage {
  data: Key[]
  hasMore: boolean
  /** Value of after for the next page; null on the last one. */
  nextAfter: string | null
}

/** A KeyStatus is a key and what it uses. */
export interface KeyStatus {
  /** May make and revoke keys, and change what concerns the whole daemon, such as images. */
  admin: boolean
  createdAt: string
  /** null: never. */
  expiresAt: string | null
  /** The key in the daemon's key file, which is revoked by replacing that file. */
  file: boolean
  /** Names the key; it is no secret. */
  id: string
  /** null: never. After a crash of the daemon it may be some seconds behind. */
  lastUsedAt: string | null
  name: string
  /** The tenant that owns everything made with it. */
  owner: string
  quota: Quota
  /** null: it is not revoked. */
  revokedAt: string | null
  usage: KeyUsage
}

/** A KeyUsage is what a key uses of its quota. */
export interface KeyUsage {
  /** The next midnight UTC. */
  cpuResetsAt: string
  cpuSecondsToday: number
  /**
   * Bytes on disk of all containers and snapshots of the owner; what they share counts once. Left out where the disk
   * does not count that, as before Linux 6.12.
   */
  ownerDiskBytes?: number
  /** What they may have together. Left out where there is no bound. */
  ownerDiskLimitBytes?: number
  sessions: number
  storageBytes: number
}

/** A Lease says how long a container lives, and what happens when that is over. */
export interface Lease {
  atEnd: 'stop' | 'pause' | 'remove'
  /** The same as expiresAt. */
  endsAt: string
  mode: 'rolling' | 'absolute'
}

/**
 * A LeaseRequest asks for a lease, or for a change of one. What is left out stays as it is; a new container's lease is
 * rolling and stops it.
 */
export interface LeaseRequest {
  /** What happens at its end: stop, pause or remove. Files are removed with the container. */
  atEnd?: 'stop' | 'pause' | 'remove'
  /**
   * When it ends, not later than maxExpiresAt. Of a rolling lease, a later use moves it. May be earlier than before.
   * Excludes endsInSeconds.
   */
  endsAt?: string
  /** When it ends, in seconds from now. 0 ends it now, which a new container cannot ask for. 0 to 31536000. */
  endsInSeconds?: number
  /**
   * What moves its end: uses (rolling), or only a change (absolute). Running commands do not keep a container whose
   * absolute lease ends. One that becomes absolute without an end ends after the idle timeout.
   */
  mode?: 'rolling' | 'absolute'
}

/**
 * Limits bound what one container may use. In Go, 0 is the default of the daemon, which is also the maximum. A request
 * leaves a limit out for it.
 */
export interface Limits {
  /** Cores, at least 0.01. */
  cpus?: number
  /**
   * Size of the workspace, and again of the writable layer, metadata included; at least 16 MiB. 16777216 to 5368709120.
   */
  diskBytes?: number
  /** At least 16 MiB; there is no swap. 16777216 to 5368709120. */
  memoryBytes?: number
  /** Per process, at least 256. 256 to 4096. */
  openFiles?: number
  /** Processes and threads, at least 16. 16 to 512. */
  pids?: number
}

/** What a directory holds. */
export interface Listing {
  data: FileInfo[]
  hasMore: boolean
  /** Value of after for the next page; null on the last one. */
  nextAfter: string | null
  /** Directories that were left out: unreadable, too deep, or with too long a path. */
  skippedDirectories?: number
  /** The same as hasMore. */
  truncated: boolean
}

/** Logs are the lines that code printed. Each line keeps its newline, so joined lines are the original output. */
export interface Logs {
  stderr: string[]
  /** Line by line, each with its end. */
  stdout: string[]
}

/** A Manifest lists what a job's directory holds and who made it. /workspace/.berth/<job_id>.json has the same JSON. */
export interface Manifest {
  /** The last one that worked on it. */
  containerId: string
  createdAt: string
  execs: JobExec[]
  files: Artifact[]
  jobId: string
  /** The directory holds more than a manifest lists. */
  truncated: boolean
  updatedAt: string
  workspaceId: string
}

/** The old and the new path of a file. */
export interface Move {
  /** user (default), root, or another user of the container. */
  as?: string
  from: string
  to: string
}

/** A Network is what a container may reach. In a request, a mode may stand in its place: "open". */
export interface Network {
  /**
   * Hosts such as api.github.com, api.example.com:8443 or *.example.com, where the star stands for one label. Without a
   * port, 80 and 443 are allowed.
   */
  allow?: string[]
  /** Whether a connection to a host that is not listed waits for a person's decision; see GET /v1/approvals. */
  ask?: boolean
  /** Hosts that are refused without asking, written as in allow. They are refused even if allow has them. */
  deny?: string[]
  /**
   * none: nothing. allowlist: the hosts in allow. open: any public host. Default allowlist if allow has hosts,
   * otherwise none.
   */
  mode?: 'none' | 'allowlist' | 'open'
}

/**
 * A NetworkSecret is a secret that code in a container never has. Its environment has a placeholder, and the proxy puts
 * the value into requests to these hosts alone.
 */
export interface NetworkSecret {
  /** Written as in the allow list of a network. */
  hosts: string[]
  /** At least 4 bytes. It is never returned. */
  value?: string
}

/** A NewWebhook is a webhook with its secret, which only this answer has. */
export interface NewWebhook {
  containerId?: string
  createdAt: string
  /** The last attempts, newest last. */
  deliveries: WebhookDelivery[]
  description?: string
  /** Why it was disabled. */
  disabledReason?: string
  enabled: boolean
  /** Since when nothing was delivered, and when the next attempt is; null while it works. */
  failingSince: string | null
  id: string
  nextAttempt: string | null
  /** Verifies signatures; begins with whsec_. */
  secret: string
  /** Empty for all. */
  types: string[]
  url: string
}

/** A NextAction is what happens to a container by itself if nobody uses it. */
export interface NextAction {
  action: 'stop' | 'pause' | 'remove'
  at: string
}

/** An Outcome is the result of running code. Other systems answer with results, logs and error. */
export interface Outcome {
  /** The container, unless it was made for this code alone. */
  container?: ContainerRef
  context?: string
  durationMs: number
  /** The traceback or another explanation, in one text. */
  error?: string
  errorDetail?: ErrorDetail
  /** The interpreter as a command. */
  execId: string
  /** Number of the cell in the present interpreter of its context, from 1. */
  executionCount?: number
  /** Stored files made of the files in $OUTPUT_DIR; of a context, when its interpreter ends. */
  files: BashOutput[]
  logs: Logs
  /** Index in results of the value of the last expression, which is the last result. Absent: the code gave no value. */
  mainResult?: number
  notes?: string[]
  /** The value of the last expression, preceded by what else the code showed, as text. */
  results: string[]
  /** The same results by media type, in the same order. Text is text, an image base64, and JSON is JSON. */
  rich: Array<Record<string, unknown>>
  /** Some of the output or of the results was left out. */
  truncated: boolean
}

/** An Output is what a command wrote, as text; bytes that are not UTF-8 become U+FFFD. */
export interface Output {
  stderr: string
  stdout: string
}

/** Port is a port of a container that a program listens on. */
export interface Port {
  /** That the program listens on, such as 127.0.0.1 or 0.0.0.0. */
  address: string
  /** In the container; 0 if unknown, as under gVisor. */
  pid: number
  port: number
  /** Name of the process. */
  program?: string
  /** Anyone may send requests to it. */
  public?: boolean
  /**
   * Of the port's own host name, if the daemon has a domain. It needs an API key, or a signed URL, unless the port is
   * public.
   */
  url?: string
}

/** One page of a list. */
export interface PortPage {
  data: Port[]
  hasMore: boolean
  /** Value of after for the next page; null on the last one. */
  nextAfter: string | null
}

/**
 * A PortURL is a signed URL: who has it may use one port of a container until a time. It ends with the container, and
 * with the API key that asked for it.
 */
export interface PortURL {
  expiresAt: string
  url: string
}

/** A Program is code that runs in a fresh interpreter, or in a context. */
export interface Program {
  /** At most 1 MiB. */
  code: string
  /** Run it in this container. Without it, the code runs in a container of its own, which is deleted afterwards. */
  container?: string
  /** Run it as a cell of this context of the container. */
  context?: string
  /**
   * Working directory: absolute, or relative to the directory of the container's job, which is the default; not in java
   * in a context.
   */
  cwd?: string
  /** Added to the environment of the container; not in a context. */
  env?: Record<string, string>
  /** IDs of stored files to put into $INPUT_DIR first. */
  files?: string[]
  /** Image of the container that is made. */
  image?: string
  /** python (default) or another language of the list; other names of a language are accepted. */
  language?: 'python' | 'python3' | 'py' | 'js' | 'javascript' | 'node' | 'ts' | 'typescript' | 'r' | 'java' | 'jshell'
    | 'bash' | 'sh' | 'shell' | 'c' | 'cpp' | 'c++' | 'fortran' | 'f90' | 'go' | 'golang' | 'rust' | 'rs' | 'php'
  limits?: Limits
  /** How much of each stream is kept; 0 is 1 MiB. 0 to 16777216. */
  maxOutputBytes?: number
  /** What the container that is made may reach; default nothing. A mode may stand in place of the object. */
  network?: 'none' | Network
  /** What the proxy of the container that is made puts into requests. */
  networkSecrets?: Record<string, NetworkSecret>
  runtimeClass?: 'gvisor' | 'runc'
  /** More environment; the values are replaced wherever the code is recorded. */
  secrets?: Record<string, string>
  /** At most 86400; 0 is the default of the daemon. */
  timeoutSeconds?: number
}

/** A Progress is one event of a running cell. */
export interface Progress {
  data?: string
  /** Output that is not UTF-8. */
  dataBase64?: string
  /** What the code showed, when it showed it. */
  display?: Display
  error?: ErrorInfo
  /** The interpreter as a command, in the first message. */
  execId?: string
  /** Number of the cell in the present interpreter, in the first message. */
  executionCount?: number
  /** In bytes from the beginning of the cell's stream. */
  offset?: number
  result?: Outcome
  /** For a gap: stdout or stderr. */
  stream?: string
  /** start, stdout, stderr, gap, display, result or error. */
  type: string
  /** Where a gap ends. */
  until?: number
}

/** PublicPorts are ports of a container that take requests without any credential. The zero PublicPorts are none. */
export interface PublicPorts {
  /** Every port. */
  all?: boolean
  /** At most 100 ports, sorted. */
  ports?: number[]
}

/** The path of a file of a job. */
export interface Publication {
  /** Below the job's directory. */
  path: string
}

/** A file of a job that became a stored file. */
export interface Published {
  createdAt: string
  expiresAt: string | null
  fileId: string
  filename: string
  mimeType: string
  sha256: string
  sizeBytes: number
}

/** PublishedPorts are the public ports of a container after a change. */
export interface PublishedPorts {
  /** Every port is public. */
  all: boolean
  /** Ports that are public by themselves, sorted. */
  ports: number[]
  /** Of the port that was made public. */
  url?: string
}

/** The name of an image of a registry. */
export interface Pull {
  /** Such as debian:12 or ghcr.io/owner/name@sha256:…. */
  ref: string
}

/** PushImage names an image and where to push it. */
export interface PushImage {
  /** of an image of the daemon. */
  name: string
  /** The name in the registry, such as ghcr.io/owner/name:1; default the image's own name. */
  ref?: string
}

/** A Quota bounds what may be done with an API key. A field that is 0 or left out does not bound. */
export interface Quota {
  /** Requests at once after a pause; 0 is one second's worth, at least 1. 0 to 1000000. */
  burst?: number
  /** CPU time of the commands it started, from midnight UTC; counted when a command ends. */
  cpuSecondsPerDay?: number
  /** On average. 0 to 1000000. */
  requestsPerSecond?: number
  /** Containers at once that it made and that have not expired. 0 to 1000000. */
  sessions?: number
  /** Size of all stored files that it made. */
  storageBytes?: number
}

/** A QuotaChange changes the bounds that it has; 0 removes one. */
export interface QuotaChange {
  /** 0 to 1000000. */
  burst?: number
  cpuSecondsPerDay?: number
  /** 0 to 1000000. */
  requestsPerSecond?: number
  /** 0 to 1000000. */
  sessions?: number
  storageBytes?: number
}

/** A Refusal refuses a run or a call. */
export interface Refusal {
  reason?: string
}

/** A Refusing refuses. */
export interface Refusing {
  /** Of connections: once (default) or life. */
  for?: 'once' | 'life'
  /** Why, for the program and the audit log. */
  reason?: string
}

/** A Registry is an image registry that the daemon has credentials for. */
export interface Registry {
  /** with its port, if it is not 443, such as ghcr.io; docker.io is Docker Hub. */
  host: string
  updatedAt: string
  username: string
}

/** One page of a list. */
export interface RegistryPage {
  data: Registry[]
  hasMore: boolean
  /** Value of after for the next page; null on the last one. */
  nextAfter: string | null
}

/** RestoreContainer is a request to give a container the files of a snapshot. */
export interface RestoreContainer {
  /** ID or name. */
  snapshot: string
}

export interface Scope {
  id: string
  type: string
}

/** SetRegistry has the credentials for one image registry. */
export interface SetRegistry {
  /** A password or an access token. No answer has it. */
  password: string
  username: string
}

/** A persistent shell of a container. */
export interface Shell {
  busy: boolean
  calls: number
  /** Empty where it cannot be read. */
  cwd: string
  name: string
  /** As the container counts. */
  pid: number
  startedAt: string
  user: string
}

/** One page of a list. */
export interface ShellPage {
  data: Shell[]
  hasMore: boolean
  /** Value of after for the next page; null on the last one. */
  nextAfter: string | null
}

/** A SignPort asks for a signed URL. */
export interface SignPort {
  /** How long the URL is valid; 0 is the default, one hour. 0 to 604800. */
  expiresInSeconds?: number
}

/** The name of a signal. */
export interface SignalRequest {
  /** SIGTERM, TERM, and so on; SIGKILL ends the whole process tree. */
  signal: string
}

export interface SkillSource {
  type: 'custom' | 'anthropic'
}

/**
 * A Snapshot has all files of a container as of one moment: its workspace, and what it has written elsewhere. It stays
 * when the container goes. It has no processes, environment or secrets.
 */
export interface Snapshot {
  /** The container that it was taken of, which may be gone. */
  containerId: string
  createdAt: string
  /** Bytes of sizeBytes that nothing else has: what its removal frees. Left out likewise. */
  exclusiveBytes?: number
  /** Left out where it stays until it is deleted. */
  expiresAt?: string
  id: string
  image: string
  imageDigest: string
  labels: Record<string, string>
  /** Likewise. */
  limits: Limits
  /** Left out where it has none. */
  name?: string
  /** Of the container, and of containers made of the snapshot that ask for nothing else. */
  runtimeClass: 'runc' | 'gvisor'
  /**
   * Bytes of its files, those too that it shares with containers and other snapshots. Left out where the disk counts
   * otherwise: with simple quotas, which are the default from Linux 6.12 on.
   */
  sizeBytes?: number
}

/** One page of a list. */
export interface SnapshotPage {
  data: Snapshot[]
  hasMore: boolean
  /** Value of after for the next page; null on the last one. */
  nextAfter: string | null
}

/** Stats are what a container uses at one moment. A number that is not known is null. */
export interface Stats {
  containerId: string
  cpu: StatsCPU
  disk: StatsDisk
  /** Generation that the counters of CPU time belong to. */
  generation: number
  memory: StatsMemory
  name?: string
  network: StatsNetwork
  /** Processes and threads; null under gVisor, whose own threads the host counts instead. */
  processes: number | null
  processesLimit: number
  runningExecs: number
  runtimeClass: 'runc' | 'gvisor'
  state: 'creating' | 'running' | 'paused' | 'stopped' | 'expired'
  timestamp: string
}

/** StatsCPU is CPU time. */
export interface StatsCPU {
  limitCpus: number
  /** Of one core, on average since the sample before: 200 is two cores. Null in the first sample of a generation. */
  percent: number | null
  /** Since the generation started. */
  seconds: number | null
  /** For which the limit held processes back. */
  throttledSeconds: number | null
}

/** StatsDisk is disk space in bytes. The limit is for the workspace, and again for the layer. */
export interface StatsDisk {
  layerBytes: number | null
  limitBytes: number
  workspaceBytes: number | null
}

/** StatsMemory is memory in bytes. */
export interface StatsMemory {
  /** File cache. */
  cacheBytes: number | null
  limitBytes: number
  /** Without file cache that the kernel can drop at once. */
  usedBytes: number | null
}

/**
 * StatsNetwork is what the container exchanged with other hosts since the daemon started, in bytes of finished
 * requests.
 */
export interface StatsNetwork {
  receivedBytes: number
  sentBytes: number
}

/** One page of a list. */
export interface StatsPage {
  data: Stats[]
  hasMore: boolean
  /** Value of after for the next page; null on the last one. */
  nextAfter: string | null
}

/** A ToolCall is one call of a tool by code in a container. Secrets of the container are replaced in all fields. */
export interface ToolCall {
  containerId: string
  createdAt: string
  decision?: Decision
  endedAt?: string
  error?: CallError
  execId: string
  /** Until when a call that waits for approval can be approved. */
  expiresAt?: string
  id: string
  /** Of a call that needs approval. */
  input?: unknown
  inputBytes: number
  resultBytes: number
  /** When the provider could have received it. */
  startedAt?: string
  state: 'parked' | 'approved' | 'running' | 'succeeded' | 'failed' | 'refused' | 'expired' | 'canceled' | 'lost'
  tool: string
}

/** One page of a list. */
export interface ToolCallPage {
  data: ToolCall[]
  hasMore: boolean
  /** Value of after for the next page; null on the last one. */
  nextAfter: string | null
}

/**
 * A ToolProvider answers calls of tools. The values of headers and the secret are sealed on disk and never returned.
 */
export interface ToolProvider {
  /** Sent with each request to the server, such as Authorization. */
  headers?: Record<string, string>
  /**
   * For http, at least 16 bytes. Requests have the headers Berth-Timestamp and Berth-Signature, which is "sha256=" and
   * the hex HMAC-SHA-256 of the timestamp, a dot and the body.
   */
  secret?: string
  /** For http: the tools that the server answers. */
  tools?: ToolSpec[]
  /**
   * client (default): a client of the API on the websocket /v1/containers/{id}/tools. http: the daemon posts each call
   * to url, signed. mcp: the server at url speaks the Model Context Protocol over streamable HTTP.
   */
  type?: 'client' | 'http' | 'mcp'
  /** Address of the server. The operator of the daemon allows servers with --tools-callback. */
  url?: string
}

/** A ToolSpec describes a tool. */
export interface ToolSpec {
  description?: string
  /** JSON Schema, draft 2020-12, of the input, which is an object; default any object. */
  inputSchema?: unknown
  name: string
  /** JSON Schema of the result; default anything. */
  outputSchema?: unknown
}

/** A Webhook is a URL that events are posted to. */
export interface Webhook {
  containerId?: string
  createdAt: string
  /** The last attempts, newest last. */
  deliveries: WebhookDelivery[]
  description?: string
  /** Why it was disabled. */
  disabledReason?: string
  enabled: boolean
  /** Since when nothing was delivered, and when the next attempt is; null while it works. */
  failingSince: string | null
  id: string
  nextAttempt: string | null
  /** Empty for all. */
  types: string[]
  url: string
}

/** A WebhookDelivery is one attempt to deliver an event. */
export interface WebhookDelivery {
  at: string
  error?: string
  /** The header webhook-id; the same in all attempts. */
  messageId: string
  seconds: number
  /** HTTP status of the receiver; 0 for none. */
  status: number
  type: 'container.created' | 'container.started' | 'container.stopped' | 'container.paused' | 'container.resumed'
    | 'container.changed' | 'container.expired' | 'container.deleted' | 'container.reset' | 'container.restored'
    | 'container.forked' | 'snapshot.created' | 'snapshot.deleted' | 'exec.started' | 'exec.ended' | 'files.changed'
    | 'file.stored' | 'file.deleted' | 'approval.parked' | 'approval.decided' | 'tool_call.ended' | 'port.opened'
    | 'port.closed' | 'gap' | 'webhook.disabled'
}

/** One page of a list. */
export interface WebhookPage {
  data: Webhook[]
  hasMore: boolean
  /** Value of after for the next page; null on the last one. */
  nextAfter: string | null
}

/** A WindowSize is the size of a terminal in character cells. */
export interface WindowSize {
  /** 1 to 65535. */
  cols: number
  /** 1 to 65535. */
  rows: number
}

/** A Workspace is a directory tree that outlives containers. */
export interface Workspace {
  /** The container that uses it; empty for none. */
  containerId: string
  createdAt: string
  id: string
  /** It stays when its container goes. */
  kept: boolean
}

/** One page of a list. */
export interface WorkspacePage {
  data: Workspace[]
  hasMore: boolean
  /** Value of after for the next page; null on the last one. */
  nextAfter: string | null
}

/** How many bytes standard input took. */
export interface Written {
  bytes: number
}
