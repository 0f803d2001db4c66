package document

import "berth/api/openapi"

// tags are the headings of the document, in the order in which a new reader wants them.
var tags = []openapi.Tag{
	{Name: "containers", Description: "Containers with an ID and a lease, and the workspaces that hold their files."},
	{Name: "commands", Description: "Commands in a container: start, follow, signal, and get the result."},
	{Name: "code", Description: "Code with the value of its last expression, and interpreters that keep variables."},
	{Name: "files in containers", Description: "Read, write, find and watch files of a container."},
	{Name: "jobs", Description: "Directories of a workspace: stored files as inputs, manifests, and results."},
	{Name: "snapshots", Description: "Read-only copies of a container's files, and copies of containers."},
	{Name: "ports", Description: "What listens in a container, reachable from outside."},
	{Name: "stored files", Description: "Files beside containers, by ID. Speaks a hosted API."},
	{Name: "tools of code", Description: "Functions of your process that code in a container calls."},
	{Name: "stored tools", Description: "Tools that the daemon keeps and runs."},
	{Name: "approvals", Description: "What waits for the decision of a person."},
	{Name: "events", Description: "What happens to containers, commands, files and approvals."},
	{Name: "webhooks", Description: "Events sent to a URL of yours."},
	{Name: "stats", Description: "What containers use."},
	{Name: "messages", Description: "Requests to a model whose code runs in containers. Speaks a hosted API."},
	{Name: "message batches", Description: "Many requests to a model at once. Speaks a hosted API."},
	{Name: "models", Description: "Models of all upstreams. Speaks a hosted API."},
	{Name: "skills", Description: "Directories with instructions for models. Speaks a hosted API."},
	{Name: "API keys", Description: "Keys, their owners and their quotas. For admins."},
	{Name: "registries", Description: "Credentials for image registries. For admins."},
	{Name: "audit", Description: "The log of who did what. For admins."},
	{Name: "daemon", Description: "The daemon itself: images, settings, health, metrics and this document."},
}
