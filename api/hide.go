package api

import "berth/proto"

// hide replaces the secrets of the container that a request's path names.
func (s *Server) hide(x *exchange, text string) string {
	if s.cfg.Hide == nil || x.container == "" {
		return text
	}
	return s.cfg.Hide(x.container, text)
}

// hideIn is hide of an error's words: it may repeat a path or a name that the client sent.
func (s *Server) hideIn(x *exchange, err *proto.Error) *proto.Error {
	out := *err
	out.Message, out.Item = s.hide(x, err.Message), s.hide(x, err.Item)
	return &out
}
