// Package doctor examines a host for `berth doctor`: whether it can run containers, safely and with limits, and how
// to fix it if not. Try starts one container of each runtime class in a directory of its own.
//
// The command's main calls it. It changes nothing of a running daemon.
package doctor
