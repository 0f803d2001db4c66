// Package session is the core: sessions with a lease, the commands that run in them, and the rules for access and
// lifetime. The daemon opens it; the edges, the gateway and the tools call it.
//
// A session is what clients know as a container: an ID, an owner, a workspace and a lease. Its sandbox comes and
// goes: the sweeper stops an idle one, and the next use starts it again with the same files. The core reaches
// sandboxes in two ways: a Runtime makes and removes them, and the guest inside answers over one socket each.
//
//	Sessions   all of them: Open, Create, Get, List, Delete, Sweep
//	Session    one: Exec, file access, lease
//	Exec       one command: Wait, Follow, Signal, Write
//
// A session's states; each change is in the ledger before it happens:
//
//	creating → running ⇄ stopped → expired → gone
//
// After a crash, reconcile finishes or undoes what was half done, on the next Open.
//
// The context of a call carries its caller; see proto.WithCaller. Audit entries name the caller, Create counts the
// session for the caller's API key, and Exec and Hold check and charge its CPU time. Nothing else in a context changes
// what a call does.
//
//	in scope                                out of scope
//	ownership, exec, recovery               HTTP, wire dialects (api/...)
//	when a lease ends, what is kept         containers, images, disks (runtime/containerd)
//	secrets of sessions (session/secrets)   stored files, manifests (files, artifacts)
//
// Beside it stand packages with one subject each, which only the core calls: validate (requests), limits (which limit
// ended a command), execstore (output of ended commands), loopback (ports served in a container), lease (ends of
// leases, and their clock), events (output as events; package code calls it too).
package session
