package client

import "berth/test/guesttest"

var (
	short      = guesttest.Short
	must       = guesttest.Must
	checkLeaks = guesttest.CheckLeaks
	wantCode   = guesttest.WantCode
	say        = guesttest.Frame
)

type plainConn = guesttest.PlainConn
