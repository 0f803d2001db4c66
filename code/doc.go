// Package code runs code of a language in a session and returns values, not only output.
//
//	Runner.Once     a fresh interpreter, in a new container that is deleted afterwards or in an existing one
//	Runner.Cell     in a context: a named interpreter of a session that keeps its variables from cell to cell
//	Runner.Execute  the code_executor tool: a script, fixed limits, and one text as its result
//
// An interpreter is an ordinary exec of its session: a program of the image, which receives a driver for its language
// at its start (code/driver). What the code prints is the exec's own output. The driver reports results, such as the
// value of the last expression, among that output; package code/cell tells the two apart.
//
//	interpreter  an exec, its driver, and the cell that it runs now
//	notebook     a context: a name, and the interpreter that currently runs for it
//	prestarted   a container and an interpreter that wait for the next program
//
// The native, MCP and Messages edges call it. Stored tools (tools/toolstore) run through an interface of their own.
package code
