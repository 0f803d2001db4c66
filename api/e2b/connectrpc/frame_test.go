package connectrpc

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"berth/proto"
)

func TestFrames(t *testing.T) {
	whole := AppendFrame(AppendFrame(nil, 0, []byte(`{"n":1}`)), flagEnd, []byte(`{}`))
	r := bytes.NewReader(whole)
	var m struct{ N int }
	if err := ReadFrame(r, &m); err != nil || m.N != 1 {
		t.Errorf("the first message is %+v, %v", m, err)
	}
	if err := ReadFrame(r, &m); !errors.Is(err, io.EOF) {
		t.Errorf("the last frame: %v", err)
	}
	for what, c := range map[string]struct {
		frame []byte
		code  proto.Code
	}{
		"compressed": {AppendFrame(nil, flagPacked, []byte("{}")), proto.InvalidArgument},
		"cut off":    {whole[:7], proto.InvalidArgument}, "cut in its head": {whole[:3], proto.InvalidArgument},
		"no JSON": {AppendFrame(nil, 0, []byte("{")), proto.InvalidArgument},
		"huge":    {[]byte{0, 0xff, 0xff, 0xff, 0xff}, proto.TooLarge},
	} {
		if err := ReadFrame(bytes.NewReader(c.frame), &m); proto.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %s", what, err, c.code)
		}
	}
}

func TestCodes(t *testing.T) {
	for code := range codes {
		if got := CodeOf(proto.Errorf(code, "", "", "x")); got == "" || got == Internal {
			t.Errorf("%s is %q", code, got)
		}
	}
	if got := CodeOf(Errorf(Unknown, proto.Conflict, "x")); got != Unknown {
		t.Errorf("an error of its own code is %s", got)
	}
	if got := CodeOf(errors.New("x")); got != Internal {
		t.Errorf("any other error is %s", got)
	}
}
