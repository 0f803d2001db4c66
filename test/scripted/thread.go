package scripted

import (
	"fmt"
	"net/http"
	"slices"
)

// A thread is a conversation whose client sends new messages only. A Server keeps one for each answer in it.
type thread struct {
	messages  []any // up to the answer, inclusive
	kept      map[string]any
	continued bool // an answer is continued once
}

// ofThread are members that a request has when it begins a thread. Later requests leave them out.
var ofThread = []string{"system", "tools"}

// joinThread makes a request that continues a thread whole. It returns the error that an API answers with if there is
// no such thread.
func (s *Server) joinThread(got *received) *Error {
	body, _ := got.body.(map[string]any)
	if got.chat() || got.value("/thread/type") != "continue" {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.threads[textOf(got.value("/thread/previous_message_id"))]
	switch {
	case t == nil:
		return &Error{Status: http.StatusNotFound, Type: "not_found_error", Code: "thread_not_found",
			Message: "thread: there is none with this previous_message_id"}
	case t.continued:
		return refuseThread("thread_already_continued", "thread: the answer was continued before")
	}
	for _, name := range ofThread {
		if body[name] != nil {
			return refuseThread("", fmt.Sprintf("%s: a thread keeps what it was created with", name))
		}
		if t.kept[name] != nil {
			body[name] = t.kept[name]
		}
	}
	list, _ := body["messages"].([]any)
	body["messages"] = slices.Concat(t.messages, list)
	return nil
}

func refuseThread(code, message string) *Error {
	return &Error{Status: http.StatusBadRequest, Type: "invalid_request_error", Code: code, Message: message}
}

// keepThread keeps the conversation of a request that is in a thread, with its answer.
func (s *Server) keepThread(got *received, m message) {
	if got.chat() || got.value("/thread") == nil {
		return
	}
	list, _ := got.value("/messages").([]any)
	content := make([]any, len(m.content))
	for i, b := range m.content {
		content[i] = b
	}
	t := &thread{kept: map[string]any{}, messages: append(slices.Clone(list), map[string]any{"role": "assistant",
		"content": content})}
	for _, name := range ofThread {
		t.kept[name] = got.value("/" + name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.threads[textOf(got.value("/thread/previous_message_id"))]; before != nil {
		before.continued = true
	}
	s.threads[textOf(m.id)] = t
}
