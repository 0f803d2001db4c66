package build

import (
	"bytes"
	"strings"

	"berth/build/wire"
	"berth/proto"
	"berth/proto/span"
)

// maxLastLines bounds what is kept of a step's output for the error of a build, in bytes.
const maxLastLines = 4 << 10

// A buildStep is what is known of one step while a build runs.
type buildStep struct {
	number int // from 1
	name   string
	output []byte    // the end of its output, in whole lines
	begun  [2][]byte // the line that each of stdout and stderr has begun
	span   span.Span // while it runs
	traced bool      // span has begun
}

// write adds output. Pieces of the two streams come in turns, and a piece may end in the middle of a line: a line is
// added when it is whole.
func (s *buildStep) write(stream proto.Stream, data []byte) {
	line := &s.begun[0]
	if stream == proto.Stderr {
		line = &s.begun[1]
	}
	*line = append(*line, data...)
	end := bytes.LastIndexByte(*line, '\n') + 1
	s.output = lastOf(append(s.output, (*line)[:end]...))
	*line = lastOf(bytes.Clone((*line)[end:]))
}

// lastOf returns the end of b, as much as is kept.
func lastOf(b []byte) []byte { return b[max(0, len(b)-maxLastLines):] }

// lastLines returns the lines at the end of the output. A line that was begun, of either stream, ends here.
func (s *buildStep) lastLines() string {
	all := s.output
	for _, line := range s.begun {
		if len(line) > 0 {
			all = append(append(all[:len(all):len(all)], line...), '\n')
		}
	}
	cut := len(all) >= maxLastLines
	text := strings.ToValidUTF8(string(lastOf(all)), "\uFFFD")
	if cut {
		_, text, _ = strings.Cut(text, "\n")
	}
	return text
}

// stepOf returns a step, which has a number from then on. The caller holds mu.
func (r *runningBuild) stepOf(vertex string) *buildStep {
	s := r.steps[vertex]
	if s == nil {
		s = &buildStep{number: len(r.steps) + 1}
		r.steps[vertex] = s
	}
	return s
}

// takeVertex reports a step that has begun or ended. The caller holds mu.
func (r *runningBuild) takeVertex(v *wire.Vertex) {
	step := r.stepOf(v.ID)
	step.name = v.Name
	s := &proto.BuildStepState{Number: step.number, Name: v.Name, Seconds: float64(v.Millis) / 1000, Error: v.Error}
	switch {
	case v.Error != "":
		s.State = "failed"
		if r.broken == nil {
			r.broken = step
		}
	case v.Cached:
		s.State = "cached"
	case v.Ended:
		s.State = "done"
	case v.Began:
		s.State = "running"
	default:
		return // it is only known
	}
	r.trace(step, s.State)
	r.emit(proto.BuildEvent{Type: proto.BuildStep, Step: s})
}

// trace begins the span of a step, and ends it. The name of the step is a command, so the span has its number only. The
// caller holds mu.
func (r *runningBuild) trace(step *buildStep, state string) {
	if !step.traced {
		_, step.span = span.Start(r.ctx, "image.build.step")
		step.span.Int(span.BuildStep, int64(step.number))
		step.traced = true
	}
	switch state {
	case "running":
		return
	case "cached":
		step.span.Bool(span.BuildCached, true)
	case "failed":
		step.span.Fail(string(proto.InvalidArgument))
	}
	step.span.End(nil)
}
