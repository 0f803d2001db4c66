// Package guest is both ends of the conversation between the daemon and a container: Client is the daemon's, Serve is
// what runs inside as PID 1.
//
// A connection carries one operation at a time and is kept for the next. It starts with a request (Q), and what
// follows depends on the operation:
//
//	unary     Q → R or X
//	asked     H → J, whether the guest is there and is the one that it was
//	download  Q → R, B…, Z   (or X at any point); R with the descriptor of a large file, Z
//	upload    Q → R (go on) ; B…, Z → R or X
//	command   Q → S ; O E F A… → D ; and from the daemon I C G K W Y at any time
//	kept      Q → S ; P F A… → D ; and from the daemon I C G K W U at any time
//	doze      Q → R ; then the guest is not there until something comes
//	listen    Q → R ; R when somebody connects ; then B… Z both ways, until the daemon hangs up
//
// Frames are one byte of type, four bytes of length and at most MaxFrame bytes. A request longer than that is cut:
// parts (c) go before the frame that names it. They are JSON. H is sent where the
// guest says in Hello that it answers it.
//
// A command's stdout and stderr do not cross the connection where descriptors can: the daemon makes pipes and sends
// their ends along with Q (SCM_RIGHTS), the guest hands them to the child, and bytes take no detour. Where
// descriptors cannot cross, and for terminals and persistent shells, output arrives as frames O and E.
//
// A command ends with its connection, unless it is kept (Command.Keep). Then it goes on, and the guest reads its
// output, keeps both ends of that within bounds, and keeps how it ended. Whoever comes next attaches to it and goes
// on at the offsets it has; output that was lost between shows as a jump. A daemon that begins claims what it knows,
// stores what has ended, and has it forgotten.
//
// The daemon does not trust the guest. Whatever runs inside may have replaced it, so Client bounds the size, count
// and time of all it is told, and drops the connection at the first thing that does not fit.
package guest
