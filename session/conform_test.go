package session_test

import (
	"testing"

	"berth/proto"
	"berth/test/sessiontest"
)

func TestRuntimeWithoutContainersConforms(t *testing.T) {
	sessiontest.Conform(t, sessiontest.NewRuntime(t), sessiontest.Images{}, proto.ClassRunc)
}
