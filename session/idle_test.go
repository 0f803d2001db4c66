package session_test

import (
	"runtime"
	"testing"

	"berth/proto"
	"berth/session"
	"berth/session/sessiontest"
)

// BenchmarkIdleSession says what a session costs the daemon that has run one command and waits: heap, stacks and
// goroutines, with the guest's connection.
func BenchmarkIdleSession(b *testing.B) {
	st := sessiontest.New(b, session.Config{})
	sessiontest.Bash(b, st.Create(b, proto.CreateContainer{}), "true")
	before, routines := inUse(), runtime.NumGoroutine()
	n := 0
	for b.Loop() {
		sessiontest.Bash(b, st.Create(b, proto.CreateContainer{}), "true")
		n++
	}
	b.ReportMetric(float64(inUse()-before)/float64(n), "B/session")
	b.ReportMetric(float64(runtime.NumGoroutine()-routines)/float64(n), "goroutines/session")
}

// inUse is the memory in use after a collection, in bytes.
func inUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
