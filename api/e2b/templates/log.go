package templates

import (
	"fmt"
	"strings"

	"berth/proto"
)

// A log turns the events of a build into lines for clients.
type log struct {
	t     *Templates
	e     *entry
	plan  *plan
	steps map[int]*stepLog
}

// A stepLog is what a step of the builder has written.
type stepLog struct {
	step  string
	begun map[string]string // the line that each stream has begun
}

func (l *log) step(number int) *stepLog {
	s := l.steps[number]
	if s == nil {
		s = &stepLog{begun: map[string]string{}}
		l.steps[number] = s
	}
	return s
}

// add adds an event. It is called from one goroutine at a time.
func (l *log) add(ev proto.BuildEvent) {
	l.t.mu.Lock()
	defer l.t.mu.Unlock()
	switch {
	case ev.Build != nil:
		l.e.state = building
	case ev.Step != nil:
		l.addStep(ev.Step)
	case ev.Log != nil:
		s := l.step(ev.Log.Step)
		text := s.begun[ev.Log.Stream] + ev.Log.Data
		end := strings.LastIndexByte(text, '\n') + 1
		for line := range strings.Lines(text[:end]) {
			l.e.log(LogEntry{Level: "info", Message: strings.TrimRight(line, "\r\n"), Step: s.step})
		}
		s.begun[ev.Log.Stream] = text[max(end, len(text)-maxMessage):]
	case ev.Warning != "":
		l.e.log(LogEntry{Level: "warn", Message: ev.Warning})
	}
}

func (l *log) addStep(s *proto.BuildStepState) {
	known, ok := l.plan.lineOf(s.Name)
	if ok {
		l.step(s.Number).step = known.step
	}
	if !ok || known.said == "" || s.State != "running" && s.State != "cached" {
		return
	}
	head := "[" + known.step + "] "
	if s.State == "cached" {
		head = "CACHED " + head
	}
	l.e.log(LogEntry{Level: "info", Message: head + known.said, Step: known.step})
}

// flush adds lines that were begun and have no end.
func (l *log) flush() {
	l.t.mu.Lock()
	defer l.t.mu.Unlock()
	for _, s := range l.steps {
		for _, text := range s.begun {
			if text != "" {
				l.e.log(LogEntry{Level: "info", Message: text, Step: s.step})
			}
		}
	}
}

// log adds a line. The caller holds Templates.mu.
func (e *entry) log(l LogEntry) {
	l.Timestamp = now()
	l.Message = proto.Shorten(strings.ToValidUTF8(l.Message, "\uFFFD"), maxMessage)
	switch {
	case len(e.entries) == maxEntries && l.Level == "info":
		return
	case len(e.entries) == maxEntries-1 && l.Level == "info":
		l = LogEntry{l.Timestamp, "warn", "the log has too many lines; the rest is left out", ""}
	}
	e.entries = append(e.entries, l)
}

func (e *entry) logf(level, format string, args ...any) {
	e.log(LogEntry{Level: level, Message: fmt.Sprintf(format, args...)})
}
