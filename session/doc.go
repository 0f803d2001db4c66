// Package session is the core: sessions with a lease, the commands that run in them,
// and the rules of who may do what and how long things live.
//
// A session is what callers know as a container: an ID, an owner, a workspace
// and a lease. Its sandbox comes and goes below it: the sweeper stops an idle one, the next use
// starts it again with the same files. The core speaks to sandboxes through two things only: a
// Runtime, which makes and removes them, and the guest inside, over one socket each.
//
//	Sessions   all of them: Open, Create, Get, List, Delete, Sweep
//	Session    one: Exec, file access, lease
//	Exec       one command: Wait, Follow, Signal, Write
//
// Life of a session, each arrow written to the ledger before it is acted on:
//
//	creating → running ⇄ stopped → expired → gone
//
// What a crash leaves half done is finished or undone by reconcile, on the next Open.
//
//	in scope                                out of scope
//	lease, limits, ownership, exec, output  HTTP, wire dialects (api/...)
//	what a crash left (reconcile)           containers, images, disks (runtime/containerd)
//	                                        stored files, manifests (files, artifacts)
package session
