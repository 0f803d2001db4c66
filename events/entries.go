package events

import (
	"strings"

	"berth/proto"
)

// actLost is the audit action for entries that had no room in memory.
const actLost = "log.lost"

// simple are the types of actions with one event, by action. An action that is in no table is no event.
var simple = map[string]proto.FeedType{
	"container.create": proto.FeedContainerCreated, "container.start": proto.FeedContainerStarted,
	"container.stop": proto.FeedContainerStopped, "container.pause": proto.FeedContainerPaused,
	"container.resume": proto.FeedContainerResumed, "container.extend": proto.FeedContainerChanged,
	"container.change": proto.FeedContainerChanged, "container.expire": proto.FeedContainerExpired,
	"container.delete": proto.FeedContainerDeleted, "container.reset": proto.FeedContainerReset,
	"container.restore": proto.FeedContainerRestored, "container.fork": proto.FeedContainerCreated,
	"snapshot.create": proto.FeedSnapshotCreated, "snapshot.delete": proto.FeedSnapshotDeleted,
	"port.publish": proto.FeedContainerChanged, "port.withdraw": proto.FeedContainerChanged,
	"exec.begin": proto.FeedExecStarted, "exec.end": proto.FeedExecEnded,
	"tools.call": proto.FeedToolCallEnded, "port.open": proto.FeedPortOpened, "port.close": proto.FeedPortClosed,
	"webhook.disabled": proto.FeedWebhookDisabled,
}

// fileActions change files inside of a container. The item is the path.
var fileActions = map[string]bool{"fs.write": true, "fs.remove": true, "fs.move": true, "fs.mkdir": true,
	"fs.write_tar": true, "input.add": true}

// approvals are the types of actions on approvals. The item begins with the ID of the approval.
var approvals = map[string]proto.FeedType{
	"tool_call.park": proto.FeedApprovalParked, "tool_run.park": proto.FeedApprovalParked,
	"tool_call.approve": proto.FeedApprovalDecided, "tool_call.refuse": proto.FeedApprovalDecided,
	"network_ask.park": proto.FeedApprovalParked,
	"approval.approve": proto.FeedApprovalDecided, "approval.refuse": proto.FeedApprovalDecided,
	"tool_run.approve": proto.FeedApprovalDecided, "tool_run.refuse": proto.FeedApprovalDecided,
}

// eventsOf returns the events of an entry.
func eventsOf(e proto.AuditEntry) []proto.FeedEvent {
	if e.Act == actLost {
		return []proto.FeedEvent{{Type: proto.FeedGap, Timestamp: e.Time, Note: e.Note}}
	}
	if e.Outcome != proto.AuditOK && e.Act != "tools.call" { // a refused request changed nothing
		return nil
	}
	event := proto.FeedEvent{Timestamp: e.Time, Owner: e.Owner, ContainerID: e.ContainerID, Generation: e.Generation,
		ExecID: e.ExecID, Actor: e.Actor, RequestID: e.RequestID}
	if t, ok := simple[e.Act]; ok {
		event.Type, event.Item, event.Note, event.ToolCall, event.Port = t, e.Item, e.Note, e.Call, e.Port
		event.Exec = execOf(e)
		return append([]proto.FeedEvent{event}, further(e, event)...)
	}
	if t, ok := approvals[e.Act]; ok {
		_, verb, _ := strings.Cut(e.Act, ".")
		event.Type, event.Item, event.Note = t, e.Item, e.Note
		if t == proto.FeedApprovalDecided {
			event.Decision = verb
		}
		return []proto.FeedEvent{event}
	}
	switch {
	case fileActions[e.Act]:
		event.Type, event.Item = proto.FeedFilesChanged, e.Item
		if strings.HasPrefix(e.Act, "fs.") && e.Act != "fs.move" {
			event.Paths = []string{e.Item}
		}
	case e.Act == "file.upload" || e.Act == "job.publish":
		event.Type = proto.FeedFileStored
		for _, word := range strings.Fields(e.Item) {
			if proto.ValidID(proto.FilePrefix, word) {
				event.FileIDs = append(event.FileIDs, word)
			}
		}
	case e.Act == "file.delete":
		event.Type, event.FileIDs = proto.FeedFileDeleted, []string{e.Item}
	default:
		return nil
	}
	return []proto.FeedEvent{event}
}

// execOf returns what an entry tells of a command, or nil.
func execOf(e proto.AuditEntry) *proto.FeedExec {
	x := e.Exec
	if x == nil {
		return nil
	}
	out := &proto.FeedExec{JobID: x.JobID, User: x.User, Command: x.Command, PID: x.PID}
	if x.Reason != "" {
		out.Reason, out.ReturnCode, out.Seconds, out.CPUSeconds = x.Reason, &x.ReturnCode, x.Seconds, x.CPUSeconds
		out.StdoutBytes, out.StderrBytes = x.StdoutBytes, x.StderrBytes
	}
	return out
}

// further returns the events of an entry behind its first one: that a new container is a fork, and the files that a
// command made. like has the fields that all events of the entry have.
func further(e proto.AuditEntry, like proto.FeedEvent) (list []proto.FeedEvent) {
	if e.Act == "container.fork" {
		like.Type = proto.FeedContainerForked
		return append(list, like)
	}
	if e.Exec == nil {
		return nil
	}
	like.Exec, like.Note, like.Item = nil, "", ""
	if len(e.Exec.Produced) > 0 {
		changed := like
		changed.Type, changed.Paths, changed.JobID = proto.FeedFilesChanged, e.Exec.Produced, e.Exec.JobID
		list = append(list, changed)
	}
	if len(e.Exec.FileIDs) > 0 {
		stored := like
		stored.Type, stored.FileIDs, stored.JobID = proto.FeedFileStored, e.Exec.FileIDs, e.Exec.JobID
		list = append(list, stored)
	}
	return list
}
