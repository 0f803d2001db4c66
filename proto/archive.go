package proto

// An archive of a container's directory cannot hold pipes, sockets and devices. It has a comment in place of each: a
// global header (pax) of this keyword, whose value begins so and goes on with the name. Whatever else unpacks
// archives passes over comments.
const (
	ArchiveComment = "comment"
	ArchiveLeftOut = "left out: "
)
