// Package code runs code of a language in a session and gives back values, not only output.
//
//	Runner.Once     a fresh interpreter, in a new container that is deleted afterwards or in an existing one
//	Runner.Cell     in a context: a named interpreter of a session that keeps its variables from cell to cell
//	Runner.Execute  as the code_executor tool has it: a program, hard limits, and one text
//
// An interpreter is an ordinary exec of its session: a program of the image, and a driver for its language that is
// given to it at its start (driver/). What the code prints is the exec's own output. What the driver tells, such as
// the value of the last expression, comes among it, each piece marked with a number that the daemon drew for the
// cell; protocol.go has the form. The code can see that number and tell what it likes, which then is its result:
// nothing here is believed beyond that, and all of it is bounded.
//
//	scanner      tells what was printed from what was told
//	cell         what one piece of code printed and told, bounded
//	interpreter  an exec, its driver, and the cell that it runs now
//	context      a name, and the interpreter that it stands for at the moment
package code
