package span

import "berth/proto"

// EndExec ends the span of a command. A return code other than 0 is a result and no error; an end that the command did
// not choose is one. end is nil if the command goes on without this daemon.
func (s Span) EndExec(end *proto.End) {
	switch {
	case end == nil:
		s.Bool(LeftRunning, true)
	case end.Reason == proto.EndExit:
		s.String(ExecReason, string(end.Reason))
		s.Int(ExitCode, int64(end.ReturnCode))
	default:
		s.String(ExecReason, string(end.Reason))
		s.Fail(string(end.Reason))
	}
	s.End(nil)
}
