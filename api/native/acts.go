package native

import "net/http"

// acts is what the audit log calls requests, by operation. Every other operation that may change something is there
// under its own name; what only looks is not. Reading is where it takes a container's or the owner's data out.
var acts = map[string]string{
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

// covered are the operations that the core has audited itself when they are done.
var covered = map[string]bool{
	"createContainer": true, "startContainer": true, "stopContainer": true, "pauseContainer": true,
	"resumeContainer": true, "deleteContainer": true, "run": true, "runOnce": true,
	"runCode": true, "executeCode": true, "runCell": true,
}

// act is what the audit log calls a request to the row; "" is not to be there.
func (r row) act() string {
	if act := acts[r.ID]; act != "" || r.method == http.MethodGet {
		return act
	}
	return r.ID
}
