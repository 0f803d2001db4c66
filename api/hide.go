package api

import "berth/proto"

// hide replaces the secrets of the container that the path of the request names.
func (s *Server) hide(x *exchange, text string) string {
	if s.cfg.Hide == nil || x.container == "" {
		return text
	}
	return s.cfg.Hide(x.container, text)
}

// hideIn hides secrets in an error, which may repeat a path or a name from the client.
func (s *Server) hideIn(x *exchange, err *proto.Error) *proto.Error {
	out := *err
	out.Message, out.Item = s.hide(x, err.Message), s.hide(x, err.Item)
	return &out
}
