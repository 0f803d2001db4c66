package native

import (
	"net/http"

	"berth/api"
	"berth/api/openapi"
	"berth/code"
	"berth/proto"
	"berth/session"
	"berth/tools/bridge"
	"berth/tools/toolstore"
	"berth/tools/tooluse"
)

// A row is one route and its part of the OpenAPI document. Requests are checked against the same query parameters.
type row struct {
	method, path string
	where        api.Place
	handle       handler
	openapi.Operation
}

// maxJSON bounds a JSON body, in bytes: a command of 1 MiB, escaped.
const maxJSON = 2 << 20

// bodyLimits are limits other than maxJSON, by operation. Files and archives have no limit here: the disk and the
// core bound them.
var bodyLimits = map[string]int64{"writeStdin": -1, "writeFile": -1, "writeTar": -1, "importImage": -1,
	"runTool": runBody}

func js(v any) []openapi.Content { return []openapi.Content{{Media: "application/json", Of: v}} }

func raw(media string) []openapi.Content { return []openapi.Content{{Media: media}} }

// Answers with one JSON form.
func ok(v any) map[int][]openapi.Content { return map[int][]openapi.Content{http.StatusOK: js(v)} }

func created(v any) map[int][]openapi.Content {
	return map[int][]openapi.Content{http.StatusCreated: js(v)}
}

// Media types.
const (
	octets    = "application/octet-stream"
	tarType   = "application/x-tar"
	eventType = "text/event-stream"
	lineType  = "application/x-ndjson"
)

// Error statuses by kind of route.
var (
	// 503: the daemon shuts down.
	basic     = []int{400, 401, 413, 429, 500, 503}
	namesItem = append([]int{404}, basic...) // names an item of the caller
	// 410 differs from 404, so that a client knows that the container existed and has expired.
	inContainer = append([]int{410}, namesItem...) // names a container
	// 403: the user may not do this in the container. 409: wrong state. 501: not possible in such a container. 503,
	// 504: the guest does not answer, or not in time. 507: the disk or a quota is full.
	inGuest = append([]int{403, 409, 501, 504, 507}, inContainer...) // asks the container to do something
)

// Parameters of several routes.
var (
	asParam = openapi.Param{Name: "as", Description: "User in the container who accesses the file.",
		Choices: []string{proto.UserDefault, proto.UserRoot}}
	pathParam = openapi.Param{Name: "path", Required: true, Pattern: noNUL, Description: "A path " +
		"inside the container: absolute, or relative to /workspace. Its bytes need not be UTF-8."}
	ofGeneration = openapi.Param{Name: "generation", Kind: openapi.Whole, Description: "Generation of " +
		"the container that the request is for; 0 is any. If another generation runs, or none, the answer is a 409 " +
		"and nothing is done."}
	lastEvent = openapi.Param{Name: "Last-Event-ID", Pattern: "^([0-9]{1,18}-[0-9]{1,18}(-end)?)?$",
		Description: "ID of the last event that the client has; the stream continues after it."}
)

// rows returns all routes of this edge.
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
		{"POST", "/v1/containers", api.None, e.createContainer, withReplays(openapi.Operation{
			ID: "createContainer", Tag: tag,
			Summary: "Create a container.",
			Body:    js(proto.CreateContainer{}), Optional: true, Answers: created(proto.Container{}), Fails: inGuest,
		})},
		{"GET", "/v1/containers", api.None, e.listContainers, openapi.Operation{
			ID: "listContainers", Tag: tag,
			Summary: "List containers, newest first.",
			Query: []openapi.Param{
				{Name: "label", Repeat: true, Pattern: "^[^=]+=", Description: "key=value that a container must " +
					"have. May be repeated; all must match."},
				{Name: "state", Description: "Only containers in this state; default all but expired ones.",
					Choices: names(states)},
				{Name: "limit", Kind: openapi.Whole, Max: 1000, Description: "Maximum length of the page, 1 to " +
					"1000; 0 is the default, 100."},
				{Name: "after", Pattern: "^(container_[0-9A-Za-z]{22})?$", Description: "ID of a container: the " +
					"page starts after it."},
			},
			Answers: ok(containerPage{}), Fails: basic,
		}},
		{"GET", "/v1/containers/{id}", api.InPath, e.inSession(e.getContainer), openapi.Operation{
			ID: "getContainer", Tag: tag,
			Summary:     "Describe a container.",
			Description: "For an expired container the answer is a 410 that names it.",
			Answers:     ok(proto.Container{}), Fails: inContainer,
		}},
		{"DELETE", "/v1/containers/{id}", api.InPath, e.deleteContainer, openapi.Operation{
			ID: "deleteContainer", Tag: tag,
			Summary: "End a container's commands and remove it with its workspace.",
			Query: []openapi.Param{
				{Name: "keep_workspace", Kind: openapi.Flag, Description: "Keep the workspace for another " +
					"container."},
			},
			Answers: ok(deletedContainer{}), Fails: namesItem,
		}},
		{"POST", "/v1/containers/{id}/extend", api.InPath, e.extendContainer, openapi.Operation{
			ID: "extendContainer", Tag: tag,
			Summary: "Extend the lease of a container, at most to max_expires_at.",
			Body:    js(extension{}), Optional: true, Answers: ok(proto.Container{}), Fails: inContainer,
		}},
		{"POST", "/v1/containers/{id}/start", api.InPath, e.changeState((*session.Session).Start), openapi.Operation{
			ID: "startContainer", Tag: tag,
			Summary: "Start a stopped container. Any other use starts it, too.",
			Answers: ok(proto.Container{}), Fails: inGuest,
		}},
		{"POST", "/v1/containers/{id}/stop", api.InPath, e.changeState((*session.Session).Stop), openapi.Operation{
			ID: "stopContainer", Tag: tag,
			Summary: "End a container's processes and keep its files.",
			Answers: ok(proto.Container{}), Fails: inGuest,
		}},
		{"POST", "/v1/containers/{id}/pause", api.InPath, e.changeState((*session.Session).Pause), openapi.Operation{
			ID: "pauseContainer", Tag: tag,
			Summary: "Pause the processes of a container until its next use.",
			Description: "If the container is stopped, or a command is starting in it or files are being copied, " +
				"the answer is a 409.",
			Answers: ok(proto.Container{}), Fails: inGuest,
		}},
		{"POST", "/v1/containers/{id}/resume", api.InPath, e.changeState((*session.Session).Resume), openapi.Operation{
			ID: "resumeContainer", Tag: tag,
			Summary:     "Resume a paused container. Any other use resumes it, too.",
			Description: "For a stopped container the answer is a 409.",
			Answers:     ok(proto.Container{}), Fails: inGuest,
		}},
		{"GET", "/v1/workspaces", api.None, e.listWorkspaces, openapi.Operation{
			ID: "listWorkspaces", Tag: tag,
			Summary: "List workspaces, newest first.",
			Answers: ok(page[proto.Workspace]{}), Fails: basic,
		}},
		{"DELETE", "/v1/workspaces/{id}", api.None, e.deleteWorkspace, openapi.Operation{
			ID: "deleteWorkspace", Tag: tag,
			Summary: "Remove a workspace that no container uses.",
			Answers: ok(deletion{}), Fails: append([]int{409}, namesItem...),
		}},
	}
}

// runAnswers are the answers of a route that runs a command.
func runAnswers() map[int][]openapi.Content {
	return map[int][]openapi.Content{
		http.StatusOK:       append(js(proto.ExecResult{}), openapi.Content{Media: eventType, Of: proto.Event{}}),
		http.StatusAccepted: js(proto.Exec{}),
	}
}

const runMore = "The answer is the result when the command has ended, whatever its return code. With " +
	"\"background\": true it is a 202 as soon as the command has started. With Accept: text/event-stream it is " +
	"events while the command runs. The data of each is an Event, and its ID a position for Last-Event-ID. A " +
	"command ends when its client goes away, unless it has \"detach\", \"background\" or an idempotency key. Such " +
	"a command also survives a restart of the daemon."

func (e *edge) execRows() []row {
	const tag, at = "commands", "/v1/containers/{id}/execs/{exec}"
	return []row{
		{"POST", "/v1/exec", api.None, e.runOnce, withReplays(openapi.Operation{
			ID: "runOnce", Tag: tag,
			Summary: "Create a container and run a command in it.",
			Description: runMore + " An idempotency key covers the container and the command, so create has none " +
				"of its own.",
			Body: js(oneShot{}), Answers: runAnswers(), Fails: inGuest,
		})},
		{"POST", "/v1/containers/{id}/exec", api.InPath, e.runCommand, withReplays(openapi.Operation{
			ID: "run", Tag: tag,
			Summary:     "Run a command.",
			Description: runMore,
			Body:        js(proto.Cmd{}), Answers: runAnswers(), Fails: inGuest,
		})},
		{"GET", "/v1/containers/{id}/execs", api.InPath, e.inSession(e.listExecs), openapi.Operation{
			ID: "listExecs", Tag: tag,
			Summary: "List a container's commands, running and recorded, in the order of their start.",
			Answers: ok(page[proto.Exec]{}), Fails: inContainer,
		}},
		{"GET", at, api.InPath, e.getExec, openapi.Operation{
			ID: "getExec", Tag: tag,
			Summary: "Describe a command.",
			Answers: ok(proto.Exec{}), Fails: inContainer,
		}},
		{"GET", at + "/result", api.InPath, e.execResult, openapi.Operation{
			ID: "getExecResult", Tag: tag,
			Summary: "Get the result of a command, and wait for it if requested.",
			Query: []openapi.Param{
				{Name: "wait_seconds", Kind: openapi.Whole, Max: 86400, Description: "How long to wait for the " +
					"end. If the command still runs then, the answer is a 202."},
			},
			Answers: map[int][]openapi.Content{http.StatusOK: js(proto.ExecResult{}),
				http.StatusAccepted: js(proto.Exec{})},
			Fails: inContainer,
		}},
		{"GET", at + "/logs", api.InPath, e.execLogs, openapi.Operation{
			ID: "getExecLogs", Tag: tag,
			Summary: "Read the raw output of a command.",
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
				{Name: "follow", Kind: openapi.Flag, Description: "Continue until the command has ended."},
			},
			Answers: map[int][]openapi.Content{http.StatusOK: {
				{Media: octets,
					Headers: map[string]string{
						logStart: "Offset of the first byte, if the requested one is no longer kept."}}}},
			Fails: append([]int{416},
				inContainer...),
		}},
		{"GET", at + "/events", api.InPath, e.execEvents, openapi.Operation{
			ID: "followExec", Tag: tag,
			Summary: "Follow a command from its beginning or a position to its end.",
			Query: []openapi.Param{
				{Name: "stdout_offset", Kind: openapi.Whole, Description: "Bytes of stdout that the client has."},
				{Name: "stderr_offset", Kind: openapi.Whole, Description: "Bytes of stderr that the client has."},
			},
			Header: []openapi.Param{lastEvent},
			Answers: map[int][]openapi.Content{http.StatusOK: {{Media: eventType, Of: proto.Event{}}},
				http.StatusNoContent: nil}, Fails: inContainer,
		}},
		{"POST", at + "/signal", api.InPath, e.signalExec, openapi.Operation{
			ID: "signalExec", Tag: tag,
			Summary: "Send a signal to a command.",
			Body:    js(signalRequest{}), Answers: ok(proto.Exec{}), Fails: inGuest,
		}},
		{"POST", at + "/stdin", api.InPath, e.writeStdin, openapi.Operation{
			ID: "writeStdin", Tag: tag,
			Summary: "Write to the standard input of a command, as fast as it reads.",
			Query: []openapi.Param{
				{Name: "close", Kind: openapi.Flag, Description: "Close standard input afterwards."},
			},
			Body: raw(octets), Optional: true, Answers: ok(written{}), Fails: inGuest,
		}},
		{"POST", at + "/resize", api.InPath, e.resizeExec, openapi.Operation{
			ID: "resizeExec", Tag: tag,
			Summary: "Set the size of a command's terminal.",
			Body:    js(proto.WindowSize{}), Answers: ok(proto.Exec{}), Fails: inGuest,
		}},
		{"GET", "/v1/containers/{id}/shells", api.InPath, e.inSession(e.listShells), openapi.Operation{
			ID: "listShells", Tag: tag,
			Summary: "List a container's persistent shells.",
			Answers: ok(page[shell]{}), Fails: inGuest,
		}},
		{"DELETE", "/v1/containers/{id}/shells/{name}", api.InPath, e.inSession(e.closeShell), openapi.Operation{
			ID: "closeShell", Tag: tag,
			Summary: "End a persistent shell and its processes.",
			Answers: ok(deletedName{}), Fails: inGuest,
		}},
		{"GET", "/v1/containers/{id}/live", api.InPath, e.live, openapi.Operation{
			ID: "live", Tag: tag,
			Summary:     "Open a websocket for many commands at once.",
			Description: liveMore,
			Query: []openapi.Param{
				{Name: "watch", Kind: openapi.Flag, Description: "Also follow the commands of others."},
			},
			Answers: map[int][]openapi.Content{http.StatusSwitchingProtocols: nil}, Fails: append([]int{403, 426},
				inContainer...),
		}},
		{"POST", "/v1/tool_use", api.None, e.useToolOnce, withReplays(openapi.Operation{
			ID: "useToolOnce", Tag: tag, Loose: true,
			Summary: "Create a container and execute a model's tool-use block in it.",
			Body:    js(tooluse.Use{}), Answers: ok(tooluse.Result{}), Fails: inGuest,
		})},
		{"POST", "/v1/containers/{id}/tool_use", api.InPath, e.useTool, withReplays(openapi.Operation{
			ID: "useTool", Tag: tag, Loose: true,
			Summary: "Execute a model's tool-use block.",
			Description: "Send the block as the model wrote it. The result block reports failures of the tool. " +
				"Idempotency-Key is for the bash tools.",
			Body: js(tooluse.Use{}), Answers: ok(tooluse.Result{}), Fails: inGuest,
		})},
	}
}

func (e *edge) codeRows() []row {
	const tag, at = "code", "/v1/containers/{id}/contexts"
	return []row{
		{"POST", "/v1/run_code", api.InBody, e.runCode, openapi.Operation{
			ID: "runCode", Tag: tag,
			Summary:     "Run code and get the value of its last expression.",
			Description: codeMore,
			Body:        js(proto.Program{}), Answers: ok(code.Outcome{}), Fails: inGuest,
		}},
		{"POST", "/v1/code_executor", api.None, e.executeCode, openapi.Operation{
			ID: "executeCode", Tag: tag,
			Summary: "Run a script as the code_executor tool does, and get one Markdown text.",
			Description: "The script runs as a file, in a container of its own that is deleted afterwards: 15 " +
				"seconds, and 64 KiB of each stream.",
			Body: js(code.Script{}), Answers: ok(execution{}), Fails: inGuest,
		}},
		{"POST", at, api.InPath, e.createContext, openapi.Operation{
			ID: "createContext", Tag: tag,
			Summary: "Start a named interpreter that keeps its variables.",
			Description: "A cell in an unknown context creates the context, too. A container has at most 8 " +
				"contexts. They end with the daemon.",
			Body: js(code.NewContext{}), Answers: created(code.Context{}), Fails: inGuest,
		}},
		{"GET", at, api.InPath, e.listContexts, openapi.Operation{
			ID: "listContexts", Tag: tag,
			Summary: "List a container's contexts, by name.",
			Answers: ok(page[code.Context]{}), Fails: inContainer,
		}},
		{"GET", at + "/{name}", api.InPath, e.getContext, openapi.Operation{
			ID: "getContext", Tag: tag,
			Summary: "Describe a context.",
			Answers: ok(code.Context{}), Fails: inContainer,
		}},
		{"DELETE", at + "/{name}", api.InPath, e.deleteContext, openapi.Operation{
			ID: "deleteContext", Tag: tag,
			Summary: "End a context with its interpreter and its running cell.",
			Answers: ok(deletedName{}), Fails: inGuest,
		}},
		{"POST", at + "/{name}/run", api.InPath, e.runCell, openapi.Operation{
			ID: "runCell", Tag: tag,
			Summary:     "Run a cell in a context.",
			Description: cellMore,
			Body:        js(code.Cell{}), Answers: map[int][]openapi.Content{http.StatusOK: append(js(code.Outcome{}),
				openapi.Content{Media: eventType, Of: code.Progress{}})}, Fails: inGuest,
		}},
		{"POST", at + "/{name}/interrupt", api.InPath, e.interruptContext, openapi.Operation{
			ID: "interruptContext", Tag: tag,
			Summary:     "Interrupt the running cell of a context, like Ctrl-C.",
			Description: "The variables stay. If no cell runs, nothing happens.",
			Answers:     ok(code.Context{}), Fails: inGuest,
		}},
		{"POST", at + "/{name}/restart", api.InPath, e.restartContext, openapi.Operation{
			ID: "restartContext", Tag: tag,
			Summary: "End the interpreter of a context with its running cell, and start a new one.",
			Answers: ok(code.Context{}), Fails: inGuest,
		}},
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
	const tag, at = "files in containers", "/v1/containers/{id}/fs"
	file := map[string]string{
		"Berth-File-Mode": "Octal permission bits.", "Berth-File-Modified": "Time of the last change, RFC 3339.",
		"Last-Modified": "The same in whole seconds.", "Accept-Ranges": "bytes",
	}
	part := map[string]string{"Content-Range": "Which bytes these are, of how many."}
	rows := []row{
		{"GET", at + "/content", api.InPath, e.inFiles(e.readContent), openapi.Operation{
			ID: "readFile", Tag: tag,
			Summary: "Read a file.",
			Query:   []openapi.Param{pathParam, asParam},
			Header: []openapi.Param{
				{Name: "Range", Description: "One range of bytes, such as bytes=0-99, bytes=100- or bytes=-100. " +
					"With If-Range the answer is the whole file, since no header identifies its version reliably."},
			},
			Answers: map[int][]openapi.Content{http.StatusOK: {{Media: octets, Headers: file}},
				http.StatusPartialContent: {{Media: octets, Headers: part}}}, Fails: append([]int{416}, inGuest...),
		}},
		{"PUT", at + "/content", api.InPath, e.writeContent, openapi.Operation{
			ID: "writeFile", Tag: tag,
			Summary:     "Write a file atomically, and create its directories.",
			Description: "A body with Content-Range is refused: it is only a part of a file.",
			Query: []openapi.Param{
				pathParam,
				asParam,
				{Name: "mode", Kind: openapi.Mode, Description: "Octal permission bits; default 0644 for a new " +
					"file, and unchanged for an existing one."},
				{Name: "hash", Kind: openapi.Flag, Description: "Also return the SHA-256 of the file, which takes " +
					"longer than writing it."},
			},
			Body: raw(octets), Optional: true, Answers: ok(proto.FileInfo{}), Fails: inGuest,
		}},
		{"DELETE", at + "/content", api.InPath, e.inFiles(e.removeContent), openapi.Operation{
			ID: "removeFile", Tag: tag,
			Summary: "Remove a file or a directory. Links are removed, not followed.",
			Query: []openapi.Param{
				pathParam,
				asParam,
				{Name: "recursive", Kind: openapi.Flag, Description: "Remove a directory with its content."},
			},
			Answers: ok(deletedPath{}), Fails: inGuest,
		}},
		{"GET", at + "/list", api.InPath, e.inFiles(e.listDirectory), openapi.Operation{
			ID: "listDirectory", Tag: tag,
			Summary: "List a directory, sorted by name.",
			Query:   []openapi.Param{pathParam, asParam},
			Answers: ok(listing{}), Fails: inGuest,
		}},
		{"GET", at + "/stat", api.InPath, e.inFiles(e.statFile), openapi.Operation{
			ID: "statFile", Tag: tag,
			Summary: "Describe a file. A link at the end of the path is not followed.",
			Query:   []openapi.Param{pathParam, asParam},
			Answers: ok(proto.FileInfo{}), Fails: inGuest,
		}},
		{"POST", at + "/move", api.InPath, e.moveFile, openapi.Operation{
			ID: "moveFile", Tag: tag,
			Summary: "Rename a file or directory.",
			Body:    js(move{}), Answers: ok(move{}), Fails: inGuest,
		}},
		{"POST", at + "/mkdir", api.InPath, e.makeDirectory, openapi.Operation{
			ID: "makeDirectory", Tag: tag,
			Summary: "Create a directory and its parents.",
			Body:    js(directory{}), Answers: ok(directory{}), Fails: inGuest,
		}},
		{"GET", at + "/tar", api.InPath, e.inFiles(e.readTar), openapi.Operation{
			ID: "readTar", Tag: tag,
			Summary: "Read a directory as a tar archive.",
			Query:   []openapi.Param{pathParam, asParam},
			Answers: map[int][]openapi.Content{http.StatusOK: raw(tarType)}, Fails: inGuest,
		}},
		{"PUT", at + "/tar", api.InPath, e.writeTar, openapi.Operation{
			ID: "writeTar", Tag: tag,
			Summary: "Unpack a tar archive into a directory, which is created.",
			Description: "Members that would leave the directory, and devices, are refused by name. Members before " +
				"them have been unpacked then. A body with Content-Range is refused: it is only a part of an " +
				"archive.",
			Query: []openapi.Param{pathParam, asParam},
			Body:  append(raw(tarType), raw(octets)...), Answers: ok(directory{}), Fails: inGuest,
		}},
	}
	for i := range rows {
		rows[i].Query = append(rows[i].Query, ofGeneration)
	}
	return rows
}

func (e *edge) jobRows() []row {
	const tag, at = "jobs", "/v1/containers/{id}/jobs"
	return []row{
		{"POST", "/v1/containers/{id}/inputs", api.InPath, e.addInputs, openapi.Operation{
			ID: "addInputs", Tag: tag,
			Summary: "Put stored files into $INPUT_DIR.",
			Body:    js(inputs{}), Answers: ok(inputDir{}), Fails: inGuest,
		}},
		{"GET", at, api.InPath, e.inSession(e.listJobs), openapi.Operation{
			ID: "listJobs", Tag: tag,
			Summary: "List the jobs of a container's workspace, newest first.",
			Answers: ok(page[proto.JobSummary]{}), Fails: inContainer,
		}},
		{"GET", at + "/{job}/manifest", api.InPath, e.inSession(e.jobManifest), openapi.Operation{
			ID: "getManifest", Tag: tag,
			Summary: "List the content of a job's directory, and which command made it.",
			Answers: ok(proto.Manifest{}), Fails: inGuest,
		}},
		{"POST", at + "/{job}/publish", api.InPath, e.publishFile, openapi.Operation{
			ID: "publishFile", Tag: tag,
			Summary: "Publish a file of a job as a stored file.",
			Body:    js(publication{}), Answers: created(published{}), Fails: inGuest,
		}},
		{"GET", at + "/{job}/tar", api.InPath, e.inSession(e.jobTar), openapi.Operation{
			ID: "readJob", Tag: tag,
			Summary: "Read a job's directory as a tar archive.",
			Answers: map[int][]openapi.Content{http.StatusOK: raw(tarType)}, Fails: inGuest,
		}},
	}
}

func (e *edge) hostRows() []row {
	const tag = "daemon"
	lines := map[int][]openapi.Content{http.StatusOK: {{Media: lineType, Of: imageLine{}}}}
	const linesMore = "Each line of the answer is a JSON object: the steps, and at the end the image or the " +
		"error. A failure before the first step is an ordinary error."
	imageFails := append([]int{501, 503, 504, 507}, namesItem...)
	return []row{
		{"GET", "/v1/images", api.None, e.listImages, openapi.Operation{
			ID: "listImages", Tag: tag,
			Summary: "List images.",
			Answers: ok(page[session.Image]{}), Fails: basic,
		}},
		{"POST", "/v1/images/import", api.None, e.importImage, openapi.Operation{
			ID: "importImage", Tag: tag, Admin: true,
			Summary:     "Import an OCI or Docker archive.",
			Description: linesMore,
			Query: []openapi.Param{
				{Name: "name", Description: "Name of the image; default the name in the archive."},
			},
			Body: append(raw(tarType), raw(octets)...), Answers: lines, Fails: imageFails,
		}},
		{"POST", "/v1/images/pull", api.None, e.pullImage, openapi.Operation{
			ID: "pullImage", Tag: tag, Admin: true,
			Summary:     "Pull an image from a registry.",
			Description: linesMore,
			Body:        js(pull{}), Answers: lines, Fails: imageFails,
		}},
		{"DELETE", "/v1/images", api.None, e.removeImage, openapi.Operation{
			ID: "removeImage", Tag: tag, Admin: true,
			Summary: "Remove the name of an image. Running containers keep their image.",
			Query:   []openapi.Param{{Name: "ref", Required: true, Description: "Name of the image."}},
			Answers: ok(deletedName{}), Fails: append([]int{409, 501}, namesItem...),
		}},
		{"POST", "/v1/sweep", api.None, e.sweep, openapi.Operation{
			ID: "sweep", Tag: tag, Admin: true,
			Summary:     "Run all sweeps now.",
			Description: "The answer has counts by sweep and action.",
			Query: []openapi.Param{
				{Name: "strangers", Kind: openapi.Flag, Description: "First remove orphaned workspaces: those that " +
					"were set aside because the ledger does not know them."},
			},
			Answers: ok(map[string]map[string]int{}), Fails: basic,
		}},
		{"GET", "/v1/info", api.None, e.info, openapi.Operation{
			ID: "info", Tag: tag,
			Summary: "Describe the daemon.",
			Answers: ok(Info{}), Fails: basic,
		}},
		{"GET", "/openapi.json", api.None, e.openAPI, openapi.Operation{
			ID: "openAPI", Tag: tag, Public: true,
			Summary: "This document.",
			Answers: ok(map[string]any{}), Fails: []int{400, 413, 500},
		}},
	}
}

func (e *edge) keyRows() []row {
	const tag, at = "API keys", "/v1/keys/{id}"
	return []row{
		{"POST", "/v1/keys", api.None, e.createKey, openapi.Operation{
			ID: "createKey", Tag: tag, Admin: true,
			Summary: "Create an API key. Only this answer has its secret.",
			Body:    js(proto.CreateKey{}), Optional: true, Answers: created(proto.NewKey{}), Fails: basic,
		}},
		{"GET", "/v1/keys", api.None, e.listKeys, openapi.Operation{
			ID: "listKeys", Tag: tag, Admin: true,
			Summary: "List API keys, newest first, including revoked ones.",
			Answers: ok(page[proto.Key]{}), Fails: basic,
		}},
		{"GET", "/v1/keys/self", api.None, e.ownKey, openapi.Operation{
			ID: "getOwnKey", Tag: tag,
			Summary: "Describe the key of the request, and its use of its quota.",
			Answers: ok(proto.KeyStatus{}), Fails: namesItem,
		}},
		{"GET", at, api.None, e.getKey, openapi.Operation{
			ID: "getKey", Tag: tag, Admin: true,
			Summary: "Describe an API key, and its use of its quota.",
			Answers: ok(proto.KeyStatus{}), Fails: namesItem,
		}},
		{"PATCH", at, api.None, e.changeKey, openapi.Operation{
			ID: "changeKey", Tag: tag, Admin: true,
			Summary: "Change the name or the quota of an API key at once.",
			Description: "Fields that are left out stay unchanged. A bound of 0 is removed; removing " +
				"requests_per_second also removes burst. A bound below the current use removes nothing and refuses " +
				"more.",
			Body: js(proto.ChangeKey{}), Answers: ok(proto.Key{}), Fails: append([]int{409}, namesItem...),
		}},
		{"DELETE", at, api.None, e.revokeKey, openapi.Operation{
			ID: "revokeKey", Tag: tag, Admin: true,
			Summary: "Revoke an API key permanently and at once.",
			Description: "Running requests and websockets of the key end. The owner keeps what was made with the " +
				"key.",
			Answers: ok(proto.Key{}), Fails: append([]int{409}, namesItem...),
		}},
	}
}

func (e *edge) callRows() []row {
	const tag, at = "tools of code", "/v1/containers/{id}/tool_calls"
	decided := append([]int{409}, inContainer...)
	return []row{
		{"GET", "/v1/containers/{id}/tools", api.InPath, e.serveTools, openapi.Operation{
			ID: "serveTools", Tag: tag,
			Summary:     "Open a websocket to answer the tool calls of code in a container.",
			Description: serveMore,
			Answers:     map[int][]openapi.Content{http.StatusSwitchingProtocols: nil}, Fails: append([]int{403, 426},
				decided...),
		}},
		{"GET", at, api.InPath, e.listCalls, openapi.Operation{
			ID: "listToolCalls", Tag: tag,
			Summary: "List the calls that code in a container made, newest first.",
			Query: []openapi.Param{
				{Name: "state", Description: "Only calls in this state; parked calls wait for approval.",
					Choices: names(proto.ToolCallStates)},
				{Name: "exec", Pattern: "^(exec_[0-9A-Za-z]{22})?$", Description: "Only calls of this command."},
				{Name: "limit", Kind: openapi.Whole, Max: 100, Description: "Maximum length of the page, 1 to 100; " +
					"0 is the default, 20. A page of large entries has fewer."},
				{Name: "after", Pattern: "^(call_[0-9A-Za-z]{22})?$", Description: "ID of a call: the page starts " +
					"after it."},
			},
			Answers: ok(callPage{}), Fails: inContainer,
		}},
		{"GET", at + "/{call}", api.InPath, e.getCall, openapi.Operation{
			ID: "getToolCall", Tag: tag,
			Summary: "Describe a call.",
			Answers: ok(bridge.ToolCall{}), Fails: inContainer,
		}},
		{"POST", at + "/{call}/approve", api.InPath, e.approveCall, openapi.Operation{
			ID: "approveToolCall", Tag: tag,
			Summary: "Approve a parked call.",
			Description: "An approval is for one call with the input that is shown. Only the first decision " +
				"counts: later ones are a 409. A decision after the deadline is a 410.",
			Answers: ok(bridge.ToolCall{}), Fails: decided,
		}},
		{"POST", at + "/{call}/refuse", api.InPath, e.refuseCall, openapi.Operation{
			ID: "refuseToolCall", Tag: tag,
			Summary: "Refuse a parked call. Its code gets a PermissionError.",
			Body:    js(bridge.Refusal{}), Optional: true, Answers: ok(bridge.ToolCall{}), Fails: decided,
		}},
	}
}

const serveMore = "For a container whose code_tools have the provider \"client\". Messages are JSON text in " +
	"both directions: the client sends ClientMessage objects, the server DaemonMessage objects. With serve the " +
	"client lists the tools that it answers; it may send serve again. The answer, serving, has the names that code " +
	"may call. The client answers each call with result or error, in any order. cancel withdraws a call. When the " +
	"connection ends, unanswered calls wait a moment for a client that serves the same tools. That client gets " +
	"them with the same call_id and continues those that it already has. An invalid message is answered by one of " +
	"type error, and the connection stays open."

func (e *edge) toolRows() []row {
	const tag, at, runs = "stored tools", "/v1/tools/{name}", "/v1/tool_runs"
	version := openapi.Param{Name: "version", Kind: openapi.Whole,
		Description: "One of its versions; without it, the current one."}
	changes := append([]int{409}, namesItem...)
	return []row{
		{"POST", "/v1/tools", api.None, e.createTool, openapi.Operation{
			ID: "createTool", Tag: tag,
			Summary:     "Store a tool.",
			Description: toolMore,
			Body:        js(toolstore.NewTool{}), Answers: created(toolstore.Tool{}),
			Fails: append([]int{409, 503, 507},
				basic...),
		}},
		{"GET", "/v1/tools", api.None, e.listTools, openapi.Operation{
			ID: "listTools", Tag: tag,
			Summary: "List tools, by name.",
			Answers: ok(page[toolstore.Tool]{}), Fails: basic,
		}},
		{"GET", at, api.None, e.getTool, openapi.Operation{
			ID: "getTool", Tag: tag,
			Summary: "Describe a tool, by its name or ID.",
			Query:   []openapi.Param{version},
			Answers: ok(toolstore.Tool{}), Fails: namesItem,
		}},
		{"PATCH", at, api.None, e.changeTool, openapi.Operation{
			ID: "changeTool", Tag: tag,
			Summary: "Create a new version of a tool.",
			Description: "Fields that are left out stay unchanged. A configuration is replaced as a whole; without " +
				"env_variables it keeps the present ones, and with {} it has none.",
			Body: js(toolstore.ChangeTool{}), Answers: ok(toolstore.Tool{}), Fails: append([]int{503}, changes...),
		}},
		{"DELETE", at, api.None, e.deleteTool, openapi.Operation{
			ID: "deleteTool", Tag: tag,
			Summary: "Remove a tool with its versions. Its runs stay; runs that wait for approval are refused.",
			Answers: ok(deletion{}), Fails: namesItem,
		}},
		{"GET", at + "/versions", api.None, e.toolVersions, openapi.Operation{
			ID: "listToolVersions", Tag: tag,
			Summary: "List the versions of a tool, newest first.",
			Answers: ok(page[toolstore.Tool]{}), Fails: namesItem,
		}},
		{"POST", at + "/run", api.InBody, e.runTool, withReplays(openapi.Operation{
			ID: "runTool", Tag: tag,
			Summary:     "Run a tool on an input.",
			Description: toolRunMore,
			Body:        js(toolstore.RunRequest{}), Optional: true,
			Answers: map[int][]openapi.Content{http.StatusOK: js(toolstore.Run{}),
				http.StatusAccepted: js(toolstore.Run{})},
			Fails: append([]int{409, 410, 501,
				503}, namesItem...),
		})},
		{"GET", runs, api.None, e.listToolRuns, openapi.Operation{
			ID: "listToolRuns", Tag: tag,
			Summary: "List runs of tools, newest first.",
			Query: []openapi.Param{
				{Name: "tool", Description: "Only runs of this tool, by name or ID."},
				{Name: "state", Description: "Only runs in this state.", Choices: names(proto.ToolRunStates)},
				{Name: "limit", Kind: openapi.Whole, Max: 100, Description: "Maximum length of the page, 1 to 100; " +
					"0 is the default, 20. A page of large entries has fewer."},
				{Name: "after", Pattern: "^(run_[0-9A-Za-z]{22})?$", Description: "ID of a run: the page starts " +
					"after it."},
			},
			Answers: ok(toolRunPage{}), Fails: basic,
		}},
		{"GET", runs + "/{id}", api.None, e.getToolRun, openapi.Operation{
			ID: "getToolRun", Tag: tag,
			Summary: "Describe a run, and wait for its end if requested.",
			Query: []openapi.Param{
				{Name: "wait_seconds", Kind: openapi.Whole, Max: 86400, Description: "How long to wait for the end."},
			},
			Answers: ok(toolstore.Run{}), Fails: namesItem,
		}},
		{"POST", runs + "/{id}/approve", api.None, e.approveToolRun, openapi.Operation{
			ID: "approveToolRun", Tag: tag,
			Summary: "Approve a parked run. It runs in the background.",
			Description: "An approval is for one run. Only the first decision counts: later ones are a 409. A " +
				"decision after the deadline is a 410.",
			Answers: map[int][]openapi.Content{http.StatusAccepted: js(toolstore.Run{})}, Fails: append([]int{409,
				410, 501, 503}, namesItem...),
		}},
		{"POST", runs + "/{id}/refuse", api.None, e.refuseToolRun, openapi.Operation{
			ID: "refuseToolRun", Tag: tag,
			Summary: "Refuse a parked run.",
			Body:    js(toolstore.Refusal{}), Optional: true, Answers: ok(toolstore.Run{}), Fails: append([]int{409,
				410}, namesItem...),
		}},
	}
}

const toolMore = "The code defines run(input). Its syntax and the presence of run are checked before it is " +
	"stored. input_schema and output_schema are flat lists of fields; types are upper case. The values of " +
	"env_variables are sealed on disk and never returned. With \"approval_action\": \"review\" each run waits " +
	"until a person approves it."

const toolRunMore = "The answer is the run after its end, whether it succeeded or failed. An input that " +
	"does not fit input_schema is a 400 that names the field, and no run. Fields that the schema does not have are " +
	"dropped, which a note reports. A run that waits for approval or has \"background\": true is a 202 at once. A " +
	"run ends when its client goes away, unless it has \"background\" or an idempotency key."

func (e *edge) vaultRows() []row {
	const tag = "daemon"
	fails := append([]int{409, 501, 503}, basic...)
	return []row{
		{"POST", "/v1/vault/rotate", api.None, e.changeKeys(func() rotate { return e.Rotate }), openapi.Operation{
			ID: "rotateVault", Tag: tag, Admin: true,
			Summary:     "Create a new key for secrets and seal all secrets with it.",
			Description: "Older keys stay in the file, for copies of the ledger.",
			Answers:     ok(Rotation{}), Fails: fails,
		}},
		{"POST", "/v1/vault/forget", api.None, e.changeKeys(func() rotate { return e.Forget }), openapi.Operation{
			ID: "forgetVaultKeys", Tag: tag, Admin: true,
			Summary:     "Remove all keys for secrets except the newest from the file.",
			Description: "Secrets in older copies of the ledger cannot be opened afterwards.",
			Answers:     ok(Rotation{}), Fails: fails,
		}},
	}
}

// auditRows are for admins, since the log concerns every owner. A daemon without a log neither serves nor documents
// them.
func (e *edge) auditRows() []row {
	if e.Audit == nil {
		return nil
	}
	const tag = "audit"
	admins := append([]int{403}, basic...)
	return []row{
		{"GET", "/v1/audit", api.None, e.readAudit, openapi.Operation{
			ID: "readAudit", Tag: tag, Admin: true,
			Summary: "Read the audit log, oldest entry first.",
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
			Header: []openapi.Param{
				{Name: "Last-Event-ID", Pattern: "^[0-9]{0,18}$", Description: "ID of the last event that the " +
					"client has; the stream continues after it."},
			},
			Answers: map[int][]openapi.Content{http.StatusOK: {
				{Media: lineType, Of: proto.AuditEntry{}},
				{Media: eventType, Of: proto.AuditEntry{}}}},
			Fails: admins,
		}},
		{"GET", "/v1/audit/head", api.None, e.auditHead, openapi.Operation{
			ID: "auditHead", Tag: tag, Admin: true,
			Summary: "Read the end of the audit log's chain, to be recorded elsewhere.",
			Answers: ok(proto.AuditHead{}), Fails: admins,
		}},
	}
}

// auditActions are the action names in the audit log, by operation. Other operations that may change something appear
// under their own name. Reading appears where it returns data of a container or an owner.
var auditActions = map[string]string{
	"createContainer": "container.create", "extendContainer": "container.extend", "startContainer": "container.start",
	"stopContainer": "container.stop", "pauseContainer": "container.pause", "resumeContainer": "container.resume",
	"deleteContainer": "container.delete", "deleteWorkspace": "workspace.delete",
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
	"readFile": "fs.read", "writeFile": "fs.write", "removeFile": "fs.remove", "moveFile": "fs.move",
	"makeDirectory": "fs.mkdir",
	"readTar":       "fs.read_tar", "writeTar": "fs.write_tar", "addInputs": "input.add", "publishFile": "job.publish",
	"readJob":     "job.read",
	"importImage": "image.import", "pullImage": "image.pull", "removeImage": "image.remove", "sweep": "sweep.run",
	"createKey": "key.create", "changeKey": "key.change", "revokeKey": "key.revoke", "readAudit": "audit.read",
	"rotateVault": "vault.rotate", "forgetVaultKeys": "vault.forget",
}

// coreAudited are the operations that the core audits when they are done.
var coreAudited = map[string]bool{
	"createContainer": true, "startContainer": true, "stopContainer": true, "pauseContainer": true,
	"resumeContainer": true, "deleteContainer": true, "run": true, "runOnce": true,
	"runCode": true, "executeCode": true, "runCell": true,
}

// auditAction returns the action name of the row; "" is not audited.
func (r row) auditAction() string {
	if act := auditActions[r.ID]; act != "" || r.method == http.MethodGet {
		return act
	}
	return r.ID
}
