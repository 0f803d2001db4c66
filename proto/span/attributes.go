package span

// Attributes of OpenTelemetry's semantic conventions.
const (
	ErrorType  Key = "error.type"
	ExitCode   Key = "process.exit.code"
	ImageName  Key = "container.image.name"
	HTTPMethod Key = "http.request.method"
	HTTPRoute  Key = "http.route"
	HTTPStatus Key = "http.response.status_code"
	URLScheme  Key = "url.scheme"
	Server     Key = "server.address"

	Operation     Key = "gen_ai.operation.name"
	Provider      Key = "gen_ai.provider.name"
	RequestModel  Key = "gen_ai.request.model"
	ResponseModel Key = "gen_ai.response.model"
	InputTokens   Key = "gen_ai.usage.input_tokens"
	OutputTokens  Key = "gen_ai.usage.output_tokens"
	FinishReasons Key = "gen_ai.response.finish_reasons"
	ToolName      Key = "gen_ai.tool.name"
	ToolCallID    Key = "gen_ai.tool.call.id"

	MCPMethod  Key = "mcp.method.name"
	MCPSession Key = "mcp.session.id"
)

// Operations of models; see Operation.
const (
	OperationChat = "chat"
	OperationTool = "execute_tool"
)

// Attributes of berth.
const (
	RequestID   Key = "berth.request.id"
	ContainerID Key = "berth.container.id"
	Generation  Key = "berth.container.generation"
	Class       Key = "berth.runtime_class"
	SnapshotID  Key = "berth.snapshot.id"
	ForkOf      Key = "berth.container.fork_of"   // ID of the container that it is a copy of
	FromPool    Key = "berth.container.from_pool" // bool: it was started ahead
	ExecID      Key = "berth.exec.id"
	ExecReason  Key = "berth.exec.reason"       // see proto.EndReason
	Background  Key = "berth.exec.background"   // bool
	LeftRunning Key = "berth.exec.left_running" // bool: the daemon ended and the command goes on
	Bytes       Key = "berth.bytes"             // of a transfer
	BuildID     Key = "berth.build.id"
	BuildStep   Key = "berth.build.step"        // number
	BuildCached Key = "berth.build.step.cached" // bool
	RunID       Key = "berth.tool.run.id"
	WebhookID   Key = "berth.webhook.id"
	EventType   Key = "berth.event.type"
	ContextID   Key = "berth.context.id"
	Language    Key = "berth.code.language"
)
