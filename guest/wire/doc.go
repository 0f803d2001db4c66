// Package wire is the protocol between the daemon and the guest of a container: operations, messages, frames, limits,
// and the errors that cross. Both ends import it: guest/client is the daemon's end, guest/pid1 the guest's. The
// package runs nothing and keeps no state but that of a connection.
//
// A connection carries one operation at a time and is kept for the next. It starts with a request (Q). What follows
// depends on the operation:
//
//	unary     Q → R or X
//	ping      H → J: the guest is there, and says which one it is
//	download  Q → R, B…, Z   (or X at any point); R with the descriptor of a large file, Z
//	upload    Q → R (go on) ; B…, Z → R or X
//	command   Q → S ; O E F A… → D ; and from the daemon I C G K W Y at any time
//	kept      Q → S ; P F A… → D ; and from the daemon I C G K W U at any time
//	idle      Q → R ; Conflict unless nothing would be lost if the container stopped
//	dial      Q → R with the descriptor of a socket ; or R, then B… Z both ways, until the daemon hangs up
//	listen    Q → R ; R when a program connects ; then B… Z both ways, until the daemon hangs up
//
// A frame is one byte of type, four bytes of length and at most MaxFrame bytes. A longer message is cut: parts (c)
// precede the frame that ends it. Messages are JSON. H is sent only to a guest whose Hello says that it answers
// pings.
//
// A command's stdout and stderr do not cross the connection where descriptors can: the daemon makes pipes and sends
// their ends with Q (SCM_RIGHTS), and the guest hands them to the child. Where descriptors cannot cross, and for
// terminals and persistent shells, output arrives as frames O and E.
//
// A command ends with its connection, unless it is kept (Command.Keep). A kept command goes on without a connection.
// The guest reads its output, keeps both ends of the output within bounds, and keeps the exit. A later connection
// attaches to the command and continues at the offsets that the daemon has. Output that was dropped meanwhile shows
// as a jump of the offset. A daemon that starts claims the commands that it knows, stores those that have ended, and
// has the guest forget them.
//
// The daemon does not trust the guest: code in the container may have replaced it. The daemon's end therefore bounds
// the size, number and time of all answers, and drops the connection at the first one that does not fit.
package wire
