package attack

import (
	"bytes"
	"context"
	"fmt"
	"net/http"

	"berth/proto"
)

// Group 35, Messages: a request names a container, files and skills in the middle of a body that goes to a model.
var _ = register(Case{
	Group: 35, Name: "tenants/messages",
	Tries: "ask a model with the code execution tool and another tenant's container, file or skill, and count the " +
		"tokens of such requests",
	Wants: "each is a 404 that names it, before the model is asked",
	Run:   foreignMessages,
})

// attackModel is the name of a model that a daemon with an upstream usually knows. No request of the case reaches it.
const attackModel = "claude-sonnet-4-5"

// messagesWith returns the body of a Messages request with the code execution tool.
func messagesWith(container any, content ...any) map[string]any {
	body := map[string]any{"model": attackModel, "max_tokens": 16,
		"tools": []any{map[string]any{"type": "code_execution_20250825", "name": "code_execution"}},
		"messages": []any{map[string]any{"role": "user", "content": append(content, map[string]any{"type": "text",
			"text": "hello"})}}}
	if container != nil {
		body["container"] = container
	}
	return body
}

func foreignMessages(ctx context.Context, t *Target) (string, error) {
	n, err := t.Neighbour(ctx)
	if err != nil {
		return "", err
	}
	victim, err := n.hoard(ctx)
	if err != nil {
		return "", err
	}
	a, err := t.askJSON(ctx, http.MethodPost, "/v1/messages", messagesWith(victim.never().container))
	if err != nil {
		return "", err
	}
	if !bytes.Contains(a.body, []byte(victim.never().container)) && a.status == http.StatusNotFound {
		return "", &NotHere{"this daemon has no upstream for " + attackModel + " (serve --upstream)"}
	}
	skill := map[string]any{"skills": []any{map[string]any{"type": "custom", "skill_id": victim.skill,
		"version": "latest"}}}
	upload := map[string]any{"type": "container_upload", "file_id": victim.file}
	const ask, count = "/v1/messages", "/v1/messages/count_tokens"
	tries := []struct {
		path, names string
		body        map[string]any
	}{
		{ask, victim.container, messagesWith(victim.container)},
		{ask, victim.container, messagesWith(map[string]any{"id": victim.container})},
		{ask, victim.file, messagesWith(nil, upload)},
		{ask, victim.skill, messagesWith(skill)},
		{count, victim.container, messagesWith(victim.container)},
		{count, victim.skill, messagesWith(skill)},
	}
	for _, try := range tries {
		a, err := t.askJSON(ctx, http.MethodPost, try.path, try.body)
		if err != nil {
			return "", err
		}
		what := fmt.Sprintf("POST %s with %s of another tenant's", try.path, try.names)
		if err := a.refused(what, "not_found_error"); err != nil {
			return "", err
		}
		if !bytes.Contains(a.body, []byte(try.names)) {
			return "", Breached("%s was answered about something else: %.300s", what, a.body)
		}
	}
	now, err := n.Client.Container(ctx, victim.container)
	if err != nil || now.State != proto.StateRunning || now.RunningExecs != 0 {
		return "", Breached("the other tenant's container is %s with %d commands: %v", now.State, now.RunningExecs, err)
	}
	return fmt.Sprintf("%d requests were refused", len(tries)), victim.untouched(ctx)
}
