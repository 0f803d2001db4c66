package native

import (
	"cmp"
	"net/http"

	"berth/api"
	"berth/code"
	"berth/proto"
	"berth/session"
	"berth/tools/tooluse"
)

// A row is one route, and what the OpenAPI document says of it.
type row struct {
	method, path string
	where        api.Place
	handle       handler
	op
}

// An op is the document's part of a row. The query is also what requests are checked against.
type op struct {
	id, tag   string // operationId, and the heading it stands under
	does      string // one line
	more      string // what a caller has to know beside it; may be empty
	query     []param
	header    []param // that mean something to this route alone
	body      []content
	optional  bool  // the body may be left out
	loose     bool  // the body may have fields that its type does not list
	limit     int64 // most bytes of the body; 0 is maxJSON
	unbounded bool  // the body is a stream with no limit of its own
	answers   map[int][]content
	fails     []int // statuses that carry an error
	failure   any   // a value of an error's type; nil is this edge's own
	public    bool  // needs no API key
	admin     bool  // needs an admin's
}

// A content is one form that a body can have.
type content struct {
	media   string
	of      any               // a value of its JSON type; nil for bytes
	headers map[string]string // of an answer: name and what it says
}

// maxJSON bounds a body that is JSON, in bytes: a command of 1 MiB, escaped.
const maxJSON = 2 << 20

// -1 is no limit here: files and images are bounded by the disk and by limits below this edge.
func (r row) bodyLimit() int64 {
	if r.unbounded {
		return -1
	}
	return cmp.Or(r.limit, maxJSON)
}

func js(v any) []content { return []content{{media: "application/json", of: v}} }

func raw(media string) []content { return []content{{media: media}} }

// Answers of one form.
func ok(v any) map[int][]content { return map[int][]content{http.StatusOK: js(v)} }

func created(v any) map[int][]content { return map[int][]content{http.StatusCreated: js(v)} }

// Media types.
const (
	octets    = "application/octet-stream"
	tarType   = "application/x-tar"
	eventType = "text/event-stream"
	lineType  = "application/x-ndjson"
)

// The statuses that kinds of routes fail with.
var (
	// 503 is a daemon that shuts down, for whoever waits for it.
	basic = []int{400, 401, 413, 429, 500, 503}
	inOwn = append([]int{404}, basic...) // names something of the caller's
	// 410 is told apart from 404 so that a client knows: it was there, and its time is over.
	inBox = append([]int{410}, inOwn...) // names a container
	// 403 is what its user may not do there, 409 a state that does not fit, 501 what such a
	// container cannot do, 503 and 504 a guest that does not answer, or not in time, and 507 a
	// full disk or quota.
	inGuest = append([]int{403, 409, 501, 504, 507}, inBox...) // asks the container to do something
)

// Parameters that several routes have.
var (
	asParam = param{name: "as", does: "The user of the container that does it, which decides what is permitted.",
		choices: []string{proto.UserDefault, proto.UserRoot}}
	pathParam = param{name: "path", required: true, pattern: noNUL, does: "A path inside the container: " +
		"absolute, or relative to /workspace. Its bytes need not be UTF-8."}
	ofGeneration = param{name: "generation", kind: whole, does: "The generation of the container that this is meant " +
		"for; 0 is any. Where another one runs, or none, the answer is 409 and nothing is done or started."}
	lastEvent = param{name: "Last-Event-ID", pattern: "^([0-9]{1,18}-[0-9]{1,18}(-end)?)?$",
		does: "The ID of the last event a client has; the stream goes on behind it."}
)

// rows is every route of this edge.
func (e *edge) rows() []row {
	var all []row
	for _, part := range [][]row{e.containerRows(), e.execRows(), e.codeRows(), e.toolRows(), e.callRows(),
		e.fileRows(), e.jobRows(), e.hostRows(), e.keyRows(), e.vaultRows(), e.auditRows()} {
		all = append(all, part...)
	}
	return all
}

func (e *edge) containerRows() []row {
	const tag = "containers"
	return []row{
		{"POST", "/v1/containers", api.None, e.createContainer,
			withReplays(op{id: "createContainer", tag: tag, does: "Create a container.",
				body: js(proto.CreateContainer{}), optional: true, answers: created(proto.Container{}),
				fails: inGuest})},
		{"GET", "/v1/containers", api.None, e.listContainers, op{id: "listContainers", tag: tag,
			does: "List containers, newest first.",
			query: []param{
				{name: "label", repeat: true, pattern: "^[^=]+=", does: "key=value that a container must have. May " +
					"be repeated; all must match."},
				{name: "state", does: "Only containers in this state. Without it, all but expired ones.",
					choices: names(enums[stateType])},
				{name: "limit", kind: whole, max: 1000, does: "At most so many, 1 to 1000; 0 is the default, 100."},
				{name: "after", pattern: "^(container_[0-9A-Za-z]{22})?$", does: "A container's ID: begin behind it."},
			}, answers: ok(containerPage{}), fails: basic}},
		{"GET", "/v1/containers/{id}", api.InPath, e.getContainer, op{id: "getContainer", tag: tag, does: "Describe a container.",
			more: "An expired container is a 410 that names it.", answers: ok(proto.Container{}), fails: inBox}},
		{"DELETE", "/v1/containers/{id}", api.InPath, e.deleteContainer, op{id: "deleteContainer", tag: tag,
			does:    "End a container's commands and remove it with its workspace.",
			query:   []param{{name: "keep_workspace", kind: flag, does: "Keep the workspace for another container."}},
			answers: ok(deletedContainer{}), fails: inOwn}},
		{"POST", "/v1/containers/{id}/extend", api.InPath, e.extendContainer, op{id: "extendContainer", tag: tag,
			does: "Move a container's expiry, never past max_expires_at.",
			body: js(extension{}), optional: true, answers: ok(proto.Container{}), fails: inBox}},
		{"POST", "/v1/containers/{id}/start", api.InPath, e.moved((*session.Session).Start), op{id: "startContainer", tag: tag,
			does:    "Start a stopped container; any other use does so too.",
			answers: ok(proto.Container{}), fails: inGuest}},
		{"POST", "/v1/containers/{id}/stop", api.InPath, e.moved((*session.Session).Stop), op{id: "stopContainer", tag: tag,
			does:    "End a container's processes and keep its files.",
			answers: ok(proto.Container{}), fails: inGuest}},
		{"POST", "/v1/containers/{id}/pause", api.InPath, e.moved((*session.Session).Pause), op{id: "pauseContainer", tag: tag,
			does: "Have a container's processes stand still until its next use.",
			more: "A container that is stopped, or in which a command is just starting or files are on their way, is a 409.", answers: ok(proto.Container{}), fails: inGuest}},
		{"POST", "/v1/containers/{id}/resume", api.InPath, e.moved((*session.Session).Resume), op{id: "resumeContainer", tag: tag,
			does: "Have a paused container go on; any use does so too.",
			more: "A stopped container is a 409.", answers: ok(proto.Container{}), fails: inGuest}},
		{"GET", "/v1/workspaces", api.None, e.listWorkspaces, op{id: "listWorkspaces", tag: tag,
			does:    "List workspaces, newest first.",
			answers: ok(page[proto.Workspace]{}), fails: basic}},
		{"DELETE", "/v1/workspaces/{id}", api.None, e.deleteWorkspace, op{id: "deleteWorkspace", tag: tag,
			does:    "Remove a workspace that no container has.",
			answers: ok(deletion{}), fails: append([]int{409}, inOwn...)}},
	}
}

// ran are the answers of what runs a command.
func ran() map[int][]content {
	return map[int][]content{
		http.StatusOK:       append(js(proto.ExecResult{}), content{media: eventType, of: proto.Event{}}),
		http.StatusAccepted: js(proto.Exec{}),
	}
}

const runMore = "Answers with the result when the command has ended, whatever its return code. With \"background\": " +
	"true it answers 202 as soon as the " +
	"command has started. With Accept: text/event-stream it answers with events while the command runs; the data of " +
	"each is an Event, and its ID a position " +
	"for Last-Event-ID. When the client goes away the command is ended, unless it has \"detach\", \"background\" or " +
	"an idempotency key; such a command goes on, too, when the daemon is restarted."

func (e *edge) execRows() []row {
	const tag, at = "commands", "/v1/containers/{id}/execs/{exec}"
	return []row{
		{"POST", "/v1/exec", api.None, e.runOnce, withReplays(op{id: "runOnce", tag: tag, does: "Create a container and run a " +
			"command in it.", more: runMore + " An idempotency key is for both, so create has none of its own.",
			body: js(oneShot{}), answers: ran(), fails: inGuest})},
		{"POST", "/v1/containers/{id}/exec", api.InPath, e.runCommand, withReplays(op{id: "run", tag: tag, does: "Run a command.",
			more: runMore,
			body: js(proto.Cmd{}), answers: ran(), fails: inGuest})},
		{"GET", "/v1/containers/{id}/execs", api.InPath, e.listExecs, op{id: "listExecs", tag: tag,
			does:    "List a container's commands, running and remembered, in the order they began.",
			answers: ok(page[proto.Exec]{}), fails: inBox}},
		{"GET", at, api.InPath, e.getExec, op{id: "getExec", tag: tag, does: "Describe a command.", answers: ok(proto.Exec{}),
			fails: inBox}},
		{"GET", at + "/result", api.InPath, e.execResult, op{id: "getExecResult", tag: tag, does: "Get a command's result, " +
			"waiting for it if asked to.",
			query: []param{{name: "wait_seconds", kind: whole, max: 86400, does: "How long to wait for the end. " +
				"If it still runs then, the answer is 202."}},
			answers: map[int][]content{http.StatusOK: js(proto.ExecResult{}), http.StatusAccepted: js(proto.Exec{})},
			fails:   inBox}},
		{"GET", at + "/logs", api.InPath, e.execLogs, op{id: "getExecLogs", tag: tag, does: "Read a command's output as it is.",
			more: "Of each stream the first and the last part are kept; a line in square brackets stands where " +
				"something was left out between them. With offset the bytes are the stream's own and nothing else: " +
				"the answer ends where something was left out, and the next one, from the offset after the last " +
				"byte, tells by Berth-Log-Start where it goes on. " +
				"A log that is followed ends with the command: when the daemon shuts down before that, the " +
				"connection breaks, or the answer is a 503.",
			query: []param{
				{name: "stream", choices: []string{"stdout", "stderr", "both"}, does: "Which output; both is the " +
					"default, in the order it was written."},
				{name: "offset", kind: whole, max: never - 1, does: "Begin at this byte of the stream, which stream " +
					"has to name, stdout or stderr. One behind all that was written is refused."},
				{name: "follow", kind: flag, does: "Go on until the command has ended."},
			},
			answers: map[int][]content{http.StatusOK: {
				{media: octets, headers: map[string]string{logStart: "The offset of the first byte, where what was " +
					"asked for is no longer kept."}}}}, fails: append([]int{416}, inBox...)}},
		{"GET", at + "/events", api.InPath, e.execEvents, op{id: "followExec", tag: tag, does: "Follow a command from its " +
			"beginning, or from a position, to its end.",
			query: []param{
				{name: "stdout_offset", kind: whole, does: "Bytes of stdout that the client has."},
				{name: "stderr_offset", kind: whole, does: "Bytes of stderr that the client has."},
			}, header: []param{lastEvent},
			answers: map[int][]content{http.StatusOK: {{media: eventType, of: proto.Event{}}},
				http.StatusNoContent: nil}, fails: inBox}},
		{"POST", at + "/signal", api.InPath, e.signalExec, op{id: "signalExec", tag: tag, does: "Send a signal to a command.",
			body: js(signalRequest{}), answers: ok(proto.Exec{}), fails: inGuest}},
		{"POST", at + "/stdin", api.InPath, e.writeStdin, op{id: "writeStdin", tag: tag, does: "Write to a command's standard " +
			"input, as fast as it reads.",
			query: []param{{name: "close", kind: flag, does: "End its standard input afterwards."}},
			body:  raw(octets), optional: true, unbounded: true, answers: ok(written{}), fails: inGuest}},
		{"POST", at + "/resize", api.InPath, e.resizeExec, op{id: "resizeExec", tag: tag,
			does: "Tell a command's terminal its size.",
			body: js(proto.WindowSize{}), answers: ok(proto.Exec{}), fails: inGuest}},
		{"GET", "/v1/containers/{id}/shells", api.InPath, e.listShells, op{id: "listShells", tag: tag,
			does:    "List a container's persistent shells.",
			answers: ok(page[shell]{}), fails: inGuest}},
		{"DELETE", "/v1/containers/{id}/shells/{name}", api.InPath, e.closeShell, op{id: "closeShell", tag: tag,
			does:    "End a persistent shell and what runs in it.",
			answers: ok(deletedName{}), fails: inGuest}},
		{"GET", "/v1/containers/{id}/live", api.InPath, e.live, op{id: "live", tag: tag, does: "A websocket: many commands at " +
			"once, live.", more: liveMore,
			query:   []param{{name: "watch", kind: flag, does: "Follow the commands of others, too."}},
			answers: map[int][]content{http.StatusSwitchingProtocols: nil}, fails: append([]int{403, 426}, inBox...)}},
		{"POST", "/v1/tool_use", api.None, e.useToolOnce,
			withReplays(op{id: "useToolOnce", tag: tag, does: "Create a container and do in it what a model's " +
				"tool-use block asks for.",
				body: js(tooluse.Use{}), loose: true, answers: ok(tooluse.Result{}), fails: inGuest})},
		{"POST", "/v1/containers/{id}/tool_use", api.InPath, e.useTool,
			withReplays(op{id: "useTool", tag: tag, does: "Do what a model's tool-use block asks for.",
				more: "The block is sent as the model wrote it. What goes wrong while it is done is told inside the " +
					"result block. Idempotency-Key is for the bash tools.",
				body: js(tooluse.Use{}), loose: true, answers: ok(tooluse.Result{}), fails: inGuest})},
	}
}

func (e *edge) codeRows() []row {
	const tag, at = "code", "/v1/containers/{id}/contexts"
	return []row{
		{"POST", "/v1/run_code", api.InBody, e.runCode, op{id: "runCode", tag: tag, does: "Run code and get the value of its " +
			"last expression.", more: codeMore,
			body: js(proto.Program{}), answers: ok(code.Outcome{}), fails: inGuest}},
		{"POST", "/v1/code_executor", api.None, e.executeCode, op{id: "executeCode", tag: tag,
			does: "Run a script as the code_executor tool does, and get one Markdown text.",
			more: "The script runs as a file, in a container of its own that is deleted afterwards: 15 seconds, and " +
				"64 KiB of each stream.", body: js(code.Script{}), answers: ok(execution{}), fails: inGuest}},
		{"POST", at, api.InPath, e.createContext, op{id: "createContext", tag: tag, does: "Begin a named interpreter that keeps " +
			"its variables.",
			more: "A cell in a context that is not there makes it, too. A container has at most 8. They end with " +
				"the daemon.", body: js(code.NewContext{}), answers: created(code.Context{}), fails: inGuest}},
		{"GET", at, api.InPath, e.listContexts, op{id: "listContexts", tag: tag, does: "List a container's contexts, by name.",
			answers: ok(page[code.Context]{}), fails: inBox}},
		{"GET", at + "/{name}", api.InPath, e.getContext, op{id: "getContext", tag: tag, does: "Describe a context.",
			answers: ok(code.Context{}), fails: inBox}},
		{"DELETE", at + "/{name}", api.InPath, e.deleteContext, op{id: "deleteContext", tag: tag,
			does:    "End a context with its interpreter, and a cell that runs in it.",
			answers: ok(deletedName{}), fails: inGuest}},
		{"POST", at + "/{name}/run", api.InPath, e.runCell, op{id: "runCell", tag: tag, does: "Run a cell in a context.",
			more: cellMore,
			body: js(code.Cell{}), answers: map[int][]content{http.StatusOK: append(js(code.Outcome{}),
				content{media: eventType, of: code.Progress{}})}, fails: inGuest}},
		{"POST", at + "/{name}/interrupt", api.InPath, e.interruptContext, op{id: "interruptContext", tag: tag,
			does: "Interrupt the cell that runs in a context, as Ctrl-C does.",
			more: "Its variables stay. Where no cell runs, nothing happens.", answers: ok(code.Context{}),
			fails: inGuest}},
		{"POST", at + "/{name}/restart", api.InPath, e.restartContext, op{id: "restartContext", tag: tag,
			does:    "End a context's interpreter, and a cell that runs in it, and begin a fresh one.",
			answers: ok(code.Context{}), fails: inGuest}},
	}
}

const codeMore = "Without a container, the code runs in a container of its own, which is deleted with all its files " +
	"when the answer is there, or the client has gone. With container it runs in a fresh interpreter in that one, " +
	"and with context too as a cell of that context. results has the value of the last expression and what else the " +
	"code showed, as text, and rich the same by media type; error is there only where the code failed, which is no " +
	"failure of the request. " +
	"An image that lacks the language is a 501 that names one that has it."

const cellMore = "The context is made if it is not there. Cells of a context take turns. With Accept: " +
	"text/event-stream it answers with events while the cell runs: start, stdout, stderr, gap, and at the end " +
	"result or error; the data of each is a Progress. " +
	"When the client goes away, or the time is over, the cell is interrupted; if it does not heed that within 2 " +
	"seconds, it ends with its interpreter. Where the interpreter ended, the result has an error and what was " +
	"printed until then, " +
	"and the next cell begins a fresh one and says so in notes."

const liveMore = "Text messages both ways, JSON. The client sends Message objects, the server Event objects, the " +
	"first of type ready. Where an exec or attach message has \"binary\": true, its command's output comes in " +
	"binary messages instead: " +
	"the stream (1 byte: 1 is stdout, 2 stderr), the length of the exec's ID (1 byte), that ID, the offset in the " +
	"stream (8 bytes, big-endian), and the bytes. A message that is not right is answered by an event " +
	"of type error with its ref, and the connection stays. When the connection ends, the commands it began are " +
	"ended, unless they have \"detach\", \"background\" or an idempotency key. A slow reader misses output, which a gap event " +
	"tells, and holds nothing up. A page in a browser sends its API key as the subprotocol berth.key.<base64url of " +
	"the key>, beside berth.v1."

func (e *edge) fileRows() []row {
	const tag, at = "files in containers", "/v1/containers/{id}/fs"
	file := map[string]string{
		"Berth-File-Mode": "Octal permission bits.", "Berth-File-Modified": "Time of the last change, RFC 3339.",
		"Last-Modified": "The same in whole seconds.", "Accept-Ranges": "bytes",
	}
	part := map[string]string{"Content-Range": "Which bytes these are, of how many."}
	rows := []row{
		{"GET", at + "/content", api.InPath, e.readContent, op{id: "readFile", tag: tag, does: "Read a file.",
			query: []param{pathParam, asParam}, header: []param{
				{name: "Range", does: "One range of bytes, such as bytes=0-99, bytes=100- or bytes=-100. With " +
					"If-Range the whole file is the answer: nothing tells its versions apart for certain."}},
			answers: map[int][]content{http.StatusOK: {{media: octets, headers: file}}, http.StatusPartialContent: {
				{media: octets, headers: part}}}, fails: append([]int{416}, inGuest...)}},
		{"PUT", at + "/content", api.InPath, e.writeContent, op{id: "writeFile", tag: tag, does: "Write a file, whole or not at " +
			"all. Its directories are made.",
			more: "A body with Content-Range, which is a part of a file, is refused.",
			query: []param{pathParam, asParam, {name: "mode", kind: mode, does: "Octal permission bits. Without it " +
				"a new file gets 0644 and another keeps its own."},
				{name: "hash", kind: flag,
					does: "Answer with the file's SHA-256, too, which takes longer than to write it."}},
			body: raw(octets), optional: true, unbounded: true, answers: ok(proto.FileInfo{}), fails: inGuest}},
		{"DELETE", at + "/content", api.InPath, e.removeContent, op{id: "removeFile", tag: tag,
			does: "Remove a file or a directory. Links are removed, not followed.",
			query: []param{pathParam, asParam, {name: "recursive", kind: flag,
				does: "Remove a directory with all it holds."}}, answers: ok(deletedPath{}), fails: inGuest}},
		{"GET", at + "/list", api.InPath, e.listDirectory, op{id: "listDirectory", tag: tag,
			does:  "List a directory, sorted by name.",
			query: []param{pathParam, asParam}, answers: ok(listing{}), fails: inGuest}},
		{"GET", at + "/stat", api.InPath, e.statFile, op{id: "statFile", tag: tag, does: "Describe a file. A link at the end of " +
			"the path is not followed.",
			query: []param{pathParam, asParam}, answers: ok(proto.FileInfo{}), fails: inGuest}},
		{"POST", at + "/move", api.InPath, e.moveFile, op{id: "moveFile", tag: tag, does: "Rename a file or directory.",
			body: js(move{}), answers: ok(move{}), fails: inGuest}},
		{"POST", at + "/mkdir", api.InPath, e.makeDirectory, op{id: "makeDirectory", tag: tag,
			does: "Make a directory and its parents.", body: js(directory{}), answers: ok(directory{}),
			fails: inGuest}},
		{"GET", at + "/tar", api.InPath, e.readTar, op{id: "readTar", tag: tag, does: "Read a directory as a tar archive.",
			query: []param{pathParam, asParam}, answers: map[int][]content{http.StatusOK: raw(tarType)},
			fails: inGuest}},
		{"PUT", at + "/tar", api.InPath, e.writeTar, op{id: "writeTar", tag: tag, does: "Unpack a tar archive into a directory, " +
			"which is made.",
			more: "Members that would leave the directory, and devices, are refused by name; members before them " +
				"are there then. A body with Content-Range, which is a part of an archive, is refused.",
			query: []param{pathParam, asParam}, body: append(raw(tarType), raw(octets)...), unbounded: true,
			answers: ok(directory{}), fails: inGuest}},
	}
	for i := range rows {
		rows[i].query = append(rows[i].query, ofGeneration)
	}
	return rows
}

func (e *edge) jobRows() []row {
	const tag, at = "jobs", "/v1/containers/{id}/jobs"
	return []row{
		{"POST", "/v1/containers/{id}/inputs", api.InPath, e.addInputs, op{id: "addInputs", tag: tag,
			does: "Put stored files into $INPUT_DIR.",
			body: js(inputs{}), answers: ok(inputDir{}), fails: inGuest}},
		{"GET", at, api.InPath, e.listJobs, op{id: "listJobs", tag: tag, does: "List the jobs of a container's workspace, " +
			"newest first.", answers: ok(page[proto.JobSummary]{}), fails: inBox}},
		{"GET", at + "/{job}/manifest", api.InPath, e.jobManifest, op{id: "getManifest", tag: tag,
			does:    "What a job's directory holds, and which command made it.",
			answers: ok(proto.Manifest{}), fails: inGuest}},
		{"POST", at + "/{job}/publish", api.InPath, e.publishFile, op{id: "publishFile", tag: tag,
			does: "Make a stored file of a file of a job.",
			body: js(publication{}), answers: created(published{}), fails: inGuest}},
		{"GET", at + "/{job}/tar", api.InPath, e.jobTar, op{id: "readJob", tag: tag,
			does:    "Read a job's directory as a tar archive.",
			answers: map[int][]content{http.StatusOK: raw(tarType)}, fails: inGuest}},
	}
}

func (e *edge) hostRows() []row {
	const tag = "daemon"
	lines := map[int][]content{http.StatusOK: {{media: lineType, of: imageLine{}}}}
	const linesMore = "Each line of the answer is a JSON object: steps, and at the end the image or the error. What " +
		"fails before the first step is an ordinary error."
	imageFails := append([]int{501, 503, 504, 507}, inOwn...)
	return []row{
		{"GET", "/v1/images", api.None, e.listImages, op{id: "listImages", tag: tag, does: "List images.",
			answers: ok(page[session.Image]{}), fails: basic}},
		{"POST", "/v1/images/import", api.None, e.importImage, op{id: "importImage", tag: tag, admin: true,
			does: "Import an OCI or Docker archive.", more: linesMore,
			query: []param{{name: "name", does: "What to call the image; without it, what the archive says."}},
			body:  append(raw(tarType), raw(octets)...), unbounded: true, answers: lines, fails: imageFails}},
		{"POST", "/v1/images/pull", api.None, e.pullImage, op{id: "pullImage", tag: tag, admin: true,
			does: "Fetch an image from a registry.", more: linesMore,
			body: js(pull{}), answers: lines, fails: imageFails}},
		{"DELETE", "/v1/images", api.None, e.removeImage, op{id: "removeImage", tag: tag, admin: true,
			does:  "Forget an image. Containers that run keep what they use.",
			query: []param{{name: "ref", required: true, does: "The image's name."}}, answers: ok(deletedName{}),
			fails: append([]int{409, 501}, inOwn...)}},
		{"POST", "/v1/sweep", api.None, e.sweep, op{id: "sweep", tag: tag, admin: true, does: "Run all sweeps now.",
			more: "Answers with what each did, as counts.",
			query: []param{{name: "strangers", kind: flag, does: "Remove first the workspaces that were set aside " +
				"because the ledger does not know them."}},
			answers: ok(map[string]map[string]int{}), fails: basic}},
		{"GET", "/v1/info", api.None, e.info, op{id: "info", tag: tag, does: "Describe the daemon.", answers: ok(Info{}),
			fails: basic}},
		{"GET", "/openapi.json", api.None, e.openAPI, op{id: "openAPI", tag: tag, does: "This document.", public: true,
			answers: ok(map[string]any{}), fails: []int{400, 413, 500}}},
	}
}

func (e *edge) keyRows() []row {
	const tag, at = "API keys", "/v1/keys/{id}"
	return []row{
		{"POST", "/v1/keys", api.None, e.createKey, op{id: "createKey", tag: tag, admin: true,
			does: "Make an API key. Its secret is in this answer and nowhere else.",
			body: js(proto.CreateKey{}), optional: true, answers: created(proto.NewKey{}), fails: basic}},
		{"GET", "/v1/keys", api.None, e.listKeys, op{id: "listKeys", tag: tag, admin: true,
			does:    "List API keys, newest first, the revoked ones too.",
			answers: ok(page[proto.Key]{}), fails: basic}},
		{"GET", "/v1/keys/self", api.None, e.ownKey, op{id: "getOwnKey", tag: tag, does: "Describe the key that asks, and " +
			"what it uses of its quota.",
			answers: ok(proto.KeyStatus{}), fails: inOwn}},
		{"GET", at, api.None, e.getKey, op{id: "getKey", tag: tag, admin: true, does: "Describe an API key, and what it uses " +
			"of its quota.",
			answers: ok(proto.KeyStatus{}), fails: inOwn}},
		{"PATCH", at, api.None, e.changeKey, op{id: "changeKey", tag: tag, admin: true, does: "Change an API key's name or " +
			"quota, at once.",
			more: "What is left out stays; a bound of 0 is taken away, and burst with requests_per_second. A bound " +
				"that is now below what is used takes nothing away, and refuses more.",
			body: js(proto.ChangeKey{}), answers: ok(proto.Key{}), fails: append([]int{409}, inOwn...)}},
		{"DELETE", at, api.None, e.revokeKey, op{id: "revokeKey", tag: tag, admin: true,
			does:    "Revoke an API key for good, at once.",
			more:    "Requests and websockets of the key that are under way end. What was made with it stays its owner's.",
			answers: ok(proto.Key{}), fails: append([]int{409}, inOwn...)}},
	}
}
