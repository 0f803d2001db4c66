// Package doctor examines a host for `berth doctor`: whether containers can be run on it, safely and with limits, and
// what to do where they cannot. Try starts one container of each runtime class in a directory of its own.
//
// The command's main calls it. It changes nothing of a running daemon.
package doctor
