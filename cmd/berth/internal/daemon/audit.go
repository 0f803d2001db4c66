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
	f *os.File

	mu   sync.Mutex // keeps lines whole, and guards torn
	torn bool       // the last line was not written to its end, as on a full disk
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
	if a.torn { // else this one would be part of it
		line = append([]byte{'\n'}, line...)
	}
	n, err := a.f.Write(append(line, '\n'))
	a.torn = a.torn && n == 0 || n > 0 && err != nil
	return err
}

func (a *auditLog) Close() error { return a.f.Close() }
