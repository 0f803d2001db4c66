package native

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"berth/api"
	"berth/api/buildform"
	"berth/api/jsonlines"
	"berth/api/native/document"
	"berth/api/openapi"
	"berth/code"
	"berth/proto"
	"berth/session"
	"berth/tools/tooluse"
)

// A row is one route and its part of the OpenAPI document. Requests are checked against the same query parameters.
// The types of JSON bodies come from the handler.
type row struct {
	method, path string
	action
	openapi.Operation
}

// maxJSON bounds a JSON body, in bytes: a command of 1 MiB, escaped.
const maxJSON = 2 << 20

// bodyLimits are limits other than maxJSON, by operation. Files and archives have no limit here: the disk and the
// core bound them.
var bodyLimits = map[string]int64{"writeStdin": -1, "writeFile": -1, "writeFileInPlace": -1, "writeTar": -1,
	"importImage": -1, "buildImage": -1, "runTool": runBody}

// namesContainer are the operations whose body may name a container.
var namesContainer = map[string]bool{"runCode": true, "runTool": true, "useToolOnce": true}

// where returns where the ID of the route's container stands.
func (r row) where() api.Place {
	switch {
	case namesContainer[r.ID]:
		return api.InBody
	case strings.Contains(r.path+"/", "/containers/{id}/"):
		return api.InPath
	}
	return api.None
}

// documented returns the row with what the document has from its handler.
func (r row) documented() row {
	if r.body != nil {
		r.Body, r.Optional = js(r.body), r.optional
	}
	if r.answer != nil && r.Answers == nil {
		r.Answers = answers(r.status, js(r.answer))
	}
	if r.once {
		r.Header = append(r.Header, keyParam)
		for _, forms := range r.Answers {
			for i := range forms {
				forms[i].Headers = replays
			}
		}
	}
	return r
}

func js(v any) []openapi.Content { return []openapi.Content{{Media: "application/json", Of: v}} }

func raw(media ...string) (list []openapi.Content) {
	for _, m := range media {
		list = append(list, openapi.Content{Media: m})
	}
	return list
}

// answers are those of a route with one status.
func answers(status int, forms []openapi.Content) map[int][]openapi.Content {
	return map[int][]openapi.Content{status: forms}
}

// endOrState are the answers of a route that waits: the result, or the state if there is no result yet.
func endOrState(result, state any) map[int][]openapi.Content {
	return map[int][]openapi.Content{http.StatusOK: js(result), http.StatusAccepted: js(state)}
}

// withEvents adds a stream of events of this type to the answers of status 200.
func withEvents(to map[int][]openapi.Content, event any) map[int][]openapi.Content {
	to[http.StatusOK] = append(to[http.StatusOK], openapi.Content{Media: eventType, Of: event})
	return to
}

// Media types.
const (
	octets    = "application/octet-stream"
	tarType   = "application/x-tar"
	eventType = "text/event-stream"
)

// Error statuses by kind of route.
var (
	// 503: the daemon shuts down.
	basic     = []int{400, 401, 413, 429, 500, 503}
	namesItem = also(basic, 404) // names an item of the caller
	// 410 differs from 404, so that a client knows that the container existed and has expired.
	inContainer = also(namesItem, 410) // names a container
	// 403: the user may not do this in the container. 409: wrong state. 501: not possible in such a container. 503,
	// 504: the guest does not answer, or not in time. 507: the disk or a quota is full.
	inGuest = also(inContainer, 403, 409, 501, 504, 507) // asks the container to do something
)

func also(common []int, more ...int) []int { return slices.Concat(common, more) }

// Parameters of several routes.
var (
	asParam = openapi.Param{Name: "as", Kind: openapi.User, Description: "User in the container who accesses the " +
		"file: user (default), root, or another name or UID, and a group or GID after a colon."}
	pathParam = openapi.Param{Name: "path", Required: true, Pattern: document.NoNUL, Description: "A path " +
		"inside the container: absolute, or relative to /workspace. Its bytes need not be UTF-8."}
	ofGeneration = openapi.Param{Name: "generation", Kind: openapi.Whole, Description: "Generation of " +
		"the container that the request is for; 0 is any. If another generation runs, or none, the answer is a 409 " +
		"and nothing is done."}
	lastEvent = openapi.Param{Name: "Last-Event-ID", Pattern: "^([0-9]{1,18}-[0-9]{1,18}(-end)?)?$",
		Description: "ID of the last event that the client has; the stream continues after it."}
	shortPage = openapi.Param{Name: "limit", Kind: openapi.Whole, Max: 100, Description: "Maximum length of the " +
		"page, 1 to 100; 0 is the default, 20. A page of large entries has fewer."}
	waitSeconds = openapi.Param{Name: "wait_seconds", Kind: openapi.Whole, Max: 86400}
)

// about returns the parameter with a description.
func about(p openapi.Param, description string) openapi.Param {
	p.Description = description
	return p
}

// pageAfter is the parameter that continues a list after the item with this ID.
func pageAfter(prefix, item string) openapi.Param {
	return openapi.Param{Name: "after", Pattern: "^(" + prefix + "[0-9A-Za-z]{22})?$",
		Description: "ID of a " + item + ": the page starts after it."}
}

// rows returns all routes of this edge.
func (e *edge) rows() []row {
	var all []row
	for _, group := range []struct {
		tag  string // the heading in the document
		rows []row
	}{
		{"containers", e.containerRows()}, {"snapshots", e.snapshotRows()}, {"commands", e.execRows()},
		{"code", e.codeRows()},
		{"stored tools", e.toolRows()}, {"tools of code", e.callRows()}, {"files in containers", e.fileRows()},
		{"jobs", e.jobRows()}, {"daemon", e.daemonRows()}, {"API keys", e.keyRows()}, {"audit", e.auditRows()},
		{"events", e.eventRows()}, {"stats", e.statRows()}, {"ports", e.portRows()},
		{"webhooks", e.webhookRows()}, {"registries", e.registryRows()},
	} {
		for _, r := range group.rows {
			r.Tag = group.tag
			all = append(all, r.documented())
		}
	}
	return all
}

func (e *edge) containerRows() []row {
	const one = "/v1/containers/{id}"
	return []row{
		{"POST", "/v1/containers", mayTake(e.createContainer).created().repeatable(), openapi.Operation{
			ID: "createContainer", Summary: "Create a container.", Fails: inGuest,
			Description: "With \"existing\": true, the answer is the live container of that name with the " +
				"status 200, if there is one, started or resumed.",
			Answers: map[int][]openapi.Content{http.StatusCreated: js(proto.Container{}),
				http.StatusOK: js(proto.Container{})}}},
		{"PATCH", one, take(e.changeContainer), openapi.Operation{ID: "changeContainer",
			Summary: "Change a live container.", Fails: also(inContainer, 409)}},
		{"GET", "/v1/containers", get(e.listContainers), openapi.Operation{ID: "listContainers",
			Summary: "List containers, newest first.", Fails: basic,
			Query: []openapi.Param{
				{Name: "label", Repeat: true, Pattern: "^[^=]+=", Description: "key=value that a container must " +
					"have. May be repeated; all must match."},
				{Name: "state", Description: "Only containers in this state; default all but expired ones.",
					Choices: document.Values[proto.State]()},
				{Name: "limit", Kind: openapi.Whole, Max: 1000, Description: "Maximum length of the page, 1 to " +
					"1000; 0 is the default, 100."},
				pageAfter(proto.ContainerPrefix, "container"),
			}}},
		{"GET", one, getIn(e, e.getContainer), openapi.Operation{ID: "getContainer",
			Summary: "Describe a container.", Fails: inContainer,
			Description: "For an expired container the answer is a 410 that names it."}},
		{"DELETE", one, get(e.deleteContainer), openapi.Operation{ID: "deleteContainer",
			Summary: "End a container's commands and remove it with its workspace.",
			Fails:   namesItem,
			Query: []openapi.Param{
				{Name: "keep_workspace", Kind: openapi.Flag, Description: "Keep the workspace for another " +
					"container."},
			}}},
		{"POST", one + "/extend", mayTake(e.extendContainer), openapi.Operation{ID: "extendContainer",
			Summary: "Extend the lease of a container, at most to max_expires_at.",
			Fails:   inContainer}},
		{"POST", one + "/start", getIn(e, changeState((*session.Session).Start)), openapi.Operation{
			ID: "startContainer", Summary: "Start a stopped container. Any other use starts it, too.", Fails: inGuest,
		}},
		{"POST", one + "/stop", getIn(e, changeState((*session.Session).Stop)), openapi.Operation{ID: "stopContainer",
			Summary: "End a container's processes and keep its files.", Fails: inGuest}},
		{"POST", one + "/reset", getIn(e, changeState((*session.Session).Reset)), openapi.Operation{
			ID: "resetContainer", Summary: "Give a container the files of its image again.", Fails: inGuest,
			Description: "Its processes end, and all that it has written outside its workspace is removed. The " +
				"workspace stays."}},
		{"POST", one + "/pause", getIn(e, changeState((*session.Session).Pause)), openapi.Operation{
			ID: "pauseContainer", Summary: "Pause the processes of a container until its next use.", Fails: inGuest,
			Description: "If the container is stopped, or a command is starting in it or files are being copied, " +
				"the answer is a 409."}},
		{"POST", one + "/resume", getIn(e, changeState((*session.Session).Resume)), openapi.Operation{
			ID: "resumeContainer", Summary: "Resume a paused container. Any other use resumes it, too.", Fails: inGuest,
			Description: "For a stopped container the answer is a 409."}},
		{"GET", "/v1/workspaces", get(e.listWorkspaces), openapi.Operation{ID: "listWorkspaces",
			Summary: "List workspaces, newest first.", Fails: basic}},
		{"DELETE", "/v1/workspaces/{id}", get(e.deleteWorkspace), openapi.Operation{ID: "deleteWorkspace",
			Summary: "Remove a workspace that no container uses.", Fails: also(namesItem, 409)}},
	}
}

const linesMore = "Each line of the answer is a JSON object: the steps, and at the end the image or the " +
	"error. A failure before the first step is an ordinary error."

const runMore = "The answer is the result when the command has ended, whatever its return code. With " +
	"\"background\": true it is a 202 as soon as the command has started. With Accept: text/event-stream it is " +
	"events while the command runs. The data of each is an Event, and its ID a position for Last-Event-ID. A " +
	"command ends when its client goes away, unless it has \"detach\", \"background\" or an idempotency key. Such " +
	"a command also survives a restart of the daemon."

// runAnswers are the answers of a route that runs a command.
func runAnswers() map[int][]openapi.Content {
	return withEvents(endOrState(proto.ExecResult{}, proto.Exec{}), proto.Event{})
}

func (e *edge) execRows() []row {
	const in, one = "/v1/containers/{id}", "/v1/containers/{id}/execs/{exec}"
	return []row{
		{"POST", "/v1/exec", take(e.runOnce).repeatable(), openapi.Operation{ID: "runOnce",
			Summary: "Create a container and run a command in it.", Fails: inGuest,
			Description: runMore + " An idempotency key covers the container and the command, so create has none " +
				"of its own.",
			Answers: runAnswers()}},
		{"POST", in + "/exec", take(e.runCommand).repeatable(), openapi.Operation{ID: "run",
			Summary: "Run a command.", Description: runMore, Answers: runAnswers(), Fails: inGuest}},
		{"GET", in + "/execs", getIn(e, e.listExecs), openapi.Operation{ID: "listExecs",
			Fails:   inContainer,
			Summary: "List a container's commands, running and recorded, in the order of their start."}},
		{"GET", one, get(e.getExec), openapi.Operation{ID: "getExec",
			Summary: "Describe a command.", Fails: inContainer}},
		{"GET", one + "/result", get(e.execResult), openapi.Operation{ID: "getExecResult",
			Summary: "Get the result of a command, and wait for it if requested.",
			Query: []openapi.Param{about(waitSeconds, "How long to wait for the end. If the command still runs then, "+
				"the answer is a 202.")},
			Answers: endOrState(proto.ExecResult{}, proto.Exec{}), Fails: inContainer}},
		{"GET", one + "/logs", get(e.execLogs), openapi.Operation{ID: "getExecLogs",
			Summary: "Read the raw output of a command.", Fails: also(inContainer, 416),
			Description: "The first and the last part of each stream are kept. A line in square brackets marks a " +
				"gap between them. With offset, the answer has bytes of the stream alone and ends at a gap. The " +
				"next answer, from the offset after the last byte, has the header Berth-Log-Start with the offset " +
				"where the stream continues. A followed log ends with the command. If the daemon shuts down before " +
				"that, the connection breaks or the answer is a 503.",
			Query: []openapi.Param{
				{Name: "stream", Choices: []string{"stdout", "stderr", "both"}, Description: "Which output; " +
					"default both, in the order of writing."},
				{Name: "offset", Kind: openapi.Whole, Max: unreachedOffset - 1, Description: "Start at this byte " +
					"of the stream. The parameter stream must be stdout or stderr. An offset after the end of the " +
					"output is refused."},
				{Name: "tail", Kind: openapi.Whole, Max: maxTail, Description: "Only this many lines from the end of " +
					"the output so far, at most 1 MiB; 0 is all. Excludes offset."},
				{Name: "follow", Kind: openapi.Flag, Description: "Continue until the command has ended."},
			},
			Answers: answers(http.StatusOK, []openapi.Content{{Media: octets, Headers: map[string]string{
				logStart: "Offset of the first byte, if the requested one is no longer kept."}}})}},
		{"GET", one + "/events", get(e.execEvents), openapi.Operation{ID: "followExec",
			Summary: "Follow a command from its beginning or a position to its end.",
			Query: []openapi.Param{
				{Name: "stdout_offset", Kind: openapi.Whole, Description: "Bytes of stdout that the client has."},
				{Name: "stderr_offset", Kind: openapi.Whole, Description: "Bytes of stderr that the client has."},
			},
			Header:  []openapi.Param{lastEvent},
			Answers: withEvents(answers(http.StatusNoContent, nil), proto.Event{}), Fails: inContainer}},
		{"POST", one + "/signal", take(e.signalExec), openapi.Operation{ID: "signalExec",
			Summary: "Send a signal to a command.", Fails: inGuest}},
		{"POST", one + "/stdin", get(e.writeStdin), openapi.Operation{ID: "writeStdin",
			Summary: "Write to the standard input of a command, as fast as it reads.",
			Query: []openapi.Param{
				{Name: "close", Kind: openapi.Flag, Description: "Close standard input afterwards."},
			},
			Body: raw(octets), Optional: true, Fails: inGuest}},
		{"POST", one + "/resize", take(e.resizeExec), openapi.Operation{ID: "resizeExec",
			Summary: "Set the size of a command's terminal.", Fails: inGuest}},
		{"GET", in + "/shells", getIn(e, e.listShells), openapi.Operation{ID: "listShells",
			Summary: "List a container's persistent shells.", Fails: inGuest}},
		{"DELETE", in + "/shells/{name}", getIn(e, e.closeShell), openapi.Operation{ID: "closeShell",
			Summary: "End a persistent shell and its processes.", Fails: inGuest}},
		{"GET", in + "/live", get(e.live), openapi.Operation{ID: "live",
			Summary: "Open a websocket for many commands at once.", Description: liveMore,
			Query: []openapi.Param{
				{Name: "watch", Kind: openapi.Flag, Description: "Also follow the commands of others."},
			},
			Answers: answers(http.StatusSwitchingProtocols, nil), Fails: also(inContainer, 403, 426)}},
		{"POST", "/v1/tool_use", get(e.useToolOnce).repeatable(), openapi.Operation{ID: "useToolOnce",
			Summary:     "Create a container and execute a model's tool-use block in it.",
			Description: "With `container`, the block runs in that one. The result block names the container.",
			Body:        js(toolUseOnce{}), Loose: true, Fails: inGuest}},
		{"POST", in + "/tool_use", get(e.useTool).repeatable(), openapi.Operation{ID: "useTool",
			Summary: "Execute a model's tool-use block.",
			Description: "Send the block as the model wrote it. The result block reports failures of the tool. " +
				"Idempotency-Key is for the bash tools.",
			Body: js(tooluse.Use{}), Loose: true, Fails: inGuest}},
	}
}

func (e *edge) codeRows() []row {
	const all, one = "/v1/containers/{id}/contexts", "/v1/containers/{id}/contexts/{name}"
	return []row{
		{"POST", "/v1/run_code", take(e.runCode), openapi.Operation{ID: "runCode",
			Summary: "Run code and get the value of its last expression.", Description: codeMore,
			Answers: answers(http.StatusOK, js(code.Outcome{})), Fails: inGuest}},
		{"POST", "/v1/code_executor", take(e.executeCode), openapi.Operation{ID: "executeCode",
			Summary: "Run a script as the code_executor tool does, and get one Markdown text.",
			Description: "The script runs as a file, in a container of its own that is deleted afterwards: 15 " +
				"seconds, and 64 KiB of each stream.",
			Answers: answers(http.StatusOK, js(execution{})), Fails: inGuest}},
		{"POST", all, take(e.createContext).created(), openapi.Operation{ID: "createContext",
			Summary: "Start a named interpreter that keeps its variables.", Fails: inGuest,
			Description: fmt.Sprintf("A cell in an unknown context creates the context, too. A container has at most "+
				"%d contexts. They end with the daemon.", code.MaxContexts)}},
		{"GET", all, get(e.listContexts), openapi.Operation{ID: "listContexts",
			Summary: "List a container's contexts, by name.", Fails: inContainer}},
		{"GET", one, get(e.getContext), openapi.Operation{ID: "getContext",
			Summary: "Describe a context.", Fails: inContainer}},
		{"DELETE", one, get(e.deleteContext), openapi.Operation{ID: "deleteContext",
			Summary: "End a context with its interpreter and its running cell.", Fails: inGuest}},
		{"POST", one + "/run", take(e.runCell), openapi.Operation{ID: "runCell",
			Summary: "Run a cell in a context.", Description: cellMore,
			Answers: withEvents(answers(http.StatusOK, js(code.Outcome{})), code.Progress{}), Fails: inGuest}},
		{"POST", one + "/interrupt", get(e.interruptContext), openapi.Operation{ID: "interruptContext",
			Summary: "Interrupt the running cell of a context, like Ctrl-C.", Fails: inGuest,
			Description: "The variables stay. If no cell runs, nothing happens."}},
		{"POST", one + "/restart", get(e.restartContext), openapi.Operation{ID: "restartContext",
			Fails:   inGuest,
			Summary: "End the interpreter of a context with its running cell, and start a new one."}},
	}
}

const codeMore = "Without container, the code runs in a container of its own. That container is deleted " +
	"with all its files after the answer, or when the client has gone. With container, the code runs there in a " +
	"new interpreter; with context, too, as a cell of that context. results has the value of the last expression " +
	"and what else the code showed, as text; rich has the same by media type. error is set only if the code " +
	"failed, which is no failure of the request. If the image lacks the language, the answer is a 501 that names " +
	"an image with it."

const cellMore = "An unknown context is created. Cells of a context run one after the other. With Accept: " +
	"text/event-stream the answer is events while the cell runs: start, stdout, stderr and gap, then result or " +
	"error. The data of each is a Progress. When the client goes away or the time is over, the cell is " +
	"interrupted. If it does not stop within 2 seconds, its interpreter is ended. Then the result has an error and " +
	"the output so far, and the next cell starts a new interpreter and says so in notes."

const liveMore = "Messages are JSON text in both directions. The client sends Message objects, the server " +
	"Event objects; the first one has the type ready. If an exec or attach message has \"binary\": true, the " +
	"output of its command comes in binary messages: the stream (1 byte: 1 is stdout, 2 stderr), the length of the " +
	"exec's ID (1 byte), that ID, the offset in the stream (8 bytes, big-endian), and the bytes. An invalid " +
	"message is answered by an event of type error with its ref, and the connection stays open. When the " +
	"connection ends, the commands that it started end, unless they have \"detach\", \"background\" or an " +
	"idempotency key. A slow reader misses output, which a gap event reports, and delays nothing else. A web page " +
	"sends its API key as the subprotocol berth.key.<base64url of the key>, in addition to berth.v1."

func (e *edge) fileRows() []row {
	const at = "/v1/containers/{id}/fs"
	headers := map[string]string{
		"Berth-File-Mode": "Octal permission bits.", "Berth-File-Modified": "Time of the last change, RFC 3339.",
		"Last-Modified": "The same in whole seconds.", "Accept-Ranges": "bytes",
	}
	part := map[string]string{"Content-Range": "Which bytes these are, of how many."}
	file := []openapi.Param{pathParam, asParam}
	rows := []row{
		{"GET", at + "/content", getFiles(e, e.readContent), openapi.Operation{ID: "readFile",
			Summary: "Read a file.", Query: file,
			Header: []openapi.Param{
				{Name: "Range", Description: "One range of bytes, such as bytes=0-99, bytes=100- or bytes=-100. " +
					"With If-Range the answer is the whole file, since no header identifies its version reliably."},
			},
			Answers: map[int][]openapi.Content{http.StatusOK: {{Media: octets, Headers: headers}},
				http.StatusPartialContent: {{Media: octets, Headers: part}}}, Fails: also(inGuest, 416)}},
		{"PUT", at + "/content", get(e.writeContent), openapi.Operation{ID: "writeFile",
			Summary:     "Write a file atomically, and create its directories.",
			Description: "A body with Content-Range is refused: it is only a part of a file.",
			Query: []openapi.Param{pathParam, asParam,
				{Name: "mode", Kind: openapi.Mode, Description: "Octal permission bits; default 0644 for a new " +
					"file, and unchanged for an existing one."},
				{Name: "hash", Kind: openapi.Flag, Description: "Also return the SHA-256 of the file, which takes " +
					"longer than writing it."},
			},
			Body: raw(octets), Optional: true, Fails: inGuest}},
		{"PATCH", at + "/content", get(e.writeContentInPlace), openapi.Operation{ID: "writeFileInPlace",
			Summary: "Write into a file at an offset or at its end, without replacing it.",
			Description: "Bytes are written as they arrive, and if a body without a length goes over old ones, once " +
				"all are there: an upload that breaks can leave a part. A missing file and its directories are " +
				"created. With truncate, the file ends behind the body: an empty body cuts it at offset.",
			Query: []openapi.Param{pathParam, asParam,
				{Name: "offset", Kind: openapi.Whole, Description: "Where the first byte goes; default 0."},
				{Name: "append", Kind: openapi.Flag, Description: "Write at the end; excludes offset and truncate."},
				{Name: "truncate", Kind: openapi.Flag, Description: "End the file behind what is written."},
				{Name: "mode", Kind: openapi.Mode, Description: "Octal permission bits of a new file; default 0644."},
			},
			Body: raw(octets), Optional: true, Fails: inGuest}},
		{"DELETE", at + "/content", getFiles(e, e.removeContent), openapi.Operation{ID: "removeFile",
			Summary: "Remove a file or a directory. Links are removed, not followed.", Fails: inGuest,
			Query: []openapi.Param{pathParam, asParam,
				{Name: "recursive", Kind: openapi.Flag, Description: "Remove a directory with its content."},
			}}},
		{"GET", at + "/stat", getFiles(e, e.statFile), openapi.Operation{ID: "statFile",
			Summary: "Describe a file. A link at the end of the path is not followed.",
			Query:   file, Fails: inGuest}},
		{"GET", at + "/watch", getFiles(e, e.watchDirectory), openapi.Operation{ID: "watchDirectory",
			Summary: "Follow the changes in a directory.",
			Description: "The first event is start; what happens after it is told. The stream ends when the " +
				"directory is removed or renamed. A container has at most 32 watches, of at most 8,192 directories " +
				"each. A watch uses the container: it does not become idle. After a lost connection, watch and list " +
				"again.",
			Query: append(slices.Clone(file),
				openapi.Param{Name: "recursive", Kind: openapi.Flag, Description: "Also watch the directories below, " +
					"and those that are made later."},
				openapi.Param{Name: "entries", Kind: openapi.Flag, Description: "Describe the file in events that " +
					"create or change it."}),
			Answers: withEvents(map[int][]openapi.Content{}, proto.FileEvent{}), Fails: inGuest}},
		{"POST", at + "/move", take(e.moveFile), openapi.Operation{ID: "moveFile",
			Summary: "Rename a file or directory.", Fails: inGuest}},
		{"POST", at + "/mkdir", take(e.makeDirectory), openapi.Operation{ID: "makeDirectory",
			Summary: "Create a directory and its parents.", Fails: inGuest}},
		{"GET", at + "/tar", getFiles(e, e.readTar), openapi.Operation{ID: "readTar",
			Summary: "Read a directory as a tar archive.", Query: file, Description: unreadText,
			Answers: answers(http.StatusOK, raw(tarType)), Fails: inGuest}},
		{"PUT", at + "/tar", get(e.writeTar), openapi.Operation{ID: "writeTar",
			Summary: "Unpack a tar archive into a directory, which is created.", Query: file,
			Description: "Members that would leave the directory, and devices, are refused by name. Members before " +
				"them have been unpacked then. A body with Content-Range is refused: it is only a part of an " +
				"archive.",
			Body: raw(tarType, octets), Fails: inGuest}},
	}
	rows = append(rows, e.findRows()...)
	for i := range rows {
		rows[i].Query = slices.Concat(rows[i].Query, []openapi.Param{ofGeneration})
	}
	return rows
}

// unreadText describes archives.
const unreadText = "Files that cannot be read are left out. The trailer " + proto.UnreadTrailer + " of a complete " +
	"archive has their number, 0 for none, and " + proto.UnreadNamesTrailer + " the first names, percent-encoded and " +
	"separated by commas. An archive that breaks has no trailer, and its connection is cut."

func (e *edge) jobRows() []row {
	const all, one = "/v1/containers/{id}/jobs", "/v1/containers/{id}/jobs/{job}"
	return []row{
		{"POST", "/v1/containers/{id}/inputs", take(e.addInputs), openapi.Operation{ID: "addInputs",
			Summary: "Put stored files into $INPUT_DIR.", Fails: inGuest}},
		{"GET", all, getIn(e, e.listJobs), openapi.Operation{ID: "listJobs",
			Summary: "List the jobs of a container's workspace, newest first.", Fails: inContainer}},
		{"GET", one + "/manifest", getIn(e, e.jobManifest), openapi.Operation{ID: "getManifest",
			Summary: "List the content of a job's directory, and which command made it.",
			Fails:   inGuest}},
		{"POST", one + "/publish", take(e.publishFile).created(), openapi.Operation{ID: "publishFile",
			Summary: "Publish a file of a job as a stored file.", Fails: inGuest}},
		{"GET", one + "/tar", getIn(e, e.jobTar), openapi.Operation{ID: "readJob",
			Summary: "Read a job's directory as a tar archive.", Description: unreadText,
			Answers: answers(http.StatusOK, raw(tarType)), Fails: inGuest}},
	}
}

func (e *edge) daemonRows() []row {
	imageFails, vaultFails := also(namesItem, 501, 503, 504, 507), also(basic, 409, 501, 503)
	return []row{
		{"GET", "/v1/images", get(e.listImages), openapi.Operation{ID: "listImages",
			Summary: "List images.", Fails: basic}},
		{"POST", "/v1/images/import", get(e.importImage), openapi.Operation{ID: "importImage",
			Summary: "Import an OCI or Docker archive.", Admin: true, Description: linesMore,
			Query: []openapi.Param{
				{Name: "name", Description: "Name of the image; default the name in the archive."},
			},
			Body: raw(tarType, octets), Answers: imageLines, Fails: imageFails}},
		{"POST", "/v1/images/pull", take(e.pullImage), openapi.Operation{ID: "pullImage",
			Summary: "Pull an image from a registry.", Admin: true, Description: linesMore,
			Answers: imageLines, Fails: imageFails}},
		{"POST", "/v1/images/build", get(e.buildImage), openapi.Operation{ID: "buildImage",
			Summary: "Build an image from a Dockerfile.", Admin: true, Description: buildMore, Query: buildQuery,
			Body:    append(raw(tarType, octets), openapi.Content{Media: buildform.Media, Of: buildform.Schema}),
			Answers: answers(http.StatusOK, []openapi.Content{{Media: eventType, Of: proto.BuildEvent{}}}),
			Fails:   also(imageFails, 403)}},
		{"GET", "/v1/images/builds", get(e.listBuilds), openapi.Operation{ID: "listBuilds",
			Summary: "List the builds of the caller that wait or run, and the size of its cache.", Admin: true,
			Fails: basic}},
		{"DELETE", "/v1/images/builds/{id}", get(e.cancelBuild), openapi.Operation{ID: "cancelBuild",
			Summary: "Cancel a build. The stream of its events ends with an error.", Admin: true, Fails: namesItem}},
		{"DELETE", "/v1/images", get(e.removeImage), openapi.Operation{ID: "removeImage",
			Summary: "Remove the name of an image. Running containers keep their image.",
			Admin:   true, Fails: also(namesItem, 409, 501),
			Query: []openapi.Param{{Name: "ref", Required: true, Description: "Name of the image."}}}},
		{"POST", "/v1/sweep", get(e.sweep), openapi.Operation{ID: "sweep",
			Summary: "Run all sweeps now.", Admin: true, Fails: basic,
			Description: "The answer has counts by sweep and action.",
			Query: []openapi.Param{
				{Name: "strangers", Kind: openapi.Flag, Description: "First remove orphaned workspaces: those that " +
					"were set aside because the ledger does not know them."},
			}}},
		{"GET", "/v1/info", get(e.info), openapi.Operation{ID: "info",
			Summary: "Describe the daemon.", Fails: basic}},
		{"GET", "/openapi.json", get(e.openAPI), openapi.Operation{ID: "openAPI",
			Summary: "This document.", Public: true, Fails: []int{400, 413, 500},
			Answers: answers(http.StatusOK, js(openapi.Schema{}))}},
		{"GET", "/v1/backup", get(e.backUp), openapi.Operation{ID: "backUp", Admin: true,
			Summary: "Get a backup of all that the daemon keeps.", Fails: also(vaultFails, 409, 507),
			Description: "As of one moment, while it runs; its reader checks that it is whole. See docs/operations.md.",
			Answers:     answers(http.StatusOK, raw(tarType))}},
		{"POST", "/v1/vault/rotate", get(changeVault(e.Rotate)), openapi.Operation{ID: "rotateVault",
			Summary: "Create a new key for secrets and seal all secrets with it.", Admin: true,
			Description: "Older keys stay in the file, for copies of the ledger.", Fails: vaultFails}},
		{"POST", "/v1/vault/forget", get(changeVault(e.Forget)), openapi.Operation{ID: "forgetVaultKeys",
			Summary: "Remove all keys for secrets except the newest from the file.", Admin: true,
			Description: "Secrets in older copies of the ledger cannot be opened afterwards.", Fails: vaultFails}},
	}
}

func (e *edge) keyRows() []row {
	const all, one = "/v1/keys", "/v1/keys/{id}"
	return []row{
		{"POST", all, mayTake(e.createKey).created(), openapi.Operation{ID: "createKey",
			Summary: "Create an API key. Only this answer has its secret.", Admin: true, Fails: basic}},
		{"GET", all, get(e.listKeys), openapi.Operation{ID: "listKeys",
			Summary: "List API keys, newest first, including revoked ones.", Admin: true, Fails: basic}},
		{"GET", "/v1/keys/self", get(e.ownKey), openapi.Operation{ID: "getOwnKey",
			Summary: "Describe the key of the request, and its use of its quota.", Fails: namesItem}},
		{"GET", one, get(e.getKey), openapi.Operation{ID: "getKey",
			Summary: "Describe an API key, and its use of its quota.", Admin: true, Fails: namesItem}},
		{"PATCH", one, take(e.changeKey), openapi.Operation{ID: "changeKey",
			Summary: "Change the name or the quota of an API key at once.", Admin: true,
			Description: "Fields that are left out stay unchanged. A bound of 0 is removed; removing " +
				"requests_per_second also removes burst. A bound below the current use removes nothing and refuses " +
				"more.",
			Fails: also(namesItem, 409)}},
		{"DELETE", one, get(e.revokeKey), openapi.Operation{ID: "revokeKey",
			Summary: "Revoke an API key permanently and at once.", Admin: true,
			Description: "Running requests and websockets of the key end. The owner keeps what was made with the " +
				"key.",
			Fails: also(namesItem, 409)}},
	}
}

func (e *edge) callRows() []row {
	const all, one = "/v1/containers/{id}/tool_calls", "/v1/containers/{id}/tool_calls/{call}"
	decided := also(inContainer, 409)
	return []row{
		{"GET", "/v1/containers/{id}/tools", get(e.serveTools), openapi.Operation{ID: "serveTools",
			Summary:     "Open a websocket to answer the tool calls of code in a container.",
			Description: serveMore,
			Answers:     answers(http.StatusSwitchingProtocols, nil), Fails: also(decided, 403, 426)}},
		{"GET", all, get(e.listCalls), openapi.Operation{ID: "listToolCalls",
			Summary: "List the calls that code in a container made, newest first.",
			Fails:   inContainer,
			Query: []openapi.Param{
				{Name: "state", Description: "Only calls in this state; parked calls wait for approval.",
					Choices: document.Values[proto.ToolCallState]()},
				{Name: "exec", Pattern: "^(exec_[0-9A-Za-z]{22})?$", Description: "Only calls of this command."},
				shortPage, pageAfter("call_", "call"),
			}}},
		{"GET", one, get(e.getCall), openapi.Operation{ID: "getToolCall",
			Summary: "Describe a call.", Fails: inContainer}},
		{"POST", one + "/approve", get(e.approveCall), openapi.Operation{ID: "approveToolCall",
			Summary: "Approve a parked call.", Fails: decided,
			Description: "An approval is for one call with the input that is shown. Only the first decision " +
				"counts: later ones are a 409. A decision after the deadline is a 410."}},
		{"POST", one + "/refuse", mayTake(e.refuseCall), openapi.Operation{ID: "refuseToolCall",
			Summary: "Refuse a parked call. Its code gets a PermissionError.", Fails: decided}},
	}
}

const serveMore = "For a container whose code_tools have the provider \"client\". Messages are JSON text in " +
	"both directions: the client sends ClientMessage objects, the server DaemonMessage objects. With serve the " +
	"client lists the tools that it answers; it may send serve again. The answer, serving, has the names that code " +
	"may call. The client answers each call with result or error, in any order. cancel withdraws a call. When the " +
	"connection breaks, unanswered calls wait a moment for a client that serves the same tools. That client gets " +
	"them with the same call_id and continues those that it already has. A client that sends a close frame has " +
	"gone for good: its calls fail at once. An invalid message is answered by one of type error, and the " +
	"connection stays open."

func (e *edge) toolRows() []row {
	const one, runs, run = "/v1/tools/{name}", "/v1/tool_runs", "/v1/tool_runs/{id}"
	changes := also(namesItem, 409)
	return []row{
		{"POST", "/v1/tools", take(e.createTool).created(), openapi.Operation{ID: "createTool",
			Summary: "Store a tool.", Description: toolMore, Fails: also(basic, 409, 503, 507)}},
		{"GET", "/v1/tools", get(e.listTools), openapi.Operation{ID: "listTools",
			Summary: "List tools, by name.", Fails: basic}},
		{"GET", one, get(e.getTool), openapi.Operation{ID: "getTool",
			Summary: "Describe a tool, by its name or ID.", Fails: namesItem,
			Query: []openapi.Param{{Name: "version", Kind: openapi.Whole,
				Description: "One of its versions; without it, the current one."}}}},
		{"PATCH", one, take(e.changeTool), openapi.Operation{ID: "changeTool",
			Summary: "Create a new version of a tool.", Fails: also(changes, 503),
			Description: "Fields that are left out stay unchanged. A configuration is replaced as a whole; without " +
				"env_variables it keeps the present ones, and with {} it has none."}},
		{"DELETE", one, get(e.deleteTool), openapi.Operation{ID: "deleteTool",
			Fails:   namesItem,
			Summary: "Remove a tool with its versions. Its runs stay; runs that wait for approval are refused."}},
		{"GET", one + "/versions", get(e.toolVersions), openapi.Operation{ID: "listToolVersions",
			Summary: "List the versions of a tool, newest first.", Fails: namesItem}},
		{"POST", one + "/run", mayTake(e.runTool).repeatable(), openapi.Operation{ID: "runTool",
			Summary: "Run a tool on an input.", Description: toolRunMore,
			Answers: endOrState(proto.ToolRun{}, proto.ToolRun{}), Fails: also(namesItem, 403, 409, 410, 501, 503)}},
		{"GET", runs, get(e.listToolRuns), openapi.Operation{ID: "listToolRuns",
			Summary: "List runs of tools, newest first.", Fails: basic,
			Query: []openapi.Param{
				{Name: "tool", Description: "Only runs of this tool, by name or ID."},
				{Name: "state", Description: "Only runs in this state.",
					Choices: document.Values[proto.ToolRunState]()},
				shortPage, pageAfter("run_", "run"),
			}}},
		{"GET", run, get(e.getToolRun), openapi.Operation{ID: "getToolRun",
			Summary: "Describe a run, and wait for its end if requested.", Fails: namesItem,
			Query: []openapi.Param{about(waitSeconds, "How long to wait for the end.")}}},
		{"POST", run + "/approve", get(e.approveToolRun).accepted(), openapi.Operation{ID: "approveToolRun",
			Summary: "Approve a parked run. It runs in the background.",
			Description: "An approval is for one run. Only the first decision counts: later ones are a 409. A " +
				"decision after the deadline is a 410.",
			Fails: also(namesItem, 409, 410, 501, 503)}},
		{"POST", run + "/refuse", mayTake(e.refuseToolRun), openapi.Operation{ID: "refuseToolRun",
			Summary: "Refuse a parked run.", Fails: also(namesItem, 409, 410)}},
	}
}

const toolMore = "The code defines run(input). Its syntax and the presence of run are checked before it is " +
	"stored. input_schema and output_schema are lists of fields; types are upper case. The values of " +
	"env_variables are sealed on disk and never returned. With \"approval_action\": \"review\" each run waits " +
	"until a person approves it; with \"deny\" each run is a 403. Fields may be null where they may be left out."

const toolRunMore = "The answer is the run after its end, whether it succeeded or failed. An input that " +
	"does not fit input_schema is a 400 that names the field, and no run. Fields that the schema does not have are " +
	"dropped, which a note reports. A run that waits for approval or has \"background\": true is a 202 at once. A " +
	"run ends when its client goes away, unless it has \"background\" or an idempotency key."

// auditRows are for admins, since the log concerns every owner. A daemon without a log neither serves nor documents
// them.
func (e *edge) auditRows() []row {
	if e.Audit == nil {
		return nil
	}
	admins := also(basic, 403)
	return []row{
		{"GET", "/v1/audit", get(e.readAudit), openapi.Operation{ID: "readAudit",
			Summary: "Read the audit log, oldest entry first.", Admin: true, Fails: admins,
			Description: "Each line of the answer is an entry, byte for byte as in the log, so that hashes can be " +
				"checked. With Accept: text/event-stream the answer continues with new entries: the data of each " +
				"event is an entry, and its ID the number of the entry, for Last-Event-ID.",
			Query: []openapi.Param{
				{Name: "container", Description: "Only actions on this container."},
				{Name: "actor", Description: "Only actions of this API key, by its ID, or of this part of the " +
					"daemon."},
				{Name: "owner", Description: "Only entries of this owner."},
				{Name: "act", Description: "Only this action, such as exec.end; with a dot at the end, all actions " +
					"with this prefix: exec."},
				{Name: "since", Kind: openapi.Date, Description: "Only entries from this time on, RFC 3339."},
				{Name: "until", Kind: openapi.Date, Description: "Only entries before this time, RFC 3339."},
				{Name: "last", Kind: openapi.Whole, Max: 100_000, Description: "Only this many entries from the " +
					"end; 0 is all. Ignored with Last-Event-ID."},
			},
			Header: []openapi.Param{about(openapi.Param{Name: lastEvent.Name, Pattern: "^[0-9]{0,18}$"},
				lastEvent.Description)},
			Answers: withEvents(answers(http.StatusOK, []openapi.Content{{Media: jsonlines.Media,
				Of: proto.AuditEntry{}}}), proto.AuditEntry{})}},
		{"GET", "/v1/audit/head", get(e.auditHead), openapi.Operation{ID: "auditHead",
			Summary: "Read the end of the audit log's chain, to be recorded elsewhere.", Admin: true,
			Fails: admins}},
	}
}

// auditActions are the action names in the audit log, by operation. Other operations that may change something appear
// under their own name. Reading appears where it returns data of a container or an owner.
var auditActions = map[string]string{
	"createContainer": "container.create", "changeContainer": "container.change",
	"extendContainer": "container.extend", "startContainer": "container.start",
	"stopContainer": "container.stop", "pauseContainer": "container.pause", "resumeContainer": "container.resume",
	"deleteContainer": "container.delete", "deleteWorkspace": "workspace.delete",
	"resetContainer": "container.reset", "restoreContainer": "container.restore", "forkContainer": "container.fork",
	"createSnapshot": "snapshot.create",
	"exportSnapshot": "snapshot.export", "commitSnapshot": "snapshot.commit", "deleteSnapshot": "snapshot.delete",
	"run": "exec.begin", "runOnce": "exec.begin", "signalExec": "exec.signal", "writeStdin": "exec.stdin",
	"resizeExec": "exec.resize",
	"runCode":    "exec.begin", "executeCode": "exec.begin", "runCell": "code.cell", "createContext": "context.create",
	"deleteContext": "context.delete", "interruptContext": "context.interrupt",
	"restartContext": "context.restart",
	"createTool":     "tool.create", "changeTool": "tool.change", "deleteTool": "tool.delete", "runTool": "tool.run",
	"approveToolRun": "tool_run.approve", "refuseToolRun": "tool_run.refuse", "getToolRun": "tool_run.read",
	"serveTools": "tools.serve", "approveToolCall": "tool_call.approve", "refuseToolCall": "tool_call.refuse",
	"getExecResult": "exec.result", "followExec": "exec.follow", "getExecLogs": "exec.logs",
	"closeShell": "shell.close", "live": "live.open", "useTool": "tool.use", "useToolOnce": "tool.use",
	"readFile": "fs.read", "writeFile": "fs.write",
	"writeFileInPlace": "fs.write", "removeFile": "fs.remove", "moveFile": "fs.move",
	"makeDirectory": "fs.mkdir",
	"readTar":       "fs.read_tar", "writeTar": "fs.write_tar", "addInputs": "input.add", "publishFile": "job.publish",
	"readJob": "job.read", "createWebhook": "webhook.create", "changeWebhook": "webhook.change",
	"deleteWebhook": "webhook.delete", "signPort": "port.sign",
	"publishPort": "port.publish", "withdrawPort": "port.withdraw",
	"importImage": "image.import", "pullImage": "image.pull", "pushImage": "image.push",
	"removeImage": "image.remove", "setRegistry": "registry.set", "removeRegistry": "registry.remove",
	"sweep":     "sweep.run",
	"createKey": "key.create", "changeKey": "key.change", "revokeKey": "key.revoke", "readAudit": "audit.read",
	"backUp": "backup.take", "rotateVault": "vault.rotate", "forgetVaultKeys": "vault.forget",
}

// coreAudited are the operations that the core audits when they are done.
var coreAudited = map[string]bool{
	"createContainer": true, "startContainer": true, "stopContainer": true, "pauseContainer": true,
	"resumeContainer": true, "deleteContainer": true, "resetContainer": true, "restoreContainer": true,
	"forkContainer": true, "createSnapshot": true, "deleteSnapshot": true, "run": true, "runOnce": true,
	"runCode": true, "executeCode": true, "runCell": true,
}

// auditAction returns the action name of the row; "" is not audited.
func (r row) auditAction() string {
	if act := auditActions[r.ID]; act != "" || r.method == http.MethodGet {
		return act
	}
	return r.ID
}
