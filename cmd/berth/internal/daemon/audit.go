package daemon

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"berth/session"
)

// An auditLog is a file with one JSON line for every exec that ended. It is only ever appended
// to, and readable by the daemon's user alone.
type auditLog struct {
	mu sync.Mutex // keeps lines whole
	f  *os.File
}

func openAudit(path string) (*auditLog, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the audit log: %w", err)
	}
	return &auditLog{f: f}, nil
}

func (a *auditLog) write(e session.AuditEntry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	_, err = a.f.Write(append(line, '\n'))
	return err
}

func (a *auditLog) Close() error { return a.f.Close() }
